"""What the NumPy engine may choose changes no number: how work is cut, and whose memory is read and written."""

from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.numpy_engine import NumpyEngine, calls
from pycudnnrnn.testing.strategies import problems, specs
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

    def turned(array):
        return array if time_major else np.ascontiguousarray(array.swapaxes(0, 1))

    (T, B, _), spec = problem.x.shape, problem.spec
    plan = problem.op.prepare(T, B, is_training=True, sequence_lengths=problem.lengths, time_major=time_major)
    cell = spec.has_cell_state
    hx, cx, dhy, dcy = problem.hx, problem.cx if cell else None, problem.dhy, problem.dcy if cell else None
    x, dy = turned(problem.x), turned(problem.dy)
    y, hy, dhx, dx, dparams = (np.full_like(a, 7) for a in (dy, hx, hx, x, problem.params))
    cy, dcx = (np.full_like(cx, 7) if cell else None for _ in range(2))
    reserve = np.empty(plan.reserve_nbytes, np.uint8)
    plan.forward(problem.params, x, hx, cx, y, hy, cy, reserve)
    plan.backward_data(problem.params, y, dy, hx, dhy, dhx, cx, dcy, dcx, dx, reserve)
    plan.backward_weights(x, hx, y, dparams, reserve)
    results = {"y": turned(y), "hy": hy, "dx": turned(dx), "dhx": dhx, "dparams": dparams}
    assert_same(results | ({"cy": cy, "dcx": dcx} if cell else {}), problem.results())
