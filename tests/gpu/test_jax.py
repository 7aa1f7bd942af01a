"""`interop.jax.rnn` on a GPU: cuDNN on XLA's buffers and stream, in every transformation.

What only a GPU can show: order against XLA's own kernels (in `scan`), the reserve that backward rewrites in place,
memory that JAX holds from the start, and an exit with work in flight.
"""

import subprocess
import sys

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.engines import DropoutState
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.numbers import relaid


@pytest.fixture
def jax(cuda):
    if cuda.on_shim:
        pytest.skip("JAX needs a GPU to have CUDA arrays; tests/cudnn_engine/test_jax_on_shim.py has the calls")
    module = pytest.importorskip("jax")
    if module.default_backend() != "gpu":
        pytest.skip("this JAX has no CUDA")
    with module.enable_x64(True):
        yield module


def problem_of(kind=ops.CudnnLSTM, lengths=None, dtype="float64", **options):
    return make_problem(kind(2, 12, 7, direction="bidirectional", dtype=dtype, **options), 7, 3, lengths, seed=3)


def inputs_of(jax, problem, platform="cuda"):
    states = (problem.hx, problem.cx) if problem.spec.has_cell_state else (problem.hx,)
    params = relaid(problem).params if platform == "cuda" else problem.params
    return [jax.numpy.asarray(array) for array in (params, problem.x, *states)]


def loss_of(problem, **keywords):
    from pycudnnrnn.interop.jax import rnn

    def loss(params, x, *states):
        options = {"spec": problem.op, "sequence_lengths": problem.lengths} | keywords
        output = rnn(params, x, *states, **options)[0]
        return (output * problem.dy).sum(), output

    return loss


def close(found, expected, tolerance=1e-9):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", [ops.CudnnLSTM, ops.CudnnGRU])
@pytest.mark.parametrize("lengths", ["equal", "ragged", "traced"])
def test_values_and_gradients_are_the_numpy_engines(jax, kind, lengths):
    """With lengths that are known while tracing, and with an array that only the device knows."""
    problem = problem_of(kind, None if lengths == "equal" else [7, 0, 3])
    expected = problem.forward()
    gradients = expected.backward(problem.dy)

    def run(given, *inputs):
        loss = loss_of(problem, **{"sequence_lengths": given} if lengths == "traced" else {})
        return jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(*inputs)

    run = run if lengths == "equal" else jax.jit(run)
    (_, output), (d_params, d_x) = run(jax.numpy.array([7, 0, 3], "int32"), *inputs_of(jax, problem))
    assert output.devices() == {jax.devices()[0]}
    close(output, expected.output)
    close(problem.op.move_params(d_params, "cpu"), gradients.params)
    close(d_x, gradients.input)


@pytest.mark.parametrize("way", ["scan", "vmap", "vmap of grad", "grad of vmap", "checkpoint"])
def test_transformations_are_those_of_the_host(jax, way):
    problem = problem_of()

    def results(platform):
        params, x, h, c = inputs_of(jax, problem, platform)

        def loss(p, x):
            return loss_of(problem, platform=platform)(p, x, h, c)[0]

        def step(p, _):
            return p - 0.01 * jax.grad(loss)(p, x), None

        many = jax.numpy.stack([x, 2 * x])
        functions = {
            "scan": lambda: jax.lax.scan(step, params, None, length=9)[0],
            "vmap": lambda: jax.vmap(loss, in_axes=(None, 0))(params, many),
            "vmap of grad": lambda: jax.vmap(jax.grad(loss), in_axes=(None, 0))(params, many),
            "grad of vmap": lambda: jax.grad(lambda p: jax.vmap(loss, in_axes=(None, 0))(p, many).sum())(params),
            "checkpoint": lambda: jax.grad(jax.checkpoint(loss))(params, x),
        }
        rows = jax.numpy.atleast_2d(jax.jit(functions[way])())
        if way == "vmap" or platform == "host":
            return rows
        return np.stack([problem.op.move_params(row, "cpu") for row in rows])

    close(results("cuda"), results("host"), 1e-7)


