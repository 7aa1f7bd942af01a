"""Threads and forks, as the shim saw them; test_stream_memory.py has the streams."""

import os
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from pycudnnrnn import RNNSpec, _libcudnn, engines, ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.cudnn import handles, runtime
from pycudnnrnn.errors import EngineError
from pycudnnrnn.ops._dropout import Dropouts
from pycudnnrnn.passes import BACKWARD_DATA, FORWARD, CallConfig
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.testing.strategies import make_problem
from tests.helpers.examples import PROFILE
from tests.helpers.together import meeting, together
from tests.stand_in.host_device import host
from tests.stand_in.problem import on_device, run

LSTM = ops.CudnnLSTM(2, 3, 4, dtype="float32")

ROUNDS = 1250 if PROFILE == "nightly" else 10
"""Forwards with their backwards, a thread: at night 10,000 in all."""


def test_threads_have_handles_of_their_own_and_equal_results(shim, device):
    """R12: 8 threads; no handle is in two of them, and every result is the NumPy engine's, bit for bit."""
    problem = make_problem(LSTM, 3, 2, [3, 1], seed=1)
    arrays = on_device(device, problem)
    expected = problem.results()
    LSTM.prepare(3, 2, is_training=True, sequence_lengths=[3, 1], device="cuda")  # all threads have its native calls
    wrong = []

    def work(_):
        with use_engine(shim.native):  # a context is a thread's own
            for _ in range(ROUNDS):
                fwd = LSTM.forward(arrays["x"], arrays["hx"], arrays["cx"], arrays["params"], sequence_lengths=[3, 1])
                grads = fwd.backward(arrays["dy"], arrays["dhy"], arrays["dcy"], out=device.from_host(problem.params))
                wrong.append(not np.array_equal(host(grads.params), expected["dparams"]))

    for _ in range(2):  # the second eight take over the handles of the first, which have ended
        shim.launches.clear()
        together(8, work)
        users = {}
        for _, handle, _, thread in shim.launches:
            users.setdefault(handle, set()).add(thread)
        assert len(users) == 8
        assert all(len(threads) == 1 for threads in users.values())
    assert wrong == [False] * 16 * ROUNDS
    assert len({arguments[4] for name, arguments, _ in shim.calls if name == "cudnnRNNForward"}) == 8, "of lengths"


def makings(monkeypatch, owner, name, ask):
    """Ask in two threads, which meet in what makes the thing unless a lock keeps one out; count the makings."""
    calls, real, meet = [], getattr(owner, name), meeting()

    def make(*arguments, **keywords):
        calls.append(name)
        meet()
        return real(*arguments, **keywords)

    monkeypatch.setattr(owner, name, make)
    together(2, ask)
    return len(calls)


def test_what_two_threads_ask_for_at_once_is_made_once(shim, device, monkeypatch):
    running, handle = shim.native.runtime, handles.Handle(shim.native.runtime.library)
    dropouts = Dropouts(RNNSpec("gru", 2, 3, 4, dropout=0.5), {})
    monkeypatch.setattr(_libcudnn, "_libraries", {})
    for owner, name, ask in (
        (runtime, "DropoutAt", lambda _: running.dropout_at(handle, None, 0.5)),
        (runtime, "StreamStates", lambda _: running.states_on(handle, device.stream().ptr)),
        (shim.native, "dropout", lambda _: dropouts.on(shim.native)),
        (_libcudnn, "Library", lambda _: _libcudnn.load()),
    ):
        assert makings(monkeypatch, owner, name, ask) == 1, name


def test_threads_that_ask_for_an_engine_at_once_get_the_same_one(monkeypatch):
    engine, meet = "pycudnnrnn.engines.cudnn.engine.CudnnEngine", meeting()
    monkeypatch.setattr("pycudnnrnn.engines.cudnn.device.CudaDevice", lambda index: SimpleNamespace(index=index))
    monkeypatch.setattr(engine, lambda *_: (object(), meet())[0])
    monkeypatch.setattr(engines, "_engines", {})
    first, second = together(2, lambda _: engines.engine_for("cuda:0"))
    assert first is second


def test_random_states_at_an_address_are_locked_while_they_are_written_or_read(shim, device, monkeypatch):
    states, order = device.address(device.empty((shim.native.dropout_states_nbytes(),), np.dtype(np.uint8))), []
    config = CallConfig(RNNSpec("gru", 2, 3, 4, dropout=0.5), Schedule(4, 3), keep_reserve=True)
    batch = shim.native.addressed(0x10, config, drops=True)
    with shim.native.runtime.launching() as handle:
        lock = shim.native.runtime.dropout_at(handle, states, 0.5).lock = mock.MagicMock()
    lock.__enter__.side_effect = lambda: order.append("lock")
    lock.__exit__.side_effect = lambda *_: order.append("free")
    backward = "cudnnRNNBackwardData_v8"
    for name in ("cudnnSetDropoutDescriptor", "cudnnRestoreDropoutDescriptor", "cudnnRNNForward", backward):
        monkeypatch.setattr(shim, name, lambda *_, name=name: order.append(name))
    shim.native.write_dropout_states(0x10, states, 7)
    at = dict.fromkeys((*FORWARD.names, *BACKWARD_DATA.names, "workspace"), 0x1000) | dict.fromkeys(("cx", "cy"))
    batch.forward(0x10, config.schedule, at, states=states)
    batch.backward(0x10, config.schedule, at, states=states)
    seeds, forward = ["cudnnSetDropoutDescriptor"], ["cudnnRestoreDropoutDescriptor", "cudnnRNNForward"]
    assert order == ["lock", *seeds, "free", "lock", *forward, "free", "lock", backward, "free"]


def test_a_forked_child_is_refused_and_destroys_nothing_and_the_parent_goes_on(shim, device):
    """The child can still use the NumPy engine."""
    problem = make_problem(LSTM, 3, 2, None, seed=1)
    arrays = on_device(device, problem)
    expected, graph = problem.results()["y"], LSTM.prepare(3, 2, device="cuda:0").capture(arrays["params"])
    owners = [handles.Handle(shim.library)]
    child = os.fork()
    if child == 0:
        code, before = 1, shim.counts["cudnnDestroy"]  # the parent may have collected earlier tests' handles
        try:
            owners.clear()
            for call in (lambda: LSTM(arrays["x"], None, None, arrays["params"]), graph.replay):
                with pytest.raises(EngineError, match="spawn"):
                    call()
            calm = shim.counts["cudnnDestroy"] == before
            code = 0 if calm and np.array_equal(problem.results()["y"], expected) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(run(problem, arrays)["y"], expected)
