"""`op.prepare`: one kind of call on the caller's buffers, on both engines."""

import contextlib
import itertools
import types

import cupy
import numpy as np
import pytest
from hypothesis import given

from pycudnnrnn import ops
from pycudnnrnn.errors import ArgumentError, StateError
from pycudnnrnn.testing.strategies import make_problem, problems, specs
from tests.gpu.numbers import differ
from tests.gpu.prepared import ON_HOST, Prepared
from tests.helpers.examples import examples
from tests.stand_in.host_device import Stream, host


def on_cuda(device, problem):
    return Prepared(types.SimpleNamespace(put=device.from_host, get=host), problem=problem, device="cuda:0")


@examples(200)
@given(problems(specs(dtypes=["float32", "float64", "float16"]), least_length=1))
def test_a_cudnn_plan_gives_the_numpy_engines_numbers_again_and_again(shim, device, problem):
    """properties/test_numpy_engine.py has the NumPy engine's."""
    buffers = on_cuda(device, problem)
    buffers.step()
    shim.calls.clear()
    allocations = len(device.allocations)
    buffers.step()
    assert not differ(buffers.results(types.SimpleNamespace(get=host)), problem.results())
    assert len(device.allocations) == allocations, "a prepared call allocates nothing"
    assert len(shim.calls) == 3, "the passes: the stream is as it was"


def test_a_plans_call_without_states_does_not_read_those_of_the_call_before(shim, device):
    problem = make_problem(ops.CudnnLSTM(2, 4, 6, dtype="float64"), 4, 4, None, seed=1)
    buffers = on_cuda(device, problem)
    buffers.forward()
    buffers.hx = buffers.cx = None
    buffers.forward()
    expected = problem.op.forward(problem.x, None, None, problem.params).output
    np.testing.assert_allclose(host(buffers.y), expected, rtol=1e-12, atol=1e-12)


def test_a_plan_belongs_to_the_stream_of_its_first_call(shim, device):
    op = ops.CudnnGRU(1, 4, 3)
    problem = make_problem(op, 3, 2, None, seed=1)
    buffers, home, first, other = on_cuda(device, problem), device.current, Stream(0x10), Stream(0x20)
    device.current = first
    buffers.step()
    assert device.waits == [(first, home)], "the workspace was taken there when the plan was prepared"
    device.current, launched = other, len(shim.launches)
    text = "this plan belongs to stream 0x10, .* current stream is 0x20: prepare a plan for each stream"
    with pytest.raises(StateError, match=text):
        buffers.forward()
    device.current = Stream(0x10)  # another object for the same stream
    buffers.forward()
    assert len(shim.launches) == launched + 1


LSTM = ops.CudnnLSTM(1, 3, 4, dtype="float64", algo="auto", math_type="default")


