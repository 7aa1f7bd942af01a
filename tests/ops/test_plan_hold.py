"""What a plan read of params may be used again only as long as the caller said so, and only for that object."""

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.errors import ArgumentError

T, B, I, U = 3, 2, 4, 5


def _plan(dtype="float16", **keywords):
    op = ops.CudnnLSTM(1, U, I, dtype=dtype)
    return op, op.prepare(T, B, **keywords)


def _run(plan, params, reserve=None):
    dtype = params.dtype
    x = np.random.default_rng(0).normal(size=(T, B, I)).astype(dtype)
    y, h, c = np.empty((T, B, U), dtype), np.empty((1, B, U), dtype), np.empty((1, B, U), dtype)
    plan.forward(params, x, None, None, y, h, c, reserve)
    return y


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_held_buffer_gives_the_same_numbers_as_one_that_is_read_at_each_call(dtype):
    op, plan = _plan(dtype)
    params = op.init_params(seed=1)
    expected = _run(plan, params)
    plan.hold(params)
    assert np.array_equal(_run(plan, params), expected)
    assert np.array_equal(_run(plan, params), expected)


def test_a_changed_buffer_counts_once_it_is_held_again():
    op, plan = _plan()
    params, other = op.init_params(seed=1), op.init_params(seed=2)
    plan.hold(params)
    before = _run(plan, params)
    params[:] = other
    plan.hold(params)
    assert np.array_equal(_run(plan, params), _run(plan, other))
    assert not np.array_equal(_run(plan, params), before)


def test_only_a_params_buffer_of_the_plan_can_be_held():
    _, plan = _plan()
    with pytest.raises(ArgumentError, match="params"):
        plan.hold(np.zeros(3, np.float16))
    with pytest.raises(ArgumentError, match="params"):
        _run(plan, np.zeros(3, np.float16))
