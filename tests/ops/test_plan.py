"""A plan checks the same arrays once, reads them as they are at each call, and holds params if the caller says so."""

import numpy as np
import pytest
import torch

from pycudnnrnn import ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.prepared import ON_HOST, Prepared
from tests.helpers.kinds import ARRAYS
from tests.helpers.recorded import RecordingEngine
from tests.helpers.results import assert_same

LENGTHS = [3, 1]


def problems(dtype="float64", name="CudnnLSTM"):
    op = getattr(ops, name)(2, 3, 4, dtype=dtype)
    return [make_problem(op, 3, 2, LENGTHS, seed=seed) for seed in (1, 2)]


def prepared(problem):
    return Prepared(ON_HOST, problem=problem, device=None)


def step(buffers):
    buffers.step()
    return buffers.results(ON_HOST)


@pytest.mark.parametrize("name", ["CudnnLSTM", "CudnnGRU"])
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_the_same_arrays_are_read_and_written_again_as_they_are_then(name, dtype):
    one, two = problems(dtype, name)
    buffers = prepared(one)
    for problem in (one, two, one):
        for each in ARRAYS:
            if (array := getattr(buffers, each)) is not None:
                array[...] = getattr(problem, each)
        assert_same(step(buffers), problem.results())


def test_the_same_arrays_are_bound_once_and_others_are_checked():
    one, two = problems()
    with use_engine(engine := RecordingEngine()):
        buffers = prepared(one)
    for _ in range(3):
        expected = step(buffers)
    assert engine.binds == 3
    x, hy = buffers.x, buffers.hy
    buffers.x = x.astype("float32")
    with pytest.raises(ArgumentError, match="Invalid x dtype: float32, expecting float64"):
        buffers.forward()
    buffers.x, buffers.hy = x, buffers.hx
    with pytest.raises(ArgumentError, match="Invalid hy: memory that hx has, too"):
        buffers.forward()
    buffers.hy = hy
    assert_same(step(buffers), expected)
    buffers.x = two.x
    assert not np.array_equal(step(buffers)["y"], expected["y"])


def test_a_tensor_is_read_where_its_memory_is_now():
    one, two = problems()
    plan = one.op.prepare(3, 2, sequence_lengths=LENGTHS)
    arrays = [torch.from_numpy(array.copy()) for array in (one.params, one.x, one.hx, one.cx, one.dy, one.hx, one.cx)]
    params, x, hx, cx, y, *_ = arrays
    for problem in (one, two):
        for tensor, array in ((params, problem.params), (x, problem.x), (hx, problem.hx), (cx, problem.cx)):
            tensor.data = torch.from_numpy(array.copy())
        plan.forward(*arrays)
        np.testing.assert_array_equal(y.numpy(), problem.results()["y"])


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_held_params_run_as_they_were_until_they_are_held_again_and_others_as_they_are(dtype):
    one, two = problems(dtype)
    buffers = prepared(one)
    expected, params = step(buffers), buffers.params
    buffers.plan.hold(params)
    params[:] = two.params
    held = step(buffers)
    assert (dtype == "float64") or all(np.array_equal(held[name], expected[name]) for name in held)
    buffers.params = two.params
    others = step(buffers)
    assert not np.array_equal(others["y"], expected["y"])
    buffers.params = params
    for again in (params, None):
        buffers.plan.hold(again)
        assert_same(step(buffers), others)


@pytest.mark.parametrize("name", ["reserve", "dx"])
def test_memory_that_products_cannot_be_written_to_is_refused(name):
    buffers = prepared(problems("float32")[0])
    array = getattr(buffers, name)
    memory = np.zeros(array.nbytes + 1, np.uint8)[1:]
    setattr(buffers, name, memory.view(array.dtype).reshape(array.shape))
    with pytest.raises(ArgumentError, match=f"Invalid {name}: .*memory aligned to 4 bytes"):
        buffers.step()
