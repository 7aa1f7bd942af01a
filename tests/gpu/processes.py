"""Programs that are ended, with all that they have started: on a GPU nothing may be left that works on it."""

import contextlib
import os
import signal
import subprocess

GONE_WITHIN_S = 10
"""What was killed and is not gone by then is not waited for: it may hang in the driver."""


def run(command, limit_s, **options):
    """Run a program in a session of its own, for so long at most.

    Returns its exit code, None if it had to be ended, and what it wrote to stdout and stderr. `options` are those of
    `subprocess.Popen`.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, start_new_session=True, text=True, errors="replace", **(pipes | options))
    code, texts = None, ("", "")
    try:
        texts, code = process.communicate(timeout=limit_s), process.returncode
    except subprocess.TimeoutExpired:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if code is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                texts = process.communicate(timeout=GONE_WITHIN_S)
    return code, *(text or "" for text in texts)


def stoppable():
    """Let SIGTERM, which `timeout` sends, raise as Ctrl-C does, so that what was started is ended."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
