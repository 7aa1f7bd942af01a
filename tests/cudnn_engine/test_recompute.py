"""A forward that keeps only states, on the CUDA path: its numbers, its native calls, and the memory it takes.

The shim computes with the NumPy engine: this shows call discipline, not cuDNN's numerics.
"""

import dataclasses
import weakref

import cupy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import ops
from pycudnnrnn.testing import PermutedLayoutEngine, use_engine
from pycudnnrnn.testing.strategies import make_problem, problems, specs
from tests.helpers.examples import examples
from tests.helpers.results import CLOSE, assert_same
from tests.stand_in.host_device import HostMemory, host
from tests.stand_in.problem import on_device, run

ONE_DIRECTION = specs().filter(lambda spec: spec.num_dirs == 1)


def by_time(found, time_major):
    return found if time_major else found | {name: found[name].swapaxes(0, 1) for name in ("y", "dx")}


@examples(300)
@given(problems(ONE_DIRECTION, max_time=9, least_time=0), st.integers(1, 10), st.booleans(), st.integers(0, 99))
def test_every_spec_gives_the_numpy_engines_numbers(play, problem, every, time_major, seed):
    permuted = PermutedLayoutEngine(seed)
    played, _, device = play(engine=permuted)
    with use_engine(permuted):
        moved = make_problem(problem.op, *problem.x.shape[:2], problem.lengths, seed)
        expected = moved.results()
    found = run(moved, on_device(device, moved, time_major), time_major=time_major, checkpoint_every=every)
    assert_same(by_time(found, time_major), expected)
    assert not played.complaints


