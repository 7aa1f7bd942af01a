"""`interop.jax.rnn` under `vmap`: what is one wide call, what is one call for each element, and that both are right."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pycudnnrnn.engines.numpy_engine import plan as numpy_plan
from pycudnnrnn.engines.numpy_engine.reserve import NumpyReserve
from pycudnnrnn.interop.jax import rnn
from tests.interop.jax_problems import RAGGED, arguments_of, loss_of, problem_of


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def stacked(problem, count=4):
    rng = np.random.default_rng(5)
    return [jnp.asarray(rng.normal(size=(count, *a.shape))) for a in arguments_of(problem)]


@pytest.fixture
def batches(monkeypatch):
    """The engine's calls as they come: which pass, and on how many sequences."""
    found = []

    def watch(owner, name, schedule_of):
        method = getattr(owner, name)

        def watched(*arguments, **keywords):
            found.append((name, schedule_of(*arguments).B))
            return method(*arguments, **keywords)

        monkeypatch.setattr(owner, name, watched)

    watch(numpy_plan, "forward", lambda batch, *_: batch.schedule)
    watch(NumpyReserve, "backward_data", lambda reserve, *_: reserve.schedule)
    watch(NumpyReserve, "backward_weights", lambda reserve, *_: reserve.schedule)
    return found


PASSES = ("forward", "backward_data", "backward_weights")


@pytest.mark.parametrize("time_major", [True, False])
def test_vmap_over_data_alone_is_one_call_on_a_larger_batch(batches, time_major):
    problem = problem_of()
    many = stacked(problem)[1] if time_major else stacked(problem)[1].swapaxes(1, 2)
    options = {"spec": problem.spec, "sequence_lengths": RAGGED, "time_major": time_major}
    jax.block_until_ready(jax.vmap(lambda x: rnn(problem.params, x, **options))(many))
    assert batches == [("forward", 12)]


def scanned(one, p, x):
    """Two calls in a loop that add up to one; each has something of the step in it, or JAX would run it once before."""

    def step(_, part):
        return None, part * one(p, x * (part / part))

    return jax.lax.scan(step, None, jnp.array([0.25, 0.75]))[1].sum(0)


MAPPED = {
    "vmap": lambda one: jax.vmap(one, (None, 0)),
    "vmap of jit": lambda one: jax.vmap(jax.jit(one), (None, 0)),
    "jit of vmap": lambda one: jax.jit(jax.vmap(one, (None, 0))),
    "vmap of checkpoint": lambda one: jax.vmap(jax.checkpoint(one), (None, 0)),
    "checkpoint of vmap": lambda one: jax.checkpoint(jax.vmap(one, (None, 0))),
    "vmap of scan": lambda one: jax.vmap(lambda p, x: scanned(one, p, x), (None, 0)),
    "scan of vmap": lambda one: lambda p, many: scanned(jax.vmap(one, (None, 0)), p, many),
    "vmap of vmap": lambda one: (
        lambda p, many: jax.vmap(jax.vmap(one, (None, 0)), (None, 0))(p, many.reshape(2, 2, *many.shape[1:]))
    ),
}


@pytest.mark.parametrize(("way", "jit"), [(way, n % 2 == 0) for n, way in enumerate(MAPPED)])
def test_the_gradient_of_a_vmap_is_one_wide_backward(batches, way, jit):
    problem = problem_of()
    params, _, h, c = arguments_of(problem)
    many, loss = stacked(problem)[1], loss_of(problem)
    each = [jax.grad(loss, argnums=(0, 1))(params, x, h, c) for x in many]

    def gradient(p, many):
        return jax.grad(lambda *a: MAPPED[way](lambda p, x: loss(p, x, h, c))(*a).sum(), argnums=(0, 1))(p, many)

    batches.clear()
    d_params, d_many = jax.block_until_ready((jax.jit(gradient) if jit else gradient)(params, many))
    times, again = 2 if "scan" in way else 1, 2 if "checkpoint" in way and not jit else 1
    forwards = batches.count(("forward", 12))
    assert forwards in {times, again * times}
    assert sorted(set(batches)) == sorted((name, 12) for name in PASSES)
    assert [batches.count((name, 12)) for name in PASSES[1:]] == [times, times]
    np.testing.assert_allclose(d_params, sum(d for d, _ in each), rtol=0, atol=1e-12)
    np.testing.assert_allclose(d_many, jnp.stack([d for _, d in each]), rtol=0, atol=1e-12)


