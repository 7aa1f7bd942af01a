"""Programs that are ended, with all that they have started: on a GPU nothing may be left that works on it."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time

LOOK_EVERY_S = 0.05
GONE_WITHIN_S = 10
"""What is asked to end, or killed, and is not gone by then is not waited for: it may hang in the driver."""


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
        """End it with all that it has started; first it may say how far it came."""
        if self._ended:
            return
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GONE_WITHIN_S)
        self._ended, self.seconds = True, time.monotonic() - self._started
        for file in self._files.values():
            with file:
                file.seek(0)
                self.texts.append(file.read().decode(errors="replace"))


def run(command, limit_s, **options):
    """Run a program, for so long at most; return its exit code, None if it had to be ended, and what it wrote."""
    program = Program(command, limit_s, **options)
    try:
        while not program.over():
            time.sleep(LOOK_EVERY_S)
    finally:
        program.end()
    return program.code, *program.texts


def stoppable():
    """Let SIGTERM, which `timeout` sends, raise as Ctrl-C does, so that what was started is ended."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
