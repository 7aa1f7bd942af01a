"""Assignment to arrays of any library and device, in two steps: prepare, which may fail, then write, which may not."""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pycudnnrnn import _arrays
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.spec import DType


def check_real_dtype(name: str, values: Any) -> None:
    """Raise an error for a NumPy array that does not contain real numbers."""
    if values.dtype.kind not in "biuf" and values.dtype.name != DType.BFLOAT16:
        raise ArgumentError(name, "real numbers", values.dtype, aspect="dtype")


def assignment(name: str, array: Any, values: Any) -> Callable[[], None]:
    """Return a function that copies a NumPy array into an array of any library and device, cast to its dtype.

    All checks have been made by then. The function may be called again.

    Raises:
        ArgumentError: the array cannot be written to, or the values are not numbers or have another shape.
    """
    check_real_dtype(name, values)
    if tuple(array.shape) != values.shape:
        raise ArgumentError(name, f"{tuple(array.shape)}", values.shape, aspect="shape")
    library = _arrays.library_of(array)
    if library == "torch":
        return _torch_assignment(name, array, values)
    if library == "cupy":
        with array.device:
            source = sys.modules[library].asarray(values.astype(array.dtype, copy=False))
        return functools.partial(_write_on_its_device, array, source)
    host = _arrays.to_host(name, array)
    _arrays.check_writable(name, array, host)
    _check_apart(name, host.shape, host.strides, host.itemsize)
    return functools.partial(operator.setitem, host, ..., values.astype(host.dtype, copy=False))


def _write_on_its_device(array: Any, values: Any) -> None:
    with array.device:
        array[...] = values


def _torch_assignment(name: str, tensor: Any, values: Any) -> Callable[[], None]:
    torch, target = sys.modules["torch"], tensor.detach()
    if target.is_inference() and not torch.is_inference_mode_enabled():
        raise ArgumentError(name, "a tensor that can be written to", "one that was made in inference mode")
    _check_apart(name, target.shape, target.stride(), 1)
    source = _arrays.to_caller(np.require(values, requirements=["C", "W"]), _arrays.ArrayKind("torch", "cpu"))
    return functools.partial(target.copy_, source.to(target.device, target.dtype))


def _check_apart(name: str, shape: Sequence[int], strides: Sequence[int], reach: int) -> None:
    """Raise an error if elements share memory: an axis whose stride is shorter than the span of the axes inside it."""
    axes = [(abs(stride), size) for stride, size in zip(strides, shape, strict=True) if size != 1]
    for stride, size in sorted(axes) if math.prod(shape) else ():
        if stride < reach:
            raise ArgumentError(name, "an array whose elements have each their own memory", "an expanded one")
        reach += stride * (size - 1)


def write_all(writes: Sequence[Callable[[], None]]) -> None:
    """Call all functions that `assignment` returned. Ctrl-C takes effect after the last one."""
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
