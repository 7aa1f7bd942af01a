"""Laws that hold for every spec, whatever computes it: padding, order of axes, accumulation, missing arrays.

Read this file first. Next to it, `test_reference_agreement` compares every spec with the plain equations,
`test_torch_agreement` what torch has with torch, `test_recompute` runs in chunks with whole ones, and
`test_numpy_engine` ways of cutting work with one another. A problem is a spec with parameters, data and gradients from
above, all drawn by Hypothesis (`pycudnnrnn.testing.strategies`).
"""

import contextlib
import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn.testing import use_engine
from pycudnnrnn.testing.strategies import make_problem, problems
from tests.helpers.axes import by_batch, by_time
from tests.helpers.examples import examples
from tests.helpers.layouts import ShuffledEngine
from tests.helpers.results import assert_same


@examples(300)
@given(problems(), st.sampled_from([0.0, np.nan, np.inf, 1e300]), st.integers(0, 3))
def test_what_padding_holds_changes_nothing_and_results_are_exactly_zero_there(problem, filling, more):
    """Nor does longer padding."""
    T, pad = len(problem.x), ((0, more), (0, 0), (0, 0))
    x, dy = np.pad(problem.x, pad), np.pad(problem.dy, pad)
    for b, length in enumerate(problem.full_lengths):
        x[length:, b] = dy[length:, b] = filling
    clean = problem.results()
    padded = dataclasses.replace(problem, x=x, dy=dy, lengths=problem.full_lengths).results()
    for b, length in enumerate(problem.full_lengths):
        assert not padded["y"][length:, b].any()
        assert not padded["dx"][length:, b].any()
    assert_same(padded | {"y": padded["y"][:T], "dx": padded["dx"][:T]}, clean)


@examples(300)
@given(problems(least_time=0))
def test_batch_major_data_gives_the_same_numbers_in_the_other_order(problem):
    results = by_batch(problem).results(time_major=False)
    assert results["y"].flags.c_contiguous
    assert results["dx"].flags.c_contiguous
    assert_same(by_time(results), problem.results())


@examples(200)
@given(problems(), st.none() | st.integers(0, 2**16))
def test_accumulating_adds_to_what_is_there_and_writing_forgets_it(problem, layout):
    """Writing clears the padding of a layout, and accumulating leaves it."""
    with use_engine(ShuffledEngine(layout)) if layout is not None else contextlib.nullcontext():
        moved = make_problem(problem.op, *problem.x.shape[:2], problem.lengths, seed=layout or 0)
        padding = np.ones(len(moved.params), bool)
        for region in moved.op.layout().regions:
            padding[region.slice] = False
        fwd, start = moved.forward(), np.random.default_rng(0).normal(size=moved.params.shape)
        alone = fwd.backward(*moved.upstream(), retain=True).params
        added, written = start.copy(), start.copy()
        assert fwd.backward(*moved.upstream(), out=added, accumulate=True, retain=True).params is added
        fwd.backward(*moved.upstream(), out=written)
    np.testing.assert_allclose(added, start + alone, rtol=0, atol=1e-11)
    assert np.array_equal(written, alone)
    assert np.array_equal(added[padding], start[padding])
    assert not written[padding].any()


@examples(100)
@given(problems())
def test_missing_states_and_missing_gradients_stand_for_zeros(problem):
    fields = {name: np.zeros_like(getattr(problem, name)) for name in ("hx", "cx", "dy", "dcy")}
    zeros = dataclasses.replace(problem, **fields)
    states = (None, None) if problem.spec.has_cell_state else (None,)
    fwd = problem.op.forward(problem.x, *states, problem.params, sequence_lengths=problem.lengths)
    grads = fwd.backward(None, problem.dhy)
    expected = zeros.results()
    assert np.array_equal(fwd.output, expected["y"])
    assert np.array_equal(grads.params, expected["dparams"])
    assert np.array_equal(grads.input_h, expected["dhx"])
