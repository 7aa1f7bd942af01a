"""Writing into arrays of any library and device, in two steps: prepare, which may fail, then write, which may not."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pycudnnrnn import _arrays
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.spec import DType


def check_real_dtype(name: str, values: Any) -> None:
    """Raise an error for a NumPy array that does not contain real numbers."""
    if values.dtype.kind not in "biuf" and values.dtype.name != DType.BFLOAT16:
        raise ArgumentError(name, "real numbers", values.dtype, aspect="dtype")


def overwriting(name: str, array: Any, values: Any) -> Callable[[], None]:
    """Return a function that copies a NumPy array into an array of any library and device, cast to its dtype.

    All checks have been made by then. The function may be called again.

    Raises:
        ArgumentError: the array cannot be written to, or the values are not numbers or have another shape.
    """
    check_real_dtype(name, values)
    if tuple(array.shape) != values.shape:
        raise ArgumentError(name, f"{tuple(array.shape)}", values.shape, aspect="shape")
    return _arrays.writing(name, array, values)


def write_all(writes: Sequence[Callable[[], None]]) -> None:
    """Call all functions that `overwriting` returned. Ctrl-C takes effect after the last one."""
    with uninterrupted():
        for write in writes:
            write()


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block."""
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