@examples(100)
@given(problems(ONE_DIRECTION, max_time=9), st.integers(1, 10))
def test_each_chunk_runs_once_in_forward_and_again_in_backward(play, problem, every):
    played, _, device = play()
    arrays = on_device(device, problem)
    states = (arrays["hx"], arrays["cx"]) if problem.spec.has_cell_state else (arrays["hx"],)
    fwd = problem.op.forward(
        arrays["x"], *states, arrays["params"], sequence_lengths=problem.lengths, checkpoint_every=every
    )
    chunks = -(-max(problem.full_lengths) // every)
    counts = played.counts
    assert counts["cudnnRNNForward"] == chunks
    fwd.backward(arrays["dy"])
    assert counts["cudnnRNNForward"] == (2 * chunks if chunks > 1 else chunks)
    assert counts["cudnnRNNBackwardData_v8"] == counts["cudnnRNNBackwardWeights_v8"] == chunks


@pytest.mark.parametrize("lengths", [None, [9, 4, 0]])
@pytest.mark.parametrize("kind", [ops.CudnnLSTM, ops.CudnnGRU])
def test_dropout_is_restored_for_the_second_run_and_left_where_the_forward_left_it(play, kind, lengths):
    """The oracle is the chunks as calls of their own, whose reserves are kept."""
    played, _, device = play()
    op = kind(3, 6, 4, dropout=0.5, seed=9, dtype="float64")
    problem = make_problem(op, 9, 3, lengths, seed=3)
    start = op.dropout_state("cuda:0")
    found = run(problem, on_device(device, problem), checkpoint_every=4, retain=True)
    after = op.dropout_state("cuda:0")
    assert after.position == 1
    op.set_dropout_state(start)
    again = run(problem, on_device(device, problem), checkpoint_every=4)
    assert op.dropout_state("cuda:0") == after
    assert_same(again, found)

    op.set_dropout_state(start)
    alone, states = [], (problem.hx, problem.cx)
    for first in (0, 4, 8):
        part = _part(problem, first, min(first + 4, 9), states)
        arrays = on_device(device, part)
        given = (arrays["hx"], arrays["cx"])[: 1 + op.spec.has_cell_state]
        fwd = op.forward(arrays["x"], *given, arrays["params"], sequence_lengths=part.lengths)
        states = host(fwd.output_h), host(fwd.output_c) if op.spec.has_cell_state else part.cx
        states = tuple(whole.copy() for whole in states)
        alone.append((part, arrays, fwd))
    assert op.dropout_state("cuda:0").data == after.data
    np.testing.assert_allclose(found["y"], np.concatenate([host(fwd.output) for *_, fwd in alone]), **CLOSE)
    dh, dc = on_device(device, problem)["dhy"], on_device(device, problem)["dcy"] if op.spec.has_cell_state else None
    total = 0
    for _, arrays, fwd in reversed(alone):
        grads = fwd.backward(arrays["dy"], dh, dc)
        dh, dc = grads.input_h, grads.input_c
        total = total + host(grads.params)
    np.testing.assert_allclose(found["dhx"], host(dh), **CLOSE)
    np.testing.assert_allclose(found["dparams"], total, **CLOSE)
    assert not played.complaints


def test_a_second_backward_has_the_masks_of_the_first(play):
    _, _, device = play()
    problem = make_problem(ops.CudnnGRU(3, 6, 4, dropout=0.5, seed=9, dtype="float64"), 9, 3, None, seed=3)
    arrays = on_device(device, problem)
    fwd = problem.op.forward(arrays["x"], arrays["hx"], arrays["params"], checkpoint_every=4)
    first, second = (fwd.backward(arrays["dy"], retain=True) for _ in range(2))
    assert np.array_equal(host(first.input), host(second.input))
    assert np.array_equal(host(first.params), host(second.params))


def _part(problem, first, last, states):
    lengths = [min(max(n - first, 0), last - first) for n in problem.full_lengths]
    return dataclasses.replace(
        problem, x=problem.x[first:last], dy=problem.dy[first:last], hx=states[0], cx=states[1], lengths=lengths
    )


def test_a_forward_that_fails_on_the_way_moves_no_dropout(play):
    _, _, device = play()
    op = ops.CudnnGRU(2, 3, 4, dtype="float64", dropout=0.5, seed=3)
    problem = make_problem(op, 6, 3, None, seed=5)
    arrays = on_device(device, problem)
    start = op.dropout_state("cuda:0")
    expected = run(problem, arrays, checkpoint_every=2)
    op.set_dropout_state(start)
    for failures in range(100):
        device.fail_at = failures
        try:
            fwd = op.forward(arrays["x"], arrays["hx"], arrays["params"], checkpoint_every=2)
        except MemoryError:
            device.fail_at = None
            assert op.dropout_state("cuda:0") == start
        else:
            break
    device.fail_at = None
    assert failures > 20, "some of them after the first chunk"
    assert op.dropout_state("cuda:0").position == 1
    assert np.array_equal(host(fwd.output), expected["y"])


class Counting:
    """Counts the bytes of a host device's arrays that are alive, and the most there were."""

    def __init__(self, device):
        self.now = self.most = 0
        device.allocate = self.allocate
        cupy.cuda.set_allocator(self.allocate)

    def allocate(self, nbytes):
        memory = HostMemory(nbytes)
        self.now += nbytes
        self.most = max(self.most, self.now)
        weakref.finalize(memory, self._freed, nbytes)
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(memory.address, max(nbytes, 1), memory, device_id=0), 0)

    def _freed(self, nbytes):
        self.now -= nbytes


@pytest.mark.parametrize(
    ("direction", "dropout", "every"),
    [
        ("bidirectional", 0.5, None),
        ("unidirectional", 0.0, 50),
        ("unidirectional", 0.5, 50),
    ],
)
def test_cudnn_is_asked_for_the_figures_and_they_are_near_the_peak(play, direction, dropout, every):
    played, _, device = play()
    op = ops.CudnnLSTM(2, 16, 12, direction=direction, dropout=dropout)
    problem = make_problem(op, 1000, 4, None, seed=3)
    told = op.memory(1000, 4, True, every, device="cuda")
    assert played.counts["cudnnGetRNNTempSpaceSizes"]
    arrays = on_device(device, problem)
    run(dataclasses.replace(problem, x=problem.x[:3]), arrays | {"x": arrays["x"][:3], "dy": arrays["dy"][:3]})
    counting = Counting(device)
    states = (arrays["hx"], arrays["cx"]) if op.spec.has_cell_state else (arrays["hx"],)
    fwd = op.forward(arrays["x"], *states, arrays["params"], checkpoint_every=every)
    if every:
        kept = counting.now - told.output_nbytes
        assert told.checkpoint_nbytes == pytest.approx(kept, rel=0.1)
    grads = fwd.backward(arrays["dy"], arrays["dhy"], arrays["dcy"] if op.spec.has_cell_state else None)
    assert grads.params.size == op.params_size()
    assert counting.most / 1.25 <= told.total_nbytes <= counting.most * 1.25, (counting.most, told)
