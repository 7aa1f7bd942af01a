"""Programs that are ended, with all that they have started: on a GPU nothing may be left that works on it."""

import contextlib
import os
import signal
import subprocess


def run(command, limit_s, **options):
    """Run a program, for so long at most; return its exit code, None if it had to be ended, and what it wrote.

    Who is stopped while it waits (a signal that raises, as `stoppable` makes SIGTERM) ends the program, too. `options`
    are those of `subprocess.Popen`; with `stderr=subprocess.STDOUT` there is nothing in the second text.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:
        try:
            out, err = process.communicate(timeout=limit_s)
            code = process.returncode
        except subprocess.TimeoutExpired:
            _end(process)
            (out, err), code = process.communicate(), None
        except BaseException:
            _end(process)
            raise
    return code, out.decode(errors="replace"), (err or b"").decode(errors="replace")


def _end(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def stoppable():
    """Let SIGTERM, which `timeout` sends, raise as Ctrl-C does, so that what was started is ended."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
