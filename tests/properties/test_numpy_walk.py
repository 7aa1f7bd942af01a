"""The NumPy engine's walk: how steps are cut for its caches changes no number, and every step is met once, in order."""

from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn.engines.numpy_engine import cells, gradients, tape
from pycudnnrnn.engines.numpy_engine.compiled import cells as compiled
from pycudnnrnn.engines.numpy_engine.tape import runs
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.testing.strategies import problems, sequence_lengths, specs
from tests.helpers.examples import examples
from tests.helpers.results import assert_same

batches = st.tuples(st.integers(1, 7), st.integers(1, 6)).flatmap(
    lambda TB: st.tuples(st.just(TB[0]), st.just(TB[1]), sequence_lengths(*TB))
)


@examples(300)
@given(
    problems(specs(max_layers=2)), st.integers(1, 200), st.integers(1, 200), st.integers(1, 9), st.integers(1, 9),
    st.integers(1, 40), st.sampled_from([0, 1 << 30]),
)  # fmt: skip
def test_what_is_chosen_for_speed_changes_no_number(problem, block, factor, spread, column, packed, large):
    with (
        mock.patch.object(gradients, "BLOCK_ROWS", block),
        mock.patch.object(gradients, "BLOCK_ROWS_A_UNIT", 0),
        mock.patch.object(cells, "FACTOR_ELEMENTS", factor),
        mock.patch.object(tape, "SPREAD_STEPS", spread),
        mock.patch.object(cells, "COLUMN_STEPS", column),
        mock.patch.object(compiled, "PACKED_ROWS", packed),
        mock.patch.object(compiled, "LARGE_NBYTES", large),
    ):
        cut = problem.results()
        inferred = problem.forward(is_training=False).output
    whole = problem.results()
    assert_same(cut, whole)
    np.testing.assert_allclose(inferred, whole["y"], rtol=0, atol=1e-11)


@examples(500)
@given(batches, st.integers(1, 20), st.booleans())
def test_runs_meet_each_step_once_in_the_order_of_the_walk(batch, most_rows, backwards):
    T, B, lengths = batch
    steps = Schedule(T, B, lengths).steps[:: -1 if backwards else 1]
    width = 2
    rows = np.arange(sum(last - first for first, last in steps) * width).reshape(-1, width)
    across, blocks = [], []
    for run in runs(steps, most_rows):
        assert run.rows.stop - run.rows.start <= max(most_rows, run.sequences)
        across += [step.T.tolist() for step in run.across(rows)]
        blocks += [step.reshape(-1).tolist() for step in run.blocks(rows)]
    assert across == [rows[first:last].tolist() for first, last in steps]
    assert blocks == [rows[first:last].reshape(-1).tolist() for first, last in steps]


@examples(100)
@given(problems(specs(max_layers=2)))
def test_what_a_forward_keeps_is_not_touched_by_the_arrays_it_gave_out(problem):
    """Neither its results nor the states it was given share memory with what backward reads."""
    fwd = problem.forward()
    expected = fwd.backward(*problem.upstream(), retain=True)
    for array in (fwd.output_h, fwd.output_c, problem.hx, problem.cx):
        if array is not None:
            array[...] = np.nan
    found = fwd.backward(*problem.upstream())
    assert np.array_equal(found.params, expected.params)
    assert np.array_equal(found.input, expected.input)
