"""Lengths are no part of what is prepared: new ones set two descriptors, and ask, make and send nothing."""

import dataclasses
import types

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.engines.cudnn import owned
from pycudnnrnn.engines.cudnn.descriptors import RNNDataDescriptor
from pycudnnrnn.errors import EngineError
from pycudnnrnn.passes import CallConfig
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.prepared import Prepared
from tests.stand_in import shim
from tests.stand_in.host_device import host
from tests.stand_in.problem import on_device, run, run_on

LSTM = ops.CudnnLSTM(2, 3, 4, direction="bidirectional")
BATCHES = ([4, 2, 1], [1, 4, 3], [3, 3, 2], [4, 4, 4], [2, 1, 1])


@pytest.fixture
def made(monkeypatch):
    """The native objects that are made, and the lengths that are set, by name."""
    names = []
    for kind, what in ((owned.Owned, "__init__"), (RNNDataDescriptor, "set_lengths")):
        real = getattr(kind, what)
        monkeypatch.setattr(kind, what, lambda *a, real=real, what=what: names.append(what) or real(*a))
    return names


def queries(played):
    """What was asked of the library beside the passes themselves."""
    return [name for name, *_ in played.calls if name not in shim.PASSES]


def differing(found, expected):
    return [name for name in expected if not np.array_equal(found[name], expected[name])]


@pytest.mark.parametrize("time_major", [True, False])
def test_new_lengths_set_two_descriptors_and_ask_and_make_nothing(play, made, time_major):
    played, _, device = play()
    problems = [make_problem(LSTM, 4, 3, lengths, seed=i) for i, lengths in enumerate(BATCHES)]
    for problem in problems:  # once each, so that batches of equal lengths are compiled as well
        run_on(device, problem, time_major=time_major)
    played.calls.clear()
    for problem in problems:
        arrays = on_device(device, problem, time_major)
        for expected in ([] if problem.lengths == [4, 4, 4] else ["set_lengths"] * 2, []):
            made.clear()
            assert differing(run(problem, arrays, time_major=time_major), problem.results()) == []
            assert made == expected, "x's and y's; the same lengths again set nothing"
    assert queries(played) == []
    assert not played.complaints


def test_another_size_makes_what_depends_on_sizes_and_asks_only_for_the_memory_that_it_takes(play):
    played, _, device = play()
    op = ops.CudnnLSTM(2, 5, 4, num_proj=3)
    run_on(device, make_problem(op, 4, 3, None, seed=0))
    for T, B in ((5, 3), (4, 2)):
        before = owned.live()
        played.calls.clear()
        problem = make_problem(op, T, B, None, seed=1)
        assert differing(run_on(device, problem), problem.results()) == []
        assert owned.live() - before == {"RNNDataDescriptor": 2, "TensorDescriptor": 2}
        assert queries(played) == ["cudnnGetRNNTempSpaceSizes"]


def test_plans_of_other_lengths_share_what_is_compiled_and_keep_their_lengths(play):
    played, engine, device = play()
    problems = [make_problem(LSTM, 4, 3, lengths, seed=i) for i, lengths in enumerate(BATCHES[:3])]
    way = types.SimpleNamespace(put=device.from_host, get=host)
    prepared = [Prepared(way, problem=problem, device="cuda:0") for problem in problems]
    assert len(engine.runtime.made.calls.values()) == 1
    assert len({one.plan.reserve_nbytes for one in prepared}) == 1
    played.calls.clear()
    for one in prepared * 2:
        one.forward()
        assert np.array_equal(host(one.y), one.problem.results()["y"])
    assert queries(played) == []


def test_all_else_that_a_batch_is_is_part_of_what_is_compiled(play):
    _, engine, _ = play()
    plain = CallConfig(RNNSpec("lstm", 2, 3, 4), Schedule(4, 3), keep_reserve=True)
    kinds = [{"T": 5}, {"B": 2}, {"lengths": (4, 2, 1)}, {"time_major": False}, {"packed": True}]
    batches = [plain._replace(schedule=dataclasses.replace(plain.schedule, **kind)) for kind in ({}, *kinds)]
    batches += [plain._replace(**kind) for kind in ({"keep_reserve": False}, {"backward_algo": "persist_static"})]
    with engine.runtime.launching() as handle:
        assert len({engine.runtime.native_calls(handle, batch) for batch in batches}) == len(batches)


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
