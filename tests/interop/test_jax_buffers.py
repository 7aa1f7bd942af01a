"""`interop.jax.rnn` in XLA's own buffers: what is run, what is copied, where it may run, and what a failure leaves."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.interop.jax import rnn
from pycudnnrnn.passes import GRADIENTS, INPUTS, RESULTS
from pycudnnrnn.testing.strategies import make_problem
from tests.helpers.kinds import address
from tests.helpers.pairwise import pairwise
from tests.helpers.recorded import NAMES, RecordingEngine
from tests.interop.jax_problems import arguments_of, equal, expected_of

OP = ops.CudnnLSTM(2, 8, 8)
PARAMS = OP.init_params(seed=1)
X = np.random.default_rng(2).normal(size=(6, 4, 8)).astype(np.float32)


def loss(params, x, **keywords):
    return sum((array**2).sum() for array in rnn(params, x, spec=OP, **keywords))


@pytest.fixture(autouse=True, scope="module")
def optimizations():
    """Compile as for users: how many copies and calls a program has depends on XLA's optimizations."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()
    yield
    jax.config.update("jax_disable_most_optimizations", before)


FORWARDS = {
    "eager": (lambda f: f, 1),
    "jit": (jax.jit, 1),
    "checkpoint": (jax.checkpoint, 2),
    "checkpoint, products kept": (partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_saveable), 2),
    "checkpoint, all kept": (partial(jax.checkpoint, policy=jax.checkpoint_policies.everything_saveable), 1),
}


@pytest.mark.parametrize(("how", "platform"), pairwise(FORWARDS, ["cpu", "host"])[:6])
def test_a_gradient_is_one_forward_and_one_backward_unless_it_recomputes(engine_calls, how, platform):
    way, forwards = FORWARDS[how]
    gradient = jax.value_and_grad(way(lambda params, x: loss(params, x, platform=platform)))
    jax.block_until_ready(gradient(PARAMS, X))
    engine_calls.clear()
    jax.block_until_ready(gradient(PARAMS, X))
    assert [name for name, *_ in engine_calls] == ["forward"] * forwards + ["backward_data", "backward_weights"]


@pytest.mark.parametrize(
    "way", [lambda f: f, jax.jit, jax.checkpoint, jax.vmap], ids=["eager", "jit", "checkpoint", "vmap"]
)
def test_params_that_no_gradient_is_asked_of_have_none_computed(engine_calls, way):
    x = X[None] if way is jax.vmap else X
    both = jax.block_until_ready(jax.grad(lambda p, x: way(lambda x: loss(p, x))(x).sum(), argnums=(0, 1))(PARAMS, x))
    engine_calls.clear()
    found = jax.block_until_ready(jax.grad(lambda x: way(lambda x: loss(PARAMS, x))(x).sum())(x))
    assert {name for name, *_ in engine_calls} == {"forward", "backward_data"}
    np.testing.assert_array_equal(found, both[1])


def test_inputs_and_outputs_are_xlas_own_memory(engine_calls):
    arguments = [jnp.asarray(array) for array in (PARAMS, X, np.ones((2, 4, 8), "f4"), np.ones((2, 4, 8), "f4"))]

    def assert_same(found, expected):
        assert [address(array) for array in found] == [array.unsafe_buffer_pointer() for array in expected]

    @jax.jit
    def both(*arguments):
        results, pullback = jax.vjp(lambda *a: rnn(*a, spec=OP), *arguments)
        return results, pullback(results)

    results, gradients = jax.block_until_ready(both(*arguments))
    arrays = {name: array for _, _, arrays in engine_calls for name, array in arrays.items()}
    for names, expected in ((INPUTS, arguments), (RESULTS, results), (("d_params", *GRADIENTS), gradients)):
        assert_same(map(arrays.get, names), expected)


@pytest.mark.parametrize("platform", ["cpu", "host"])
def test_one_kind_of_call_is_compiled_once(platform, caplog):
    with jax.log_compiles():
        for _ in range(3):
            caplog.clear()
            jax.block_until_ready(jax.grad(partial(loss, platform=platform))(PARAMS, X))
    assert not [record for record in caplog.records if "ompil" in record.getMessage()]


@pytest.mark.parametrize(("where", "platform", "jitted"), pairwise(NAMES.values(), ["cpu", "host"], [True, False]))
def test_a_failure_comes_out_with_its_text_and_leaves_the_process_whole(platform, where, jitted):
    engine, gradient = RecordingEngine(), jax.value_and_grad(partial(loss, platform=platform))
    run = jax.jit(gradient) if jitted else gradient
    with use_engine(engine):
        expected = run(PARAMS, X)
        engine.failing.add(where)
        for _ in range(2):
            with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match="no room for a tape"):
                jax.block_until_ready(run(PARAMS, X))
        engine.failing.clear()
        jax.tree.map(np.testing.assert_array_equal, run(PARAMS, X), expected)


def test_the_platform_is_where_the_arrays_are_and_in_a_trace_the_default(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    rnn(jnp.asarray(PARAMS), jnp.asarray(X), spec=OP)
    with pytest.raises(ArgumentError, match=r"Invalid platform: 'tpu', expecting one of .*'host' runs everywhere"):
        jax.jit(lambda p, x: rnn(p, x, spec=OP))(PARAMS, X)
    jax.jit(lambda p, x: rnn(p, x, spec=OP, platform="host"))(PARAMS, X)
    with jax.default_device(jax.devices("cpu")[0]):
        jax.jit(lambda p, x: rnn(p, x, spec=OP))(PARAMS, X)


@pytest.mark.parametrize(("T", "B", "lengths"), [(0, 3, None), (4, 0, None), (4, 2, [0, 0])], ids=str)
def test_an_empty_batch_calls_nothing_and_its_gradients_pass_through(engine_calls, T, B, lengths):
    problem = make_problem(ops.CudnnLSTM(2, 3, 4, dtype="float32"), T, B, lengths, seed=1)
    results, gradients = expected_of(problem)
    engine_calls.clear()
    run = jax.jit(lambda *arguments: rnn(*arguments, spec=problem.spec, sequence_lengths=lengths))
    found, pullback = jax.vjp(run, *arguments_of(problem))
    equal(found, results)
    equal(pullback(tuple(map(jnp.asarray, problem.upstream()))), gradients)
    assert not engine_calls
