"""Programs that are ended, with all that they have started: on a GPU nothing may be left that works on it."""

import contextlib
import contextvars
import os
import signal
import subprocess
import tempfile
import time

LOOK_EVERY_S = 0.05
GONE_WITHIN_S = 10
"""What is killed and is not gone by then hangs in the driver; nobody waits for it."""


class Program:
    """A program in a session of its own, beside others; what it writes is in files, so that it never waits for us.

    Once it is over, `code` is its exit code (None: it had to be ended), `texts` what it wrote to stdout and stderr, and
    `seconds` how long it ran. `options` are those of `subprocess.Popen`; with `stderr=subprocess.STDOUT` there is
    nothing in the second text.
    """

    def __init__(self, command, limit_s, **options):
        self._files = {name: tempfile.TemporaryFile() for name in ("stdout", "stderr")}  # noqa: SIM115  closed by `end`
        self._process = subprocess.Popen(command, start_new_session=True, **(self._files | options))
        self._started, self._limit_s, self._ended = time.monotonic(), limit_s, False
        self.code, self.texts, self.seconds = None, [], 0.0

    def over(self):
        """Whether it came to its end, or to its limit; what it has started is ended then, too."""
        if not self._ended:
            done = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
            if done or time.monotonic() - self._started > self._limit_s:
                self.end()
                self.code = self._process.returncode if done else None
        return self._ended

    def end(self):
        """End it with all that it has started. Its number is still its own: nobody has waited for it before."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GONE_WITHIN_S)
        self._ended, self.seconds = True, time.monotonic() - self._started
        for file in self._files.values():
            with file:
                file.seek(0)
                self.texts.append(file.read().decode(errors="replace"))


def run(command, limit_s, **options):
    """Run a program, for so long at most; return its exit code, None if it had to be ended, and what it wrote.

    Who is stopped while it waits (a signal that raises, as `stoppable` makes SIGTERM) ends the program, too.
    """
    program = None
    try:
        with unstopped():
            program = Program(command, limit_s, **options)
        while not program.over():
            time.sleep(LOOK_EVERY_S)
    except BaseException:
        if program is not None:
            program.end()
        raise
    return program.code, *program.texts


_held = contextvars.ContextVar("_held", default=None)
"""The stops that came while a program was being started; None while none is."""


def stoppable():
    """Let SIGTERM, which `timeout` sends, raise as Ctrl-C does, so that what was started is ended."""

    def stop(number, frame):
        if _held.get() is None:
            raise KeyboardInterrupt
        _held.get().append(number)

    signal.signal(signal.SIGTERM, stop)


@contextlib.contextmanager
def unstopped():
    """Let a stop wait for the end of the block: what is started in it is known then to the one who ends it."""
    before = _held.set(held := [])
    try:
        yield
    finally:
        _held.reset(before)
    if held:
        raise KeyboardInterrupt
