"""Threads that start at the same moment, and one that comes in the middle of another's work."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest import mock


def together(count, work):
    """Call `work(number)` in `count` threads at once; return what came back, or raise the first error."""
    barrier = threading.Barrier(count)

    def one(number):
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))


class Other:
    """Another thread: it comes where a test lets it, and goes on until it is done, or has to wait for a lock.

    So two threads always meet in the same place, without luck. It sees the locks that were made in `watching`.
    """

    def __init__(self):
        self._stopped = threading.Event()

    @contextlib.contextmanager
    def watching(self):
        kinds = {name: getattr(threading, name) for name in ("Lock", "RLock")}
        made = {name: lambda kind=kind: _Watched(kind(), self._stopped) for name, kind in kinds.items()}
        with mock.patch.multiple(threading, **made):
            yield

    def comes(self, work):
        """Begin its work, and return once it has stopped."""
        threads = ThreadPoolExecutor(1)
        self._found = threads.submit(work)
        self._found.add_done_callback(lambda _: self._stopped.set())
        threads.shutdown(wait=False)
        self._stopped.wait()

    def result(self):
        """Wait for the end of its work; return what that returned, or raise its error."""
        return self._found.result()


class _Watched:
    """A lock that says when a thread has to wait for it."""

    def __init__(self, lock, waited_for):
        self._lock, self._waited_for = lock, waited_for

    def __enter__(self):
        if not self._lock.acquire(blocking=False):
            self._waited_for.set()
            self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()

    def __getattr__(self, name):
        return getattr(self._lock, name)
