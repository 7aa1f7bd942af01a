"""Writing into arrays of any library and device: prepared first, with all that can fail, then made all at once."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pycudnnrnn import _arrays
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.spec import DType


def check_real(name: str, values: Any) -> None:
    """Refuse a NumPy array of anything but real numbers."""
    if values.dtype.kind not in "biuf" and values.dtype.name != DType.BFLOAT16:
        raise ArgumentError(name, "real numbers", values.dtype, aspect="dtype")


def overwriting(name: str, array: Any, values: Any) -> Callable[[], None]:
    """Return what writes a NumPy array into an array of any kind and device, cast to its dtype.

    All that can fail has been done by then, and the call is a copy that may be made again.

    Raises:
        ArgumentError: nothing can be written there, or values that are no numbers or of another shape.
    """
    check_real(name, values)
    if tuple(array.shape) != values.shape:
        raise ArgumentError(name, f"{tuple(array.shape)}", values.shape, aspect="shape")
    return _arrays.writing(name, array, values)


def write_all(writes: Sequence[Callable[[], None]]) -> None:
    """Make prepared writes: all of them. Ctrl-C in their midst, however often, is an interrupt after the last."""
    with uninterrupted():
        for write in writes:
            write()


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Do what is done all or not at all: Ctrl-C meanwhile, however often, is an interrupt after it."""
    handler, came = signal.getsignal(signal.SIGINT), list[int]()
    try:
        if callable(handler):
            signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    except ValueError:  # not the main thread, which is the one that Python interrupts
        handler = None
    try:
        yield
    finally:
        if callable(handler):
            signal.signal(signal.SIGINT, handler)
    if came:
        signal.raise_signal(signal.SIGINT)
