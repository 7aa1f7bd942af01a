"""What an array is: its library, its device, its dtype; and the way between it and the array an engine works on.

The one place that knows array libraries. A library is recognised by the arrays it made, never imported.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.spec import DType

DLPACK_DEVICES = {1: "cpu", 2: "cuda", 13: "cuda"}
"""DLDeviceType values that name a device of ours; 13 is CUDA managed memory. Source: dlpack.h, version 1."""

_EXPECTED = "a NumPy or CuPy array, or a torch tensor"


class Kind(NamedTuple):
    """Which library made an array, and where its memory is: "cpu" or "cuda:<index>"."""

    library: str
    device: str


NUMPY = Kind("numpy", "cpu")


def kind_of(name: str, array: Any) -> Kind:
    """Recognise an array.

    Raises:
        ArgumentTypeError: not an array of a library known here.
        ArgumentError: its memory is on no device known here.
    """
    if isinstance(array, np.ndarray):
        return NUMPY
    library = type(array).__module__.partition(".")[0]
    if library == "cupy" and hasattr(array, "device"):
        return Kind(library, f"cuda:{array.device.id}")
    if library != "torch" or not hasattr(array, "__dlpack_device__"):
        raise ArgumentTypeError(name, _EXPECTED, type(array))
    device_type, index = array.__dlpack_device__()
    device = DLPACK_DEVICES.get(int(device_type))
    if device is None:
        raise ArgumentError(name, "an array on the CPU or on a CUDA device", array.device, aspect="device")
    return Kind(library, device if device == "cpu" else f"{device}:{index}")


def to_engine(name: str, array: Any, kind: Kind, dtype: DType | None, xp: Any) -> Any:
    """Return the array of namespace `xp` (NumPy or CuPy) over the same memory, after checking that it matches.

    Raises:
        ArgumentError: of another library or device than `kind`, of another dtype than `dtype` (None takes any), or not
            to be shared.
        MissingDependencyError: bfloat16 without ml_dtypes.
    """
    found = kind_of(name, array)
    if found != kind:
        raise ArgumentError(name, f"an array like the others: {kind.library} on {kind.device}", " on ".join(found))
    if not isinstance(array, xp.ndarray):
        try:
            array = xp.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError) as error:
            raise ArgumentError(name, f"memory that {xp.__name__} can share", error) from error
    if dtype is not None and array.dtype != dtype.numpy:
        raise ArgumentError(name, f"{dtype}, the model's", array.dtype, aspect="dtype")
    return array


def to_caller(array: Any, kind: Kind) -> Any:
    """Return an engine's array as the caller's kind, over the same memory."""
    if kind.library in {"numpy", "cupy"}:
        return array
    return sys.modules[kind.library].from_dlpack(array)


def check_shape(name: str, array: Any, shape: tuple[int, ...], axes: str) -> None:
    """Refuse an array of another shape; `axes` names the axes in the error text."""
    if tuple(array.shape) != shape:
        raise ArgumentError(name, f"{shape}, which is {axes}", tuple(array.shape), aspect="shape")


def move(array: Any, xp: Any) -> Any:
    """Return a NumPy or CuPy array as one of namespace `xp`, copied to or from the device where that differs."""
    if isinstance(array, xp.ndarray):
        return array
    return array.get() if xp is np else xp.asarray(array)
