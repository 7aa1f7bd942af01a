"""`interop.jax.rnn` under `vmap`: what is one wide call, what is one call for each element, and that both are right."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pycudnnrnn.interop.jax import rnn
from tests.helpers.kinds import problem_of
from tests.interop.jax_problems import RAGGED, arguments_of, loss_of

pytestmark = pytest.mark.usefixtures("float64")


def stacked(problem, count=4):
    rng = np.random.default_rng(5)
    return [jnp.asarray(rng.normal(size=(count, *a.shape))) for a in arguments_of(problem)]


def sizes_of(engine_calls):
    """Which passes ran, and on how many sequences."""
    return [(name, config.schedule.B) for name, config, _ in engine_calls]


PASSES = ("forward", "backward_data", "backward_weights")


@pytest.mark.parametrize("time_major", [True, False])
def test_vmap_over_data_alone_is_one_call_on_a_larger_batch(engine_calls, time_major):
    problem = problem_of()
    many = stacked(problem)[1] if time_major else stacked(problem)[1].swapaxes(1, 2)
    options = {"spec": problem.spec, "sequence_lengths": RAGGED, "time_major": time_major}
    run = jax.vmap(lambda x: rnn(problem.params, x, **options))
    jax.block_until_ready(run(many))
    assert sizes_of(engine_calls) == [("forward", 12)]
    assert [result.shape[0] for result in run(many[:0])] == [0, 0, 0]


def scanned(one, p, x):
    """Two calls in a loop that add up to one; each has something of the step in it, or JAX would run it once before."""

    def step(_, part):
        return None, part * one(p, x * (part / part))

    return jax.lax.scan(step, None, jnp.array([0.25, 0.75]))[1].sum(0)


MAPPED = {
    "vmap": lambda one: jax.vmap(one, (None, 0)),
    "vmap of jit": lambda one: jax.vmap(jax.jit(one), (None, 0)),
    "vmap of checkpoint": lambda one: jax.vmap(jax.checkpoint(one), (None, 0)),
    "checkpoint of vmap": lambda one: jax.checkpoint(jax.vmap(one, (None, 0))),
    "vmap of scan": lambda one: jax.vmap(lambda p, x: scanned(one, p, x), (None, 0)),
    "scan of vmap": lambda one: lambda p, many: scanned(jax.vmap(one, (None, 0)), p, many),
    "vmap of vmap": lambda one: (
        lambda p, many: jax.vmap(jax.vmap(one, (None, 0)), (None, 0))(p, many.reshape(2, 2, *many.shape[1:]))
    ),
}


@pytest.mark.parametrize(("way", "jit"), [(way, n % 2 == 0) for n, way in enumerate(MAPPED)])
def test_the_gradient_of_a_vmap_is_one_wide_backward(engine_calls, way, jit):
    problem = problem_of()
    params, _, h, c = arguments_of(problem)
    many, loss = stacked(problem)[1], loss_of(problem)
    each = [jax.grad(loss, argnums=(0, 1))(params, x, h, c) for x in many]

    def gradient(p, many):
        return jax.grad(lambda *a: MAPPED[way](lambda p, x: loss(p, x, h, c))(*a).sum(), argnums=(0, 1))(p, many)

    engine_calls.clear()
    d_params, d_many = jax.block_until_ready((jax.jit(gradient) if jit else gradient)(params, many))
    sizes, times = sizes_of(engine_calls), 2 if "scan" in way else 1
    assert set(sizes) == {(name, 12) for name in PASSES}
    forwards, *backwards = (sizes.count((name, 12)) for name in PASSES)
    assert forwards in {times, 2 * times if "checkpoint" in way and not jit else times}
    assert backwards == [times, times]
    np.testing.assert_allclose(d_params, sum(d for d, _ in each), rtol=0, atol=1e-12)
    np.testing.assert_allclose(d_many, jnp.stack([d for _, d in each]), rtol=0, atol=1e-12)


def gradients(one):
    """Return the gradients of each element of a `vmap`."""
    return jax.vmap(jax.grad(one, argnums=(0, 1)), (None, 0))


OWN = {
    "grad": gradients,
    "of scan": lambda one: gradients(lambda p, x: scanned(one, p, x)),
    "of checkpoint": lambda one: gradients(jax.checkpoint(one)),
    # one forward, and a backward for each upstream
    "pulled back": lambda one: lambda p, many: jax.vmap(jax.vjp(one, p, many[0])[1])(jnp.arange(4.0)),
}


@pytest.mark.parametrize(("way", "jit"), [(way, n % 2 == 0) for n, way in enumerate(OWN)])
def test_a_vmap_of_gradients_has_each_elements_own(engine_calls, way, jit):
    problem = problem_of()
    params, _, h, c = arguments_of(problem)
    many, loss = stacked(problem)[1], loss_of(problem)

    def one(p, x):
        return loss(p, x, h, c)

    each = [jax.grad(one, argnums=(0, 1))(params, x) for x in many]
    if way == "pulled back":
        each = [jax.tree.map(lambda a, n=n: n * a, each[0]) for n in range(4)]
    engine_calls.clear()
    found = OWN[way](one)
    own = jax.block_until_ready((jax.jit(found) if jit else found)(params, many))
    assert {size for _, size in sizes_of(engine_calls)} == {3}
    for ours, theirs in zip(own, zip(*each, strict=True), strict=True):
        np.testing.assert_allclose(ours, jnp.stack(theirs), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("axes", "out"),
    [((0, 1, 0, 2, None), 1), ((None, None, -1, 1, 0), -1), ((0, None, -1, 1, 0), 1), ((1, None, None, None, None), 1)],
)
def test_axes_of_lengths_and_arrays_go_in_and_come_out_where_they_are_said_to(engine_calls, axes, out):
    problem = problem_of()
    several = jnp.array([[5, 2, 0], [1, 1, 3], [0, 5, 4]], "int32"), *stacked(problem, 3)
    one = several[0][0], *arguments_of(problem)
    chosen = zip(one, several, axes, strict=True)
    lengths, *arguments = (a if axis is None else jnp.moveaxis(many, 0, axis) for a, many, axis in chosen)

    def run(n, *a):
        return rnn(*a, spec=problem.spec, sequence_lengths=n)

    def looped(*a):
        pairs = list(zip(a, axes, strict=True))
        rows = [run(*(b if x is None else jnp.moveaxis(b, x, 0)[n] for b, x in pairs)) for n in range(3)]
        return [jnp.stack(results, axis=out) for results in zip(*rows, strict=True)]

    def both(way):
        results, pullback = jax.vjp(lambda *a: tuple(way(lengths, *a)), *arguments)
        return [*results, *pullback(results)]

    found = jax.block_until_ready(both(jax.vmap(run, in_axes=axes, out_axes=out)))
    assert {size for _, size in sizes_of(engine_calls)} == {9 if axes[1] is None else 3}
    for ours, theirs in zip(found, both(looped), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
