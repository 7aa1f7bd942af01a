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


def test_a_child_finds_every_lock_free_that_another_thread_held():
    call = everything()
    call()
    held, done = threading.Event(), threading.Event()

    def hold():
        with contextlib.ExitStack() as stack:
            for lock in list(_locks._all):
                stack.enter_context(lock)
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert forked(call) == 0
    finally:
        done.set()
        thread.join()
    call()


def test_a_child_computes_what_another_thread_was_computing(monkeypatch):
    inside, done, bincount = threading.Event(), threading.Event(), np.bincount

    def waiting(*arguments, **keywords):
        inside.set()
        done.wait()
        return bincount(*arguments, **keywords)

    monkeypatch.setattr(np, "bincount", waiting)
    thread = threading.Thread(target=lambda: Schedule(3, 2, (3, 1)).batch_sizes)
    thread.start()
    inside.wait()
    monkeypatch.setattr(np, "bincount", bincount)
    try:
        assert forked(lambda: Schedule(3, 2, (3, 1)).batch_sizes) == 0
    finally:
        done.set()
        thread.join()
