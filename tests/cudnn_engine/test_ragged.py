"""Lengths are no part of what is prepared: new ones set two descriptors, and ask, make and send nothing."""

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.engines.cudnn import owned
from pycudnnrnn.engines.cudnn.descriptors import RNNDataDescriptor
from pycudnnrnn.errors import EngineError
from pycudnnrnn.testing.strategies import make_problem
from tests.stand_in import shim
from tests.stand_in.host_device import host
from tests.stand_in.problem import on_device, run, run_on

LSTM = ops.CudnnLSTM(2, 3, 4, direction="bidirectional")
BATCHES = ([4, 2, 1], [1, 4, 3], [3, 3, 2], [4, 4, 4], [2, 1, 1])


@pytest.fixture
def counted(monkeypatch):
    """Count what is made, and how often lengths are set."""
    counts = {"made": [], "set": 0}
    init, set_lengths = owned.Owned.__init__, RNNDataDescriptor.set_lengths

    def made(self, *arguments):
        counts["made"].append(type(self).__name__)
        init(self, *arguments)

    def lengths(self, values):
        counts["set"] += 1
        set_lengths(self, values)

    monkeypatch.setattr(owned.Owned, "__init__", made)
    monkeypatch.setattr(RNNDataDescriptor, "set_lengths", lengths)
    return counts


def queries(played):
    """What was asked of the library beside the passes themselves."""
    return [name for name, *_ in played.calls if name not in shim.PASSES]


def differing(found, expected):
    return [name for name in expected if not np.array_equal(found[name], expected[name])]


@pytest.mark.parametrize("time_major", [True, False])
def test_new_lengths_set_two_descriptors_and_ask_and_make_nothing(play, counted, time_major):
    played, _, device = play()
    problems = [make_problem(LSTM, 4, 3, lengths, seed=i) for i, lengths in enumerate(BATCHES)]
    for problem in problems:  # once each, so that batches of equal lengths are compiled as well
        run_on(device, problem, time_major=time_major)
    played.calls.clear()
    counted["made"].clear()
    for problem in problems:
        counted["set"] = 0
        arrays = on_device(device, problem, time_major)
        found = run(problem, arrays, time_major=time_major)
        assert differing(found, problem.results()) == []
        assert counted["set"] == (0 if problem.lengths == [4, 4, 4] else 2), "x's and y's, in the forward"
        run(problem, arrays, time_major=time_major)
        assert counted["set"] == (0 if problem.lengths == [4, 4, 4] else 2), "the same lengths again set nothing"
    assert counted["made"] == []
    assert queries(played) == []
    assert not played.complaints


def test_plans_of_other_lengths_share_what_is_compiled_and_keep_their_lengths(play, counted):
    played, engine, device = play()
    problems = [make_problem(LSTM, 4, 3, lengths, seed=i) for i, lengths in enumerate(BATCHES[:3])]
    plans = [LSTM.prepare(4, 3, is_training=True, sequence_lengths=p.lengths, device="cuda:0") for p in problems]
    assert len(engine.runtime.compiled.values()) == 1
    assert len({plan.reserve_nbytes for plan in plans}) == 1
    played.calls.clear()
    for _ in range(2):
        for problem, plan in zip(problems, plans, strict=True):
            a = on_device(device, problem)
            y, hy, cy = device.copy(a["dy"]), device.copy(a["hx"]), device.copy(a["cx"])
            reserve = device.empty((plan.reserve_nbytes,), np.dtype("u1"))
            plan.forward(a["params"], a["x"], a["hx"], a["cx"], y, hy, cy, reserve)
            assert np.array_equal(host(y), problem.results()["y"])
    assert queries(played) == []


def test_lengths_that_were_set_by_half_are_set_again(play, monkeypatch):
    _, _, device = play()
    first, second = (make_problem(LSTM, 4, 3, lengths, seed=1) for lengths in BATCHES[:2])
    arrays = on_device(device, first)
    run(first, arrays)
    set_lengths, failing = RNNDataDescriptor.set_lengths, iter([False, True])

    def fail(self, values):
        if next(failing, False):
            raise EngineError("no")
        set_lengths(self, values)

    monkeypatch.setattr(RNNDataDescriptor, "set_lengths", fail)
    with pytest.raises(EngineError):
        run(second, arrays)
    assert differing(run(first, arrays), first.results()) == []
    assert differing(run_on(device, second), second.results()) == []
