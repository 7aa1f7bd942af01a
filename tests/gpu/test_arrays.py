"""torch's and JAX's own CUDA arrays: in and out, on the right stream, alive while they are needed."""

import gc

import numpy as np
import pytest

from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.numbers import lstm, relaid, run_numpy, worst
from tests.gpu.prepared import OnTorch

NAMES = ("x", "hx", "cx", "params", "dy", "dhy", "dcy")


@pytest.fixture
def library(cuda, request):
    if cuda.on_shim:
        pytest.skip("torch and JAX need a GPU to have CUDA arrays; tests/cudnn_engine/test_arrays.py has stand-ins")
    module = pytest.importorskip(request.param)
    if not (module.cuda.is_available() if request.param == "torch" else module.default_backend() == "gpu"):
        pytest.skip(f"this {request.param} has no CUDA")
    return module


def step(problem, put):
    """Run a training step on another library's arrays; return its output, and the gradient of params."""
    arrays = [put(getattr(relaid(problem), name)) for name in NAMES]
    fwd = problem.op.forward(*arrays[:4])
    output, gradient = fwd.output, fwd.backward(*arrays[4:]).params
    assert type(output) is type(gradient) is type(arrays[0])
    assert output.dtype == arrays[0].dtype
    return output * 1, gradient * 1


def check(problem, output, gradient):
    results = {"y": output, "dparams": problem.op.move_params(gradient, "cpu")}
    assert worst(results, run_numpy(problem), problem)[0] <= 1


@pytest.mark.parametrize("library", ["torch"], indirect=True)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_torch_tensors_in_torch_tensors_out_on_torchs_stream(library, dtype):
    problem, side = make_problem(lstm(dtype), 7, 5, None, seed=3), library.cuda.Stream()
    with library.cuda.stream(side):
        library.cuda._sleep(200_000_000)  # what is read is only there once this stream gets to it
        output, gradient = step(problem, OnTorch.put)
    side.synchronize()
    check(problem, OnTorch.get(output), gradient)


@pytest.mark.parametrize("library", ["torch"], indirect=True)
def test_torch_tensors_freed_at_once_are_still_read_and_results_outlive_the_forward(library):
    problem = make_problem(lstm("float32", 256), 200, 64, None, seed=3)
    expected, problem = problem.forward().output, relaid(problem)
    for _ in range(20):
        output = problem.op.forward(*(OnTorch.put(getattr(problem, name)) for name in NAMES[:4])).output
        gc.collect()
        _ = [library.full_like(output, float("nan")) for _ in range(8)]
        assert np.allclose(OnTorch.get(output), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("library", ["jax"], indirect=True)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_jax_arrays_in_jax_arrays_out(library, dtype):
    problem = make_problem(lstm(dtype), 7, 5, None, seed=3)
    with library.enable_x64(True):
        output, gradient = step(problem, lambda array: library.numpy.array(array) * 1)
    gc.collect()
    assert output.devices() == {library.devices()[0]}
    check(problem, np.asarray(output), gradient)
