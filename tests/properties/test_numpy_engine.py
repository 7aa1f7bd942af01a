"""What the NumPy engine may choose changes no number: how work is cut, and whose memory is read and written."""

from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.numpy_engine import NumpyEngine, calls
from pycudnnrnn.testing.strategies import problems, specs
from tests.gpu.prepared import ON_HOST, Prepared
from tests.helpers.axes import by_batch, by_time
from tests.helpers.examples import examples
from tests.helpers.results import assert_same


@examples(300)
@given(problems(specs(max_layers=2)), st.integers(1, 200))
def test_what_is_chosen_for_speed_changes_no_number(problem, block):
    cuts = mock.patch.multiple(calls, BLOCK_ROWS=block, BLOCK_ROWS_A_UNIT=0)
    with use_engine(NumpyEngine()), cuts:  # each engine remembers how it cut a batch
        cut = problem.results()
        inferred = problem.forward(is_training=False).output
    whole = problem.results()
    assert_same(cut, whole)
    np.testing.assert_allclose(inferred, whole["y"], rtol=0, atol=1e-11)


@examples(100)
@given(problems(specs(max_layers=2)))
def test_what_a_forward_keeps_is_not_touched_by_the_arrays_it_gave_out(problem):
    """Neither its results nor the states it was given share memory with what backward reads."""
    fwd = problem.forward()
    expected = fwd.backward(*problem.upstream(), retain=True)
    for array in (fwd.output_h, fwd.output_c, problem.hx, problem.cx):
        if array is not None:
            array[...] = np.nan
    grads = fwd.backward(*problem.upstream())
    assert np.array_equal(grads.params, expected.params)
    assert np.array_equal(grads.input, expected.input)


@examples(400)
@given(problems(specs(dtypes=["float64", "float16"])), st.booleans())
def test_a_plan_writes_the_ops_numbers_over_whatever_the_callers_buffers_held(problem, time_major):
    """Also into buffers with batch as their first axis, and past the ends of sequences."""
    turned = problem if time_major else by_batch(problem)
    buffers = Prepared(ON_HOST, problem=turned, device=None, time_major=time_major)
    buffers.step()
    results = buffers.results(ON_HOST)
    assert_same(results if time_major else by_time(results), problem.results())
