"""A forward that keeps only states, on the CUDA path: its numbers, its native calls, and the memory it takes.

The shim computes with the NumPy engine: this shows call discipline, not cuDNN's numerics.
"""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import ops
from pycudnnrnn.testing import use_engine
from pycudnnrnn.testing.strategies import make_problem, problems, specs
from tests.helpers.examples import examples
from tests.helpers.layouts import ShuffledEngine
from tests.helpers.results import assert_same
from tests.stand_in.problem import run_on
from tests.stand_in.shim import PASSES

ONE_DIRECTION = specs().filter(lambda spec: spec.num_dirs == 1)


@examples(300)
@given(problems(ONE_DIRECTION, max_time=9, least_time=0), st.integers(1, 10), st.booleans(), st.integers(0, 99))
def test_every_spec_gives_the_numpy_engines_numbers_and_each_chunk_runs_again_once(play, problem, every, by_time, seed):
    permuted = ShuffledEngine(seed)
    shim = play(engine=permuted)
    with use_engine(permuted):
        moved = make_problem(problem.op, *problem.x.shape[:2], problem.lengths, seed)
        expected = moved.results()
    assert_same(run_on(shim.device, moved, time_major=by_time, checkpoint_every=every), expected)
    chunks = -(-max(problem.full_lengths, default=0) // every)
    assert [shim.counts[name] for name in PASSES] == [2 * chunks if chunks > 1 else chunks, chunks, chunks]


@pytest.mark.parametrize("lengths", [None, [9, 4, 0]])
def test_each_further_run_drops_what_the_first_dropped_and_leaves_dropout_where_that_left_it(device, lengths):
    """The gradient is that of the outputs that came: a difference quotient over forwards with the same masks."""
    op = ops.CudnnGRU(3, 6, 4, dropout=0.5, seed=9, dtype="float64")
    problem = make_problem(op, 9, 3, lengths, seed=3)
    step = 1e-5 * np.random.default_rng(1).normal(size=problem.x.shape)
    start, sums, slopes = op.dropout_state("cuda:0"), [], []
    for sign in (0, 1, -1):
        op.set_dropout_state(start)
        results = run_on(device, dataclasses.replace(problem, x=problem.x + sign * step), checkpoint_every=4)
        assert op.dropout_state("cuda:0").position == 1
        sums.append(sum(float((results[name] * d).sum()) for name, d in (("y", problem.dy), ("hy", problem.dhy))))
        slopes.append(float((results["dx"] * step).sum()))
    assert slopes[0] == pytest.approx((sums[1] - sums[2]) / 2, rel=1e-6)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_cudnn_is_asked_what_one_chunk_takes(shim, dropout):
    """numpy_engine/test_memory.py compares the rest, which is arithmetic, with what is measured."""
    op = ops.CudnnLSTM(2, 16, 12, dropout=dropout)
    for every in (None, 50):
        told = op.memory(1000, 4, True, every, device="cuda")
        chunk = op.prepare(every or 1000, 4, is_training=True, device="cuda:0")
        assert told.reserve_nbytes - told.checkpoint_nbytes == chunk.reserve_nbytes
        assert told.workspace_nbytes >= chunk.workspace_nbytes > 0
