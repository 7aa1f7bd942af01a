"""Streams, threads and forks, as the shim saw them."""

import os
import threading

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.cudnn import handles
from pycudnnrnn.errors import EngineError
from pycudnnrnn.testing.strategies import make_problem
from tests.helpers.examples import PROFILE
from tests.stand_in.host_device import Stream, host
from tests.stand_in.problem import on_device, run

LSTM = ops.CudnnLSTM(2, 3, 4, dtype="float32")

ROUNDS = {"dev": 50, "ci": 1250, "nightly": 10_000}[PROFILE]
"""Forwards with their backwards, a thread: in CI 10,000 in all."""


def test_a_backward_on_another_stream_waits_for_the_forward_and_is_waited_for(play):
    played, _, device = play()
    problem = make_problem(LSTM, 3, 2, None, seed=1)
    arrays = on_device(device, problem)
    there, here = device.current, Stream()
    fwd = LSTM.forward(arrays["x"], arrays["hx"], arrays["cx"], arrays["params"])
    device.current = here
    fwd.backward_data(arrays["dy"])
    assert device.waits == [(here, there), (there, here)]
    assert [stream for _, _, stream, _ in played.launches] == [there.ptr, here.ptr]


@pytest.mark.parametrize("lengths", [None, [3, 0]], ids=["one call", "in parts"])
def test_a_reserve_is_copied_after_the_forward_and_its_copy_is_memory_of_both_streams(play, lengths):
    _, _, device = play()
    problem = make_problem(LSTM, 3, 2, lengths, seed=1)
    arrays = on_device(device, problem)
    forwards, here, later = device.current, Stream(), Stream()
    fwd = LSTM.forward(arrays["x"], arrays["hx"], arrays["cx"], arrays["params"], sequence_lengths=lengths)
    device.current, copy, waits = here, device.copy, []
    device.copy = lambda array: waits.append(list(device.waits)) or copy(array)
    fwd.backward_data(arrays["dy"], retain=True)
    device.copy = copy
    assert waits[0] == [(here, forwards)]
    device.current = later
    device.waits.clear()
    fwd.backward_weights()
    assert device.waits == [(later, forwards), (later, here), (forwards, later), (here, later)]


def test_dropout_on_two_streams_moves_on_one_after_the_other(play):
    _, _, device = play()
    op = ops.CudnnGRU(2, 3, 4, dropout=0.5)
    problem = make_problem(op, 3, 2, None, seed=1)
    arrays = on_device(device, problem)
    op.forward(arrays["x"], None, arrays["params"])
    first, device.current = device.current, Stream()
    op.forward(arrays["x"], None, arrays["params"])
    assert (device.current, first) in device.waits


@pytest.mark.long
def test_threads_have_handles_of_their_own_and_equal_results(play):
    """R12: 8 threads; no handle is in two of them, and every result is the NumPy engine's, bit for bit."""
    played, engine, device = play()
    problem = make_problem(LSTM, 3, 2, [3, 1], seed=1)
    arrays = on_device(device, problem)
    expected = problem.results()
    barrier, wrong = threading.Barrier(8), []

    def work():
        with use_engine(engine):  # a context is a thread's own
            barrier.wait()
            for _ in range(ROUNDS):
                fwd = LSTM.forward(arrays["x"], arrays["hx"], arrays["cx"], arrays["params"], sequence_lengths=[3, 1])
                grads = fwd.backward(arrays["dy"], arrays["dhy"], arrays["dcy"], out=device.from_host(problem.params))
                wrong.append(not np.array_equal(host(grads.params), expected["dparams"]))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [False] * 8 * ROUNDS
    users = {}
    for _, handle, _, thread in played.launches:
        users.setdefault(handle, set()).add(thread)
    assert len(users) == 8
    assert all(len(threads) == 1 for threads in users.values())
    assert not played.complaints


def test_more_threads_than_handles_is_an_error(play, monkeypatch):
    _, engine, device = play()
    monkeypatch.setattr(handles, "HANDLES_MAX", 1)
    problem = make_problem(LSTM, 3, 2, None, seed=1)
    arrays = on_device(device, problem)
    LSTM(arrays["x"], None, None, arrays["params"])
    caught = []

    def work():
        with use_engine(engine):
            try:
                LSTM(arrays["x"], None, None, arrays["params"])
            except EngineError as error:
                caught.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(caught) == 1
    assert "1 threads" in caught[0]


@pytest.mark.parametrize("children", [3, pytest.param(100, marks=pytest.mark.long)])
def test_a_forked_child_is_refused_and_destroys_nothing_and_the_parent_goes_on(play, children):
    """Each child can still use the NumPy engine."""
    played, _, device = play()
    problem = make_problem(LSTM, 3, 2, None, seed=1)
    arrays = on_device(device, problem)
    run(problem, arrays)
    expected = problem.results()["y"]
    for _ in range(children):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                LSTM(arrays["x"], None, None, arrays["params"])
            except EngineError as error:
                calm = "spawn" in str(error) and not played.counts["cudnnDestroy"]
                code = 0 if calm and np.array_equal(problem.results()["y"], expected) else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(run(problem, arrays)["y"], expected)
