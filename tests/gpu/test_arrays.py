"""torch's and JAX's own CUDA arrays: in and out without a copy, on the right stream, alive while they are needed."""

import gc

import numpy as np
import pytest

from pycudnnrnn import CudnnLSTM
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.numbers import DTYPES, lstm


@pytest.fixture(autouse=True)
def _on_a_gpu(cuda):
    if cuda.on_shim:
        pytest.skip("torch and JAX need a GPU to have CUDA arrays; tests/cudnn_engine/test_arrays.py has stand-ins")


@pytest.fixture
def torch():
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return module


@pytest.fixture
def jax():
    module = pytest.importorskip("jax")
    if module.default_backend() != "gpu":
        pytest.skip("this JAX has no CUDA")
    return module


def problem_of(dtype, T=7, B=5, units=24):
    return make_problem(lstm(dtype, units), T, B, None, seed=3)


def on_torch(torch, array):
    bits = torch.from_numpy(np.ascontiguousarray(array.view("i2") if array.dtype.name == "bfloat16" else array)).cuda()
    return bits.view(torch.bfloat16) if array.dtype.name == "bfloat16" else bits


def from_torch(torch, tensor):
    return tensor.to(torch.float64).cpu().numpy()


def near(found, expected, dtype):
    tolerance = {"float16": 1.5e-2, "bfloat16": 1e-1, "float32": 1e-5, "float64": 1e-12}[dtype]
    return np.allclose(found, expected.astype("f8"), rtol=tolerance, atol=tolerance)


def call(problem, put):
    given = [put(getattr(problem, name)) for name in ("x", "hx", "cx", "params", "dy", "dhy", "dcy")]
    fwd = problem.op.forward(*given[:4])
    return given, fwd, fwd.backward(*given[4:])


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_tensors_in_torch_tensors_out_on_torchs_stream(torch, dtype):
    problem = problem_of(dtype)
    expected = problem.forward()
    gradients = expected.backward(*problem.upstream())
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)  # what is read is only there once this stream gets to it
        given, fwd, grads = call(problem, lambda a: on_torch(torch, a))
        output, d_params = fwd.output * 1, grads.params * 1
    side.synchronize()
    assert output.is_cuda
    assert output.dtype == given[0].dtype
    assert near(from_torch(torch, output), expected.output, dtype)
    assert near(from_torch(torch, d_params), gradients.params, dtype)


def test_a_torch_buffer_is_written_in_place(torch):
    problem = problem_of("float32")
    out = torch.zeros(problem.op.params_size("cuda"), device="cuda")
    fwd = problem.op.forward(*(on_torch(torch, getattr(problem, n)) for n in ("x", "hx", "cx", "params")))
    assert fwd.backward(on_torch(torch, problem.dy), out=out).params is out
    assert near(from_torch(torch, out), problem.forward().backward(problem.dy).params, "float32")


def test_torch_tensors_freed_at_once_are_still_read_and_results_outlive_the_forward(torch):
    problem = problem_of("float32", T=200, B=64, units=256)
    expected = problem.forward().output
    for _ in range(20):
        fwd = problem.op.forward(*(on_torch(torch, getattr(problem, n)) for n in ("x", "hx", "cx", "params")))
        output = fwd.output
        del fwd
        gc.collect()
        _ = [torch.full_like(output, float("nan")) for _ in range(8)]
        assert near(from_torch(torch, output), expected, "float32")


def test_a_layer_shares_its_buffer_with_calls_of_torch_tensors_in_stream_order(torch, cuda):
    layer, twin = CudnnLSTM(1, 64, seed=1, device="cuda"), CudnnLSTM(1, 64, seed=1)
    x = np.random.default_rng(0).normal(size=(50, 16, 32)).astype("f4")
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(5):
            ours, theirs = layer.forward(on_torch(torch, x)), twin.forward(x)
            ones = np.ones_like(theirs.outputs)
            gradient = ours.backward(on_torch(torch, ones)).params
            layer.params -= 0.01 * cuda.device.xp.from_dlpack(gradient)
            twin.params -= 0.01 * theirs.backward(ones).params
    assert np.allclose(cuda.get(layer.params), twin.params, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_jax_arrays_in_jax_arrays_out(jax, dtype):
    problem = problem_of(dtype)
    expected = problem.forward()
    gradients = expected.backward(*problem.upstream())
    with jax.enable_x64(True):
        given, fwd, grads = call(problem, lambda a: jax.numpy.array(a) * 1)
    del given
    gc.collect()
    assert isinstance(fwd.output, jax.Array)
    assert fwd.output.dtype == problem.x.dtype
    assert fwd.output.devices() == {jax.devices()[0]}
    assert near(np.asarray(fwd.output).astype("f8"), expected.output, dtype)
    assert near(np.asarray(grads.params).astype("f8"), gradients.params, dtype)
