"""Streams, threads and forks, as the shim saw them."""

import ctypes
import gc
import os
import threading
import time
import weakref

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.cudnn import engine as engines_cudnn
from pycudnnrnn.engines.cudnn import handles
from pycudnnrnn.engines.cudnn.native_calls import DataDescriptors, NativeCalls
from pycudnnrnn.errors import EngineError
from pycudnnrnn.testing.strategies import make_problem
from tests.helpers.examples import PROFILE
from tests.helpers.together import Other, together
from tests.stand_in.host_device import Stream, host
from tests.stand_in.problem import on_device, run

LSTM = ops.CudnnLSTM(2, 3, 4, dtype="float32")

ROUNDS = {"dev": 50, "ci": 1250, "nightly": 10_000}[PROFILE]
"""Forwards with their backwards, a thread: in CI 10,000 in all."""


def test_every_launch_is_on_the_stream_that_is_current(play):
    played, _, device = play()
    problem = make_problem(LSTM, 3, 2, None, seed=1)
    arrays = on_device(device, problem)
    expected = []
    for i in range(50):
        device.current = Stream() if i % 3 else device.current
        run(problem, arrays)
        expected += [device.current.ptr] * 3
    assert [stream for _, _, stream, _ in played.launches] == expected


def test_the_library_is_told_of_a_new_stream_at_an_old_address(play):
    """A stream in use is not destroyed, so that only another object can have its address: that is told."""
    played, _, device = play()
    problem = make_problem(LSTM, 3, 2, None, seed=1)
    arrays = on_device(device, problem)
    device.current = Stream(0x9000)
    watched = weakref.ref(device.current)
    run(problem, arrays)
    told = played.counts["cudnnSetStream"]
    run(problem, arrays)
    assert played.counts["cudnnSetStream"] == told
    device.current = Stream(0x9000)
    gc.collect()
    assert watched() is not None, "what the library was told last is in use"
    run(problem, arrays)
    assert played.counts["cudnnSetStream"] == told + 1
    gc.collect()
    assert watched() is None


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


def test_a_forward_with_dropout_that_begins_while_another_is_launched_is_launched_after_it(play, monkeypatch):
    played, engine, device = play()
    op, other, there, here = ops.CudnnGRU(2, 3, 4, dropout=0.5), Other(), device.current, Stream()
    arrays = on_device(device, make_problem(op, 3, 2, None, seed=1))
    launch, launched = NativeCalls.launch, []

    def forward():
        with use_engine(engine):
            op.forward(arrays["x"], None, arrays["params"])

    def interrupted(*arguments, **keywords):
        launched.append(arguments)
        if len(launched) == 1:
            with device.using(here):
                other.comes(forward)
        launch(*arguments, **keywords)

    with other.watching():
        op.dropout_state("cuda:0")
    monkeypatch.setattr(NativeCalls, "launch", interrupted)
    forward()
    other.result()
    assert [stream for _, _, stream, _ in played.launches] == [there.ptr, here.ptr]
    assert (here, there) in device.waits
    assert op.dropout_state("cuda:0").position == 2


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


def test_threads_that_ask_first_get_one_engine(monkeypatch):
    def slow(library, device):
        time.sleep(0.05)
        return [library, device]

    monkeypatch.setattr(engines_cudnn, "CudaDevice", lambda index: index)
    monkeypatch.setattr(engines_cudnn._libcudnn, "load", lambda: "a library")
    monkeypatch.setattr(engines_cudnn, "CudnnEngine", slow)
    found = together(8, lambda _: engines_cudnn.cudnn_engine(997))  # of which no test makes another one
    assert found[0] == ["a library", 997]
    assert len({id(one) for one in found}) == 1


def test_a_thread_that_ends_gives_its_handle_back(play):
    played, engine, device = play()
    problem = make_problem(LSTM, 3, 2, None, seed=1)
    arrays = on_device(device, problem)

    def work():
        with use_engine(engine):
            LSTM(arrays["x"], None, None, arrays["params"])

    for _ in range(200):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert played.counts["cudnnCreate"] <= 2


def test_a_thread_that_python_forgets_after_each_call_has_one_handle_and_makes_descriptors_once(play, monkeypatch):
    """So are XLA's own threads: what Python keeps for a thread ends with each callback."""
    played, engine, device = play()
    problem = make_problem(LSTM, 3, 2, [3, 1], seed=1)
    arrays = on_device(device, problem)
    local, seen, made, make = threading.local(), [], [], DataDescriptors.__init__
    monkeypatch.setattr(DataDescriptors, "__init__", lambda *given: made.append(given) or make(*given))

    @ctypes.CFUNCTYPE(None)
    def call():
        forgotten, local.known = not hasattr(local, "known"), True
        lengths = [3, 1 + len(seen) % 2]
        with use_engine(engine):
            y = LSTM(arrays["x"], None, None, arrays["params"], sequence_lengths=lengths)[0]
        seen.append((threading.get_native_id(), forgotten, bool(host(y)[1, 1].any()) == (lengths[1] == 2), len(made)))

    assert played.dll.shim_call_in_a_thread(call, 100) == 0
    ids, forgotten, right, made_by_then = zip(*seen, strict=True)
    assert (len(seen), len(set(ids)), set(forgotten), set(right)) == (100, 1, {True}, {True})
    assert played.counts["cudnnCreate"] == 1
    assert len(set(made_by_then)) == 1


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


def test_the_last_handle_goes_to_one_of_two_threads_that_take_it(play, monkeypatch):
    _, engine, device = play()
    other, make, made, stream = Other(), handles.Handle, [], device.stream()
    with other.watching():
        pool = handles.HandlePool(engine.library)

    def interrupted(library):
        made.append(library)
        if len(made) == 1:
            other.comes(lambda: pool.on(stream))
        return make(library)

    monkeypatch.setattr(handles, "HANDLES_MAX", 1)
    monkeypatch.setattr(handles, "Handle", interrupted)
    assert pool.on(stream) is pool.on(stream)
    with pytest.raises(EngineError, match="1 threads"):
        other.result()
    assert len(made) == 1


def test_a_forked_child_may_be_the_first_to_use_cudnn(play):
    _, _, device = play()
    problem = make_problem(LSTM, 3, 2, None, seed=1)
    arrays = on_device(device, problem)
    expected = problem.results()["y"]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            found = [run(problem, arrays)["y"] for _ in range(2)]
            code = 0 if all(np.array_equal(y, expected) for y in found) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.long
def test_a_forked_child_is_refused_and_destroys_nothing_and_the_parent_goes_on(play):
    """R14: 100 children; each can still use the NumPy engine."""
    played, _, device = play()
    problem = make_problem(LSTM, 3, 2, None, seed=1)
    arrays = on_device(device, problem)
    run(problem, arrays)
    expected = problem.results()["y"]
    for _ in range(100):
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
