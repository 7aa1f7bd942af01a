"""The NumPy engine's walk: how steps are cut for its caches changes no number, and every step is met once, in order."""

from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn.engines.numpy_engine import walk
from pycudnnrnn.engines.numpy_engine.compiled import cells as compiled
from pycudnnrnn.testing.strategies import problems, specs
from tests.helpers.examples import examples
from tests.helpers.results import assert_same


@examples(300)
@given(
    problems(specs(max_layers=2)), st.integers(1, 200), st.integers(1, 40), st.sampled_from([0, 1 << 30]),
)  # fmt: skip
def test_what_is_chosen_for_speed_changes_no_number(problem, block, packed, large):
    with (
        mock.patch.object(walk, "BLOCK_ROWS", block),
        mock.patch.object(walk, "BLOCK_ROWS_A_UNIT", 0),
        mock.patch.object(compiled, "PACKED_ROWS", packed),
        mock.patch.object(compiled, "LARGE_NBYTES", large),
    ):
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
    found = fwd.backward(*problem.upstream())
    assert np.array_equal(found.params, expected.params)
    assert np.array_equal(found.input, expected.input)
