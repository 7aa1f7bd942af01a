"""What a plan read of params may be used again only as long as the caller said so, and only for that object."""

import numpy as np
import pytest

from pycudnnrnn import ops

T, B, I, U = 3, 2, 4, 5


def run(plan, params):
    dtype = params.dtype
    x = np.random.default_rng(0).normal(size=(T, B, I)).astype(dtype)
    y, h, c = np.empty((T, B, U), dtype), np.empty((1, B, U), dtype), np.empty((1, B, U), dtype)
    plan.forward(params, x, None, None, y, h, c)
    return y


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_held_buffer_gives_the_numbers_of_one_that_is_read_at_each_call_once_it_is_held_again(dtype):
    op = ops.CudnnLSTM(1, U, I, dtype=dtype)
    plan, params, other = op.prepare(T, B), op.init_params(seed=1), op.init_params(seed=2)
    expected, others = run(plan, params), run(plan, other)
    plan.hold(params)
    assert np.array_equal(run(plan, params), expected)
    assert np.array_equal(run(plan, other), others)
    params[:] = other
    plan.hold(params)
    assert np.array_equal(run(plan, params), others)
    assert not np.array_equal(others, expected)