def test_a_residual_that_is_used_twice_is_not_spoilt_by_the_first_backward(jax):
    problem = problem_of()
    inputs = inputs_of(jax, problem)

    @jax.jit
    def twice(*inputs):
        _, pullback = jax.vjp(lambda *a: loss_of(problem)(*a)[1], *inputs)
        dy = jax.numpy.asarray(problem.dy)
        return pullback(dy), pullback(2 * dy)

    first, second = twice(*inputs)
    for one, two in zip(first, second, strict=True):
        close(2 * one, two)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_every_dtype_goes_through(jax, dtype):
    problem = problem_of(dtype=dtype)
    _, output = jax.jit(loss_of(problem))(*inputs_of(jax, problem))
    expected = problem.forward().output
    assert output.dtype == expected.dtype
    close(output.astype("float64"), expected.astype("float64"), 2e-2)


def test_dropout_follows_from_the_position_or_from_states_that_a_loop_carries(jax):
    from pycudnnrnn.interop.jax import dropout_states, rnn

    problem = problem_of(dropout=0.5)
    inputs = inputs_of(jax, problem)
    first, second, again = (np.asarray(loss_of(problem, dropout_position=k)(*inputs)[1]) for k in (1, 2, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)

    def step(states, _=None):
        output, _, _, states = rnn(*inputs, spec=problem.op, dropout_states=states)
        return states, output

    states = dropout_states(problem.op)
    _, looped = jax.jit(lambda states: jax.lax.scan(step, states, length=3))(states)
    import cupy

    problem.op.set_dropout_state(DropoutState("cudnn", problem.spec.seed))
    params = problem.op.move_params(problem.params, "cuda")
    for output in looped:
        expected = problem.op(*map(cupy.asarray, (problem.x, problem.hx, problem.cx)), params)[0]
        assert np.array_equal(expected.get(), output)


def test_a_trace_for_the_cpu_that_runs_on_the_gpu_says_so(jax):
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match="this was traced for the CPU"):
        jax.block_until_ready(loss_of(problem_of(), platform="cpu")(*inputs_of(jax, problem_of())))


def test_an_ops_result_keeps_its_numbers_as_long_as_xla_reads_it(jax, cuda):
    """Its JAX array is gone, and CuPy fills what it gets of that size, while a long computation of XLA's goes on."""
    op = ops.CudnnGRU(1, 512, 512)
    params = jax.numpy.asarray(op.init_params(seed=1, device="cuda").get())
    x = jax.numpy.ones((100, 64, 512), "float32")
    large = jax.numpy.full((8192, 8192), 1 / 8192, "float32")

    @jax.jit
    def slow(y, large):
        product = jax.lax.fori_loop(0, 20, lambda _, m: m @ large, large)  # some 100 ms, before y is read
        return y * (product[0, 0] * 8192)

    def found(*, spoil):
        y = op(x, None, params)[0]
        size = y.size
        slowed = slow(y, large)
        del y
        if spoil:
            blocks = [cuda.device.xp.full(size, np.nan, np.float32) for _ in range(8)]
            cuda.device.xp.cuda.get_current_stream().synchronize()
            del blocks
        return np.asarray(slowed)

    expected = found(spoil=False)
    assert np.array_equal(found(spoil=True), expected)


ALONE = """
import os, sys
os.environ |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5"}
import jax
from pycudnnrnn import ops
from pycudnnrnn.interop.jax import rnn
op = ops.CudnnLSTM(2, 256, 256)
params, x = jax.numpy.asarray(op.init_params(seed=1, device="cuda").get()), jax.numpy.ones((100, 64, 256), "float32")
def step(p, _):
    return p - 1e-4 * jax.grad(lambda p: (rnn(p, x, spec=op)[0] ** 2).sum())(p), None
trained, _ = jax.jit(lambda p: jax.lax.scan(step, p, None, length=200))(params)
print("begun" if sys.argv[1] == "in flight" else jax.numpy.isfinite(trained).all())
"""


@pytest.mark.parametrize(("how", "expected"), [("preallocated", "True"), ("in flight", "begun")])
def test_a_process_trains_in_half_of_the_memory_and_may_leave_while_xla_works(jax, answer, how, expected):
    """If leaving fails, interop.jax needs an exit hook that waits for XLA once, and runs before JAX's own."""
    command = [sys.executable, "-c", ALONE, how]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    answer(f"jax in a process of its own, {how}", {"said": done.stdout, "code": done.returncode})
    assert (done.stdout.split()[-1:], done.returncode) == ([expected], 0), done.stderr
