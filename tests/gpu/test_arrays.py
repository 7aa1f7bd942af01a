"""torch's and JAX's own CUDA arrays: in and out without a copy, on the right stream, alive while they are needed."""

import gc

import numpy as np
import pytest

from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.numbers import DTYPES, lstm, relaid


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


def near(result, expected, dtype):
    tolerance = {"float16": 1.5e-2, "bfloat16": 1e-1, "float32": 1e-5, "float64": 1e-12}[dtype]
    return np.allclose(result.astype("f8"), expected.astype("f8"), rtol=tolerance, atol=tolerance)


def call(problem, put):
    arrays = [put(getattr(relaid(problem), name)) for name in ("x", "hx", "cx", "params", "dy", "dhy", "dcy")]
    fwd = problem.op.forward(*arrays[:4])
    return arrays, fwd, fwd.backward(*arrays[4:])


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_tensors_in_torch_tensors_out_on_torchs_stream(torch, dtype):
    problem = problem_of(dtype)
    expected = problem.forward()
    gradients = expected.backward(*problem.upstream())
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)  # what is read is only there once this stream gets to it
        arrays, fwd, grads = call(problem, lambda a: on_torch(torch, a))
        output, d_params = fwd.output * 1, grads.params * 1
    side.synchronize()
    assert output.is_cuda
    assert output.dtype == arrays[0].dtype
    assert near(from_torch(torch, output), expected.output, dtype)
    assert near(problem.op.move_params(d_params, "cpu"), gradients.params, dtype)


def test_torch_tensors_freed_at_once_are_still_read_and_results_outlive_the_forward(torch):
    problem = problem_of("float32", T=200, B=64, units=256)
    expected = problem.forward().output
    problem = relaid(problem)
    for _ in range(20):
        fwd = problem.op.forward(*(on_torch(torch, getattr(problem, n)) for n in ("x", "hx", "cx", "params")))
        output = fwd.output
        del fwd
        gc.collect()
        _ = [torch.full_like(output, float("nan")) for _ in range(8)]
        assert near(from_torch(torch, output), expected, "float32")


@pytest.mark.parametrize("dtype", DTYPES)
def test_jax_arrays_in_jax_arrays_out(jax, dtype):
    problem = problem_of(dtype)
    expected = problem.forward()
    gradients = expected.backward(*problem.upstream())
    with jax.enable_x64(True):
        arrays, fwd, grads = call(problem, lambda a: jax.numpy.array(a) * 1)
    del arrays
    gc.collect()
    assert isinstance(fwd.output, jax.Array)
    assert fwd.output.dtype == problem.x.dtype
    assert fwd.output.devices() == {jax.devices()[0]}
    assert near(np.asarray(fwd.output), expected.output, dtype)
    assert near(problem.op.move_params(grads.params, "cpu"), gradients.params, dtype)
