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
from tests.stand_in.host_device import host
from tests.stand_in.problem import on_device, run_on
from tests.stand_in.shim import PASSES

ONE_DIRECTION = specs().filter(lambda spec: spec.num_dirs == 1)


@examples(300)
@given(problems(ONE_DIRECTION, max_time=9, least_time=0), st.integers(1, 10), st.booleans(), st.integers(0, 99))
def test_every_spec_gives_the_numpy_engines_numbers_and_each_chunk_runs_again_once(play, problem, every, by_time, seed):
    permuted = ShuffledEngine(seed)
    played, _, device = play(engine=permuted)
    with use_engine(permuted):
        moved = make_problem(problem.op, *problem.x.shape[:2], problem.lengths, seed)
        expected = moved.results()
    assert_same(run_on(device, moved, time_major=by_time, checkpoint_every=every), expected)
    assert not played.complaints
    chunks = -(-max(problem.full_lengths, default=0) // every)
    assert [played.counts[name] for name in PASSES] == [2 * chunks if chunks > 1 else chunks, chunks, chunks]


@pytest.mark.parametrize("lengths", [None, [9, 4, 0]])
@pytest.mark.parametrize("kind", [ops.CudnnLSTM, ops.CudnnGRU])
def test_each_further_run_drops_what_the_first_dropped_and_leaves_dropout_where_that_left_it(play, kind, lengths):
    """The gradient is that of the outputs that came: a difference quotient over forwards with the same masks."""
    played, _, device = play()
    op = kind(3, 6, 4, dropout=0.5, seed=9, dtype="float64")
    problem = make_problem(op, 9, 3, lengths, seed=3)
    arrays = on_device(device, problem)
    start = op.dropout_state("cuda:0")
    fwd = dataclasses.replace(problem, **arrays).forward(checkpoint_every=4)
    after = op.dropout_state("cuda:0")
    assert after.position == 1
    upstream = arrays["dy"], arrays["dhy"], arrays["dcy"] if op.spec.has_cell_state else None
    first, second = (fwd.backward(*upstream, retain=True) for _ in range(2))
    assert np.array_equal(host(first.params), host(second.params))
    found = {"x": first.input, "hx": first.input_h, "params": first.params}
    draw, sums = np.random.default_rng(1), []
    steps = {name: 1e-5 * draw.normal(size=getattr(problem, name).shape) for name in found}
    for sign in (1, -1):
        op.set_dropout_state(start)
        changed = {name: getattr(problem, name) + sign * step for name, step in steps.items()}
        moved = run_on(device, dataclasses.replace(problem, **changed), checkpoint_every=4)
        assert op.dropout_state("cuda:0") == after
        upstream = (("y", problem.dy), ("hy", problem.dhy), ("cy", problem.dcy))
        sums.append(sum(float((moved[name] * d).sum()) for name, d in upstream if name in moved))
    slope = sum(float((host(found[name]) * step).sum()) for name, step in steps.items())
    assert slope == pytest.approx((sums[0] - sums[1]) / 2, rel=1e-6)
    assert not played.complaints


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_cudnn_is_asked_what_one_chunk_takes(play, dropout):
    """numpy_engine/test_memory.py compares the rest, which is arithmetic, with what is measured."""
    play()
    op = ops.CudnnLSTM(2, 16, 12, dropout=dropout)
    for every in (None, 50):
        told = op.memory(1000, 4, True, every, device="cuda")
        chunk = op.prepare(every or 1000, 4, is_training=True, device="cuda:0")
        assert told.reserve_nbytes - told.checkpoint_nbytes == chunk.reserve_nbytes
        assert told.workspace_nbytes >= chunk.workspace_nbytes > 0


def test_the_memory_of_a_batch_with_an_empty_sequence_is_that_of_its_chunks(play):
    """Such a batch runs in chunks, because cuDNN does not take length 0. The results of chunks are copied."""
    play()
    op = ops.CudnnLSTM(1, 16, 12)
    whole, chunked = (op.memory(20, 2, True, sequence_lengths=n, device="cuda") for n in ([20, 7], [20, 0]))
    assert (
        whole.reserve_nbytes
        == op.prepare(20, 2, is_training=True, sequence_lengths=[20, 7], device="cuda").reserve_nbytes
    )
    chunk, states = op.memory(20, 1, device="cuda"), 2 * 2 * 16 * 4
    assert chunked.reserve_nbytes == chunk.reserve_nbytes + chunk.output_nbytes + states
    assert (chunked.output_nbytes, chunked.gradient_nbytes) == (whole.output_nbytes, whole.gradient_nbytes)
