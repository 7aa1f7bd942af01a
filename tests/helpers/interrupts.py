"""Ctrl-C at every moment: Python looks for it between its instructions, so it comes at each of them in turn."""

import contextlib
import signal
import sys


def at_every_moment(call, files, step=1):
    """Interrupt `call` at its first instruction within `files`, then at a later one, and so on until none is left.

    Yields the moment after each run. The first run, with None, and the last one are not interrupted: Python 3.12 and
    3.13 trace a function's instructions from its second call on.
    """
    files, before = set(files), sys.gettrace()
    left = None

    def instruction(_frame, event, _argument):
        nonlocal left
        if event == "opcode" and left is not None:
            left -= 1
            if left < 0:
                left = None
                signal.raise_signal(signal.SIGINT)
        return instruction

    def function(frame, _event, _argument):
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes = True
        return instruction

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        for moment in (None, *range(0, 100_000, step)):
            left = moment
            sys.settrace(function)
            with contextlib.suppress(KeyboardInterrupt):
                try:
                    call()
                finally:
                    sys.settrace(before)
            yield moment
            if None not in (moment, left):
                return
    finally:
        signal.signal(signal.SIGINT, handler)
    raise AssertionError("there is no end")
