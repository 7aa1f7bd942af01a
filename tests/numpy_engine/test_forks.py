"""Children that are forked while other threads are at work: what a thread held in the parent, nobody gives back."""

import contextlib
import os
import signal
import threading

import numpy as np

from pycudnnrnn import CudnnLSTM, _locks, ops
from pycudnnrnn.schedule import Schedule

CHILD_S = 20
"""After which a child that hangs is ended by the system, and its test is red."""


def forked(work):
    """Run `work` in a forked child; return how the child ended, 0 if well."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            signal.alarm(CHILD_S)
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def everything():
    """An op with dropout, and a layer, that have locks of every kind that the NumPy engine makes."""
    op, layer = ops.CudnnGRU(2, 3, 4, dropout=0.5, seed=1), CudnnLSTM(2, 3, dropout=0.5)
    params = op.init_params()

    def call():
        op.forward(np.ones((3, 2, 4), np.float32), None, params)
        layer(np.ones((3, 2, 4), np.float32))

    return call


@contextlib.contextmanager
def another_thread(work):
    """Run `work(inside, done)` in another thread: the block begins when it sets one, and it waits for the other."""
    inside, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=work, args=(inside, done))
    thread.start()
    inside.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_child_finds_every_lock_free_that_another_thread_held():
    call = everything()
    call()

    def hold(inside, done):
        with contextlib.ExitStack() as stack:
            for lock in list(_locks._all):
                stack.enter_context(lock)
            inside.set()
            done.wait()

    with another_thread(hold):
        assert forked(call) == 0
    call()


def test_a_child_computes_what_another_thread_was_computing(monkeypatch):
    bincount = np.bincount

    def compute(inside, done):
        monkeypatch.setattr(np, "bincount", lambda *a, **k: inside.set() or (done.wait() and bincount(*a, **k)))
        _ = Schedule(3, 2, (3, 1)).batch_sizes

    with another_thread(compute):
        monkeypatch.setattr(np, "bincount", bincount)
        assert forked(lambda: Schedule(3, 2, (3, 1)).batch_sizes) == 0