OWN = ("grad", "of scan", "of checkpoint", "of a condition", "pulled back")


@pytest.mark.parametrize(("way", "jit"), [(way, n % 2 == 0) for n, way in enumerate(OWN)])
def test_a_vmap_of_gradients_has_each_elements_own(batches, way, jit):
    problem = problem_of()
    params, x, h, c = arguments_of(problem)
    many, loss = stacked(problem)[1], loss_of(problem)
    wanted = jnp.array([True, False, True, True])

    def one(p, x):
        return loss(p, x, h, c)

    def conditional(p, x, wanted):
        return jax.lax.cond(wanted, one, lambda p, x: (p**2).sum() + x.sum(), p, x)

    def found(p, many):
        if way == "pulled back":  # one forward, and a backward for each upstream
            _, pullback = jax.vjp(one, p, x)
            return jax.vmap(pullback)(jnp.arange(4.0))
        if way == "of a condition":
            return jax.vmap(jax.grad(conditional, argnums=(0, 1)), (None, 0, 0))(p, many, wanted)
        inner = {"grad": one, "of scan": lambda p, x: scanned(one, p, x), "of checkpoint": jax.checkpoint(one)}[way]
        return jax.vmap(jax.grad(inner, argnums=(0, 1)), (None, 0))(p, many)

    if way == "pulled back":
        of_one = jax.grad(one, argnums=(0, 1))(params, x)
        each = [jax.tree.map(lambda a, n=n: n * a, of_one) for n in range(4)]
    else:
        each = [
            jax.grad(one, argnums=(0, 1))(params, x) if way != "of a condition" or keep else (2 * params, x * 0 + 1)
            for x, keep in zip(many, wanted.tolist(), strict=True)
        ]
    batches.clear()
    own = jax.block_until_ready((jax.jit(found) if jit else found)(params, many))
    assert {size for _, size in batches} == {3}
    for ours, theirs in zip(own, zip(*each, strict=True), strict=True):
        np.testing.assert_allclose(ours, jnp.stack(theirs), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("axes", "out"), [((None, 2, None, None), 0), ((1, 0, 2, None), 1), ((None, -1, 1, 0), -1), ((None, None, 3, 3), 1)]
)
def test_axes_go_in_and_come_out_where_they_are_said_to(axes, out):
    problem = problem_of()
    one, many = arguments_of(problem), stacked(problem, 3)
    given = [a if axis is None else jnp.moveaxis(m, 0, axis) for a, m, axis in zip(one, many, axes, strict=True)]

    def run(*a):
        return rnn(*a, spec=problem.spec, sequence_lengths=RAGGED)

    def total(*a):
        return sum((k * result**2).sum() for k, result in enumerate(mapped(*a), 1))

    def looped(*a):
        rows = [run(*(jnp.moveaxis(b, x, 0)[n] if x is not None else b for b, x in zip(a, axes, strict=True)))
                for n in range(3)]  # fmt: skip
        return [jnp.stack(results, axis=out) for results in zip(*rows, strict=True)]

    mapped = jax.jit(jax.vmap(run, in_axes=axes, out_axes=out))
    for ours, theirs in zip(mapped(*given), looped(*given), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-14)
    expected = jax.grad(
        lambda *a: sum((k * result**2).sum() for k, result in enumerate(looped(*a), 1)), argnums=(0, 1, 2, 3)
    )(*given)
    for ours, theirs in zip(jax.grad(total, argnums=(0, 1, 2, 3))(*given), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("time_major", "lengths"), [(True, None), (False, [5, 2, 0])])
def test_a_mapped_axis_may_be_empty(time_major, lengths):
    problem = problem_of(lengths=None)
    x = jnp.asarray(problem.x if time_major else problem.x.swapaxes(0, 1))

    def call(x, params=problem.params):
        return rnn(params, x, spec=problem.spec, time_major=time_major, sequence_lengths=lengths)

    for found, one in zip(jax.vmap(call)(x[None][:0]), call(x), strict=True):
        assert (found.shape, found.dtype) == ((0, *one.shape), one.dtype)
    assert jax.vmap(jax.grad(lambda x: call(x)[0].sum()))(x[None][:0]).shape == (0, *x.shape)
    assert jax.vmap(lambda p: call(x, p))(jnp.asarray(problem.params)[None][:0])[0].shape[0] == 0
