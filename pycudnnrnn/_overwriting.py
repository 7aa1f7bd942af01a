"""Writing into arrays of any library and device: prepared first, with all that can fail, then made all at once."""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

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
    library = _arrays.library_of(array)
    check_real(name, values)
    if tuple(array.shape) != values.shape:
        raise ArgumentError(name, f"{tuple(array.shape)}", values.shape, aspect="shape")
    if library == "torch":
        return _overwriting_torch(name, array, values)
    if library == "cupy":
        with array.device:
            source = sys.modules[library].asarray(values.astype(array.dtype, copy=False))
        return functools.partial(_write_on_its_device, array, source)
    host = _arrays.to_host(name, array)
    check_overwritable(name, array, host)
    return functools.partial(operator.setitem, host, ..., values.astype(host.dtype, copy=False))


def _write_on_its_device(array: Any, values: Any) -> None:
    with array.device:
        array[...] = values


def _overwriting_torch(name: str, tensor: Any, values: Any) -> Callable[[], None]:
    torch, target = sys.modules["torch"], tensor.detach()
    if target.is_inference() and not torch.is_inference_mode_enabled():
        raise ArgumentError(name, "a tensor that can be written to", "one that was made in inference mode")
    _check_apart(name, target.shape, target.stride(), 1)
    source = _arrays.to_caller(np.require(values, requirements=["C", "W"]), _arrays.ArrayKind("torch", "cpu"))
    return functools.partial(target.copy_, source.to(target.device, target.dtype))


def write_all(writes: Sequence[Callable[[], None]]) -> None:
    """Make prepared writes: all of them, and an interrupt in their midst comes after the last."""
    try:
        for write in writes:
            write()
    except BaseException:
        for write in writes:
            write()
        raise


def check_overwritable(name: str, array: Any, native: Any) -> None:
    """Refuse a caller's array that cannot be filled: read-only, or with elements that share memory."""
    _arrays.check_writable(name, array, native)
    _check_apart(name, native.shape, native.strides, native.itemsize)


def _check_apart(name: str, shape: Sequence[int], strides: Sequence[int], reach: int) -> None:
    """Refuse axes that step less far than those within them reach, which is one element to begin with."""
    axes = [(abs(stride), size) for stride, size in zip(strides, shape, strict=True) if size != 1]
    for stride, size in sorted(axes) if math.prod(shape) else ():
        if stride < reach:
            raise ArgumentError(name, "an array whose elements have each their own memory", "an expanded one")
        reach += stride * (size - 1)