def part(device, good):
    """Same strides, same number of elements, not contiguous."""
    whole = device.empty((2 * good.shape[0], *good.shape[1:]), good.dtype)
    return whole[:, : good.shape[1] // 2] if good.ndim == 3 else whole[::2]


def misaligned(device, good):
    raw = device.empty((good.nbytes + 8,), np.dtype(np.uint8))
    return cupy.ndarray(good.shape, good.dtype, memptr=raw.data + 8)


def elsewhere(_, good):
    memory = cupy.cuda.UnownedMemory(good.data.ptr, good.nbytes, good, device_id=1)
    return cupy.ndarray(good.shape, good.dtype, memptr=cupy.cuda.MemoryPointer(memory, 0))


DEFECTS = {
    "missing": lambda device, good: None,
    "shape": lambda device, good: device.from_host(host(good)[..., :-1]),
    "dtype": lambda device, good: good.view({1: "i1", 8: "i8"}[good.itemsize]),
    "host": lambda device, good: host(good).copy(),
    "strided": lambda device, good: device.empty((*good.shape[:-1], 2 * good.shape[-1]), good.dtype)[..., ::2],
    "a part with the strides of the whole": part,
    "misaligned": misaligned,
    "on another device": elsewhere,
}
PASSES = {
    "forward": ("x", "hx", "cx", "params", "y", "hy", "cy", "reserve"),
    "backward_data": ("params", "y", "dy", "hx", "dhy", "cx", "dcy", "dx", "dhx", "dcx", "reserve"),
    "backward_weights": ("x", "hx", "y", "d_params", "reserve"),
}
NULLABLE = {"hx", "cx", "hy", "cy", "dhx", "dcx"}


@pytest.mark.parametrize("defect", DEFECTS)
def test_each_bad_array_of_each_cudnn_pass_is_refused_by_name_before_anything_crosses(shim, device, defect):
    """At the first call, and where the other arrays are known."""
    problem = make_problem(ops.CudnnLSTM(2, 4, 6, dtype="float64", num_proj=2), 4, 4, None, seed=1)
    buffers = on_cuda(device, problem)
    for name in [*PASSES, *PASSES]:
        for array in PASSES[name]:
            if defect == "missing" and array in NULLABLE:
                continue
            good, before = getattr(buffers, array), len(shim.launches)
            setattr(buffers, array, DEFECTS[defect](device, good))
            with pytest.raises(ArgumentError) as caught:
                getattr(buffers, name)()
            setattr(buffers, array, good)
            assert (caught.value.argument, len(shim.launches)) == (array, before)
        getattr(buffers, name)()


@pytest.mark.parametrize("name", PASSES)
def test_nothing_is_written_where_another_array_of_the_call_is(name):
    b = Prepared(ON_HOST, problem=make_problem(LSTM, 5, 2, None, seed=1), device=None)
    b.step()
    written = {"y", "hy", "cy", "dx", "dhx", "dcx", "d_params", "reserve"} - ({"y"} if name != "forward" else set())
    for array, other in itertools.permutations(PASSES[name], 2):
        first, second = getattr(b, array), getattr(b, other)
        for shared in (0, 8):
            memory = np.zeros(first.nbytes + second.nbytes - shared, np.uint8)
            for key, good, part in ((array, first, memory[: first.nbytes]), (other, second, memory[-second.nbytes :])):
                part[:] = good.reshape(-1).view(np.uint8)
                setattr(b, key, part.view(good.dtype).reshape(good.shape))
            refused = shared and written & {array, other}
            with pytest.raises(ArgumentError, match="memory of its own") if refused else contextlib.nullcontext():
                getattr(b, name)()
        setattr(b, array, first)
        setattr(b, other, second)


def test_what_may_be_null_may_be_none_and_what_may_not_is_named(device):
    b = Prepared(ON_HOST, problem=make_problem(LSTM, 5, 2, None, seed=1), device=None)
    plan = b.plan
    plan.forward(b.params, b.x, None, None, b.y, None, None, b.reserve)

    def backward_data(dhy=b.dhy, dcy=b.dcy):
        plan.backward_data(b.params, b.y, b.dy, None, dhy, None, None, dcy, None, b.dx, b.reserve)

    backward_data()
    plan.backward_weights(b.x, None, b.y, b.d_params, b.reserve)
    expected = LSTM.forward(b.x, None, None, b.params).backward(b.dy, b.dhy, b.dcy).params
    assert np.array_equal(expected, b.d_params)
    x, inference = device.from_host(b.x), LSTM.prepare(5, 2)
    inference.forward(b.params, b.x, None, None, b.y, None, None, b.reserve)
    refused = [
        (lambda: backward_data(dhy=None), "dhy"),
        (lambda: backward_data(dcy=None), "dcy"),
        (lambda: plan.forward(b.params, b.x, None, None, b.y, None, None), "reserve"),
        (lambda: inference.backward_weights(b.x, None, b.y, b.d_params, b.reserve), "is_training"),
        (lambda: plan.forward(b.params, x, None, None, b.y, None, None, b.reserve), "one on cuda:0.* on cpu"),
    ]
    for call, text in refused:
        with pytest.raises(ArgumentError, match=text):
            call()


def test_the_dynamic_algorithm_has_nvrtc_loaded_before_it_is_built(shim, monkeypatch):
    """CuDNN compiles there, and finds NVRTC's builtins only where they are loaded."""
    from pycudnnrnn.engines.cudnn import native

    builds = []
    monkeypatch.setattr(native, "load_nvrtc", lambda: builds.append(shim.counts["cudnnBuildRNNDynamic"]))
    ops.CudnnLSTM(1, 8, 8, algo="standard").prepare(3, 2, device="cuda")
    assert builds == []
    ops.CudnnLSTM(1, 8, 8, algo="persist_dynamic").prepare(3, 2, device="cuda")
    assert builds == [0]
    assert shim.counts["cudnnBuildRNNDynamic"] == 1
