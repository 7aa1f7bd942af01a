"""Threads that start at the same moment."""

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
