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
from tests.helpers.results import assert_same
from tests.stand_in.host_device import HostMemory, host
from tests.stand_in.problem import on_device, run, run_on

ONE_DIRECTION = specs().filter(lambda spec: spec.num_dirs == 1)


@examples(300)
@given(problems(ONE_DIRECTION, max_time=9, least_time=0), st.integers(1, 10), st.booleans(), st.integers(0, 99))
def test_every_spec_gives_the_numpy_engines_numbers(play, problem, every, time_major, seed):
    permuted = PermutedLayoutEngine(seed)
    played, _, device = play(engine=permuted)
    with use_engine(permuted):
        moved = make_problem(problem.op, *problem.x.shape[:2], problem.lengths, seed)
        expected = moved.results()
    assert_same(run_on(device, moved, time_major=time_major, checkpoint_every=every), expected)
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
def test_the_second_run_drops_what_the_first_dropped_and_leaves_dropout_where_that_left_it(play, kind, lengths):
    """The gradient is that of the outputs that came: a difference quotient over forwards with the same masks."""
    played, _, device = play()
    op = kind(3, 6, 4, dropout=0.5, seed=9, dtype="float64")
    problem = make_problem(op, 9, 3, lengths, seed=3)
    start = op.dropout_state("cuda:0")
    found = run_on(device, problem, checkpoint_every=4, retain=True)
    after = op.dropout_state("cuda:0")
    assert after.position == 1
    draw, sums = np.random.default_rng(1), []
    steps = {name: 1e-5 * draw.normal(size=getattr(problem, name).shape) for name in ("x", "hx", "params")}
    for sign in (1, -1):
        op.set_dropout_state(start)
        changed = {name: getattr(problem, name) + sign * step for name, step in steps.items()}
        moved = run_on(device, dataclasses.replace(problem, **changed), checkpoint_every=4)
        assert op.dropout_state("cuda:0") == after
        upstream = (("y", problem.dy), ("hy", problem.dhy), ("cy", problem.dcy))
        sums.append(sum(float((moved[name] * d).sum()) for name, d in upstream if name in moved))
    slope = sum(float((found[f"d{name}"] * step).sum()) for name, step in steps.items())
    assert slope == pytest.approx((sums[0] - sums[1]) / 2, rel=1e-6)
    assert not played.complaints


def test_a_second_backward_has_the_masks_of_the_first(play):
    _, _, device = play()
    problem = make_problem(ops.CudnnGRU(3, 6, 4, dropout=0.5, seed=9, dtype="float64"), 9, 3, None, seed=3)
    arrays = on_device(device, problem)
    fwd = problem.op.forward(arrays["x"], arrays["hx"], arrays["params"], checkpoint_every=4)
    first, second = (fwd.backward(arrays["dy"], retain=True) for _ in range(2))
    assert np.array_equal(host(first.input), host(second.input))
    assert np.array_equal(host(first.params), host(second.params))


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
