"""Calls of the operating system that fail, one after another: the n-th call of a piece of work, for every n.

What SQLite does with its file system: whatever call fails, the data are whole, and what comes after works.
"""

import contextlib
import io
import itertools
import os
import signal
from unittest import mock

CALLS = (
    "open", "fsync", "close", "replace", "unlink", "stat", "lstat", "fstat", "access", "fchmod", "fchown",
    "scandir", "mkdir", "link", "rename", "getcwd", "readlink",
)  # fmt: skip
"""What may be called, with "read" and "write" for what a file object does; whatever is not, costs nothing here."""


@contextlib.contextmanager
def watching(number, fail):
    """While this is in force, the call of this number meets `fail`; 0 is the first. Yields the name of that call."""
    count, failed = itertools.count(), []

    def counting(name, real):
        def call(*arguments, **keywords):
            if next(count) != number:
                return real(*arguments, **keywords)
            failed.append(name)
            return fail(name, real, arguments, keywords)

        return call

    watched = {name: counting(name, getattr(os, name)) for name in CALLS}
    reads_and_writes = {"readinto": counting("read", io.FileIO.readinto), "write": counting("write", io.FileIO.write)}
    file = type("FileIO", (io.FileIO,), reads_and_writes)
    with mock.patch.multiple(os, **watched), mock.patch.object(io, "FileIO", file):
        yield failed


def _error(code, arguments):
    """The error as the system makes it: it names the path of the call, and for a descriptor none."""
    named = [a for a in arguments[:1] if isinstance(a, (str, bytes, os.PathLike))]
    return OSError(code, os.strerror(code), *map(os.fspath, named))


def refused(code):
    """Nothing is done; but a descriptor is closed, as Linux does it, whatever `close` says."""

    def fail(name, _real, arguments, _keywords):
        if name == "close":
            _close(*arguments)
        raise _error(code, arguments)

    return fail


def reported_late(code):
    """It is done, and fails all the same: `close` where a quota is reached, a rename whose answer is lost."""

    def fail(name, real, arguments, keywords):
        done = real(*arguments, **keywords)
        if name == "open":
            _close(done)
        if name == "scandir":
            done.close()
        raise _error(code, arguments)

    return fail


_close = os.close


def each(work, fail, most=500):
    """Do `work` with its first call failing, then with its second, and so on until none is left.

    Yields the name of the call that failed, and what `work` raised or None. Whoever takes it puts things back before
    the next.
    """
    for number in range(most):
        raised = None
        with watching(number, fail) as failed:
            try:
                work()
            except Exception as error:  # noqa: BLE001  whatever it is, the caller of this judges it
                raised = error
        if not failed:
            assert raised is None, raised
            return
        yield failed[0], raised
    raise AssertionError("there is no end")


def killed_at(number, work):
    """Do `work` in a forked child that is killed before its n-th call; say whether it came to that."""
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException), watching(number, lambda *_: os.kill(os.getpid(), signal.SIGKILL)):
            work()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)
