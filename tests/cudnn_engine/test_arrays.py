"""CUDA arrays of several libraries on the CUDA path: kinds, devices, streams.

torch and JAX find no GPU here. What stands for their CUDA arrays is real tensors over the shim's memory that name a
CUDA device, and an array class with the few members of JAX's that are asked; the ways between them and CuPy are given
in DLPack's place. So this shows what is asked of whom, and on which stream; tests/gpu/test_arrays.py asks the libraries
themselves.
"""

import dataclasses
import sys
import types

import cupy
import jax
import ml_dtypes
import numpy as np
import pytest
import torch

from pycudnnrnn.errors import ArgumentError
from tests.helpers import kinds
from tests.stand_in.host_cupy import use_host_cupy
from tests.stand_in.host_device import HostDevice, host, imported

TORCH_STREAM = 0x7780  # no address that `host_device.Stream` counts to
LENGTHS = (5, 2, 1)
NAMES = ("x", "hx", "cx", "params", "dy", "dhy", "dcy")


class CudaTensor(torch.Tensor):
    """A tensor over host memory that says it is on a CUDA device."""

    index = 0

    def __dlpack_device__(self):
        return 2, self.index


class JaxCudaArray:
    """What is asked of a JAX array, around a CuPy one; a copy in JAX's own memory is not there at once."""

    def __init__(self, array, memory="not JAX's"):
        self.array, self.dtype, self.shape, self.ndim = array, array.dtype, array.shape, array.ndim
        self.memory = memory

    def __dlpack_device__(self):
        return 2, 0

    def is_deleted(self):
        return False

    def devices(self):
        return {"cuda:0"}

    def view(self, dtype):
        return JaxCudaArray(self.array.view(dtype), self.memory)

    def copied(self):
        return JaxCudaArray(HostDevice().from_host(host(self.array)), "JAX's, on its way")

    def done(self):
        assert self.memory == "JAX's, on its way"
        self.memory = "JAX's"
        return self


def tensor_over(array):
    return torch.from_numpy(host(array)).as_subclass(CudaTensor)


@pytest.fixture(autouse=True)
def _ways_between_the_libraries(shim, monkeypatch):
    fake = types.SimpleNamespace(
        Array=JaxCudaArray,
        core=types.SimpleNamespace(Tracer=()),
        enable_x64=jax.enable_x64,
        numpy=types.SimpleNamespace(from_dlpack=JaxCudaArray, copy=JaxCudaArray.copied, bfloat16=ml_dtypes.bfloat16),
        block_until_ready=JaxCudaArray.done,
    )
    monkeypatch.setattr(cupy, "from_dlpack", lambda a: a.array if isinstance(a, JaxCudaArray) else imported(a))
    monkeypatch.setattr(torch, "from_dlpack", tensor_over)
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda index: types.SimpleNamespace(cuda_stream=TORCH_STREAM + index)
    )
    monkeypatch.setitem(sys.modules, "jax", fake)


def put(device, kind, array):
    if kind == "torch" and array.dtype == ml_dtypes.bfloat16:
        return tensor_over(device.from_host(array.view("i2"))).view(torch.bfloat16)
    return {"cupy": lambda native: native, "torch": tensor_over, "jax": JaxCudaArray}[kind](device.from_host(array))


def get(array):
    if isinstance(array, torch.Tensor):
        return kinds.get(array.as_subclass(torch.Tensor))
    return host(array.array if isinstance(array, JaxCudaArray) else array)


def is_a(kind, array):
    return isinstance(array, {"cupy": cupy.ndarray, "torch": CudaTensor, "jax": JaxCudaArray}[kind])


def run(device, problem, kind, others=None, only=NAMES):
    """Forward and backward: what came out, by name. Those of `only` are of kind `others`."""
    arrays = {name: put(device, others if others and name in only else kind, getattr(problem, name)) for name in NAMES}
    return dataclasses.replace(problem, **arrays).results()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("kind", ["cupy", "torch", "jax"])
