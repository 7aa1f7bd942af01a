"""Threads that start at the same moment."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor


def together(count, work):
    """Call `work(number)` in `count` threads at once; return what came back, or raise the first error."""
    barrier = threading.Barrier(count)

    def one(number):
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))


def meeting():
    """Return a function in which two threads meet, or a thread waits a moment where a lock keeps the other out."""
    both = threading.Barrier(2)

    def meet():
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)

    return meet