def test_results_and_gradients_are_in_the_callers_kind_over_the_engines_memory(device, kind, dtype):
    """But for JAX's: it gives back another's memory when its array is gone, whatever XLA still reads there."""
    problem = kinds.problem_of(dtype, LENGTHS)
    results, expected = run(device, problem, kind), problem.results()
    memory = {(m.address, m.address + m.nbytes) for m in device.allocations}
    for name, array in results.items():
        assert is_a(kind, array), name
        assert get(array).dtype == problem.spec.dtype.numpy, name
        if kind == "jax":
            assert array.memory == "JAX's", name
        else:
            assert any(first <= get(array).ctypes.data < last for first, last in memory), f"{name} was copied"
    for name, array in expected.items():
        assert get(results[name]).tobytes() == array.tobytes(), name


STREAMS = {
    "cupy": ("cupy", "cupy", None, False),
    "torch": ("torch", "torch", TORCH_STREAM, False),
    "torch with cupy": ("torch", "cupy", TORCH_STREAM, False),
    "jax": ("jax", "jax", None, True),
    "cupy with jax": ("cupy", "jax", None, True),
}


@pytest.mark.parametrize("only", ["params", "dy"])
@pytest.mark.parametrize("case", STREAMS)
def test_work_is_on_the_stream_of_input_datas_library_and_in_order_with_the_others(shim, device, case, only):
    kind, others, address, waited_for = STREAMS[case]
    cupys = device.current
    waited_for = waited_for and (3 if kind == "jax" or only == "params" else 1)
    run(device, kinds.problem_of("float32", LENGTHS), kind, others, only=(only,))
    main = cupys.ptr if address is None else address
    assert {stream for _, _, stream, _ in shim.launches} == {main}
    assert device.current is cupys, "CuPy's own current stream is back"
    waits = {(waiting.ptr, awaited.ptr) for waiting, awaited in device.waits}
    if {kind, others} == {"torch", "cupy"}:
        assert waits == {(TORCH_STREAM, cupys.ptr), (cupys.ptr, TORCH_STREAM)}
        order = [waiting.ptr for waiting, _ in device.waits]
        assert order[0] == main, "first the work waits for what is there"
        assert order[-1] != main, "then what comes waits for the work"
    else:
        assert not waits
    assert [stream.ptr for stream in device.synchronized] == [main] * waited_for


def test_a_graph_is_captured_after_torchs_work_and_replayed_on_its_stream_at_each_replay(shim, device, monkeypatch):
    problem, cupys = kinds.problem_of("float32", LENGTHS), device.current
    plan = problem.op.prepare(5, 3, sequence_lengths=problem.lengths, device="cuda:0")
    graph = plan.capture(put(device, "torch", problem.params))
    before, after = [(waiting.ptr, awaited.ptr) for waiting, awaited in device.waits]
    stream = before[0]
    assert (before, after) == ((stream, TORCH_STREAM), (TORCH_STREAM, stream))
    assert stream not in {TORCH_STREAM, cupys.ptr}, "a graph is captured on a stream of its own"
    for name in ("x", "hx", "cx"):
        get(getattr(graph, name))[...] = getattr(problem, name)
    for address in (0x10, 0, 0x20):
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _, a=address: types.SimpleNamespace(cuda_stream=a))
        shim.launches.clear()
        graph.replay()
        assert [stream for _, _, stream, _ in shim.launches] == [address]
    assert is_a("torch", graph.y)
    assert np.array_equal(get(graph.y), problem.forward(is_training=False).output)


def test_params_that_move_are_ready_for_cupys_stream(device):
    use_host_cupy(device)
    problem = kinds.problem_of("float32", LENGTHS)
    moved = problem.op.move_params(put(device, "torch", problem.params), "cuda:0")
    assert np.array_equal(host(moved), problem.params)
    assert [(waiting.ptr, awaited.ptr) for waiting, awaited in device.waits][-1] == (device.current.ptr, TORCH_STREAM)


def test_arrays_on_two_devices_are_refused_with_both_named(device):
    problem = kinds.problem_of("float32", LENGTHS)
    x, hx, cx, params = (put(device, "torch", getattr(problem, name)) for name in NAMES[:4])
    with pytest.raises(ArgumentError, match="Invalid params: one on cpu, expecting an array on cuda:0"):
        problem.op(x, hx, cx, problem.params)
    hx.index = 1
    with pytest.raises(ArgumentError, match="Invalid input_h: one on cuda:1, expecting an array on cuda:0"):
        problem.op(x, hx, cx, params)
