"""What an array is: its library, its device, its dtype; and the way between it and the array an engine works on.

The one place that knows array libraries. A library is recognised by the arrays it made, never imported.
"""

from __future__ import annotations

import re
import sys
from typing import Any, NamedTuple

import numpy as np

from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.spec import DType

DLPACK_DEVICES = {1: "cpu", 2: "cuda", 13: "cuda"}
"""DLDeviceType values that name a device of ours; 13 is CUDA managed memory. Source: dlpack.h, version 1."""

_EXPECTED = "a NumPy array or a torch tensor"


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
    if library not in {"torch", "cupy"} or not hasattr(array, "__dlpack_device__"):
        raise ArgumentTypeError(name, _EXPECTED, type(array))
    device_type, index = array.__dlpack_device__()
    device = DLPACK_DEVICES.get(int(device_type))
    if device is None:
        raise ArgumentError(name, "an array on the CPU or on a CUDA device", array.device, aspect="device")
    return Kind(library, device if device == "cpu" else f"{device}:{index}")


def to_engine(name: str, array: Any, kind: Kind, dtype: DType) -> Any:
    """Return the NumPy array over the same memory as a CPU array, after checking that it matches.

    Raises:
        ArgumentError: of another library or device than `kind`, of another dtype than `dtype`, or not to be shared.
        MissingDependencyError: bfloat16 without ml_dtypes.
    """
    found = kind_of(name, array)
    if found != kind:
        raise ArgumentError(name, f"an array like the others: {kind.library} on {kind.device}", " on ".join(found))
    if not isinstance(array, np.ndarray):
        try:
            array = np.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError) as error:
            raise ArgumentError(name, "memory that NumPy can share", error) from error
    if array.dtype != dtype.numpy:
        raise ArgumentError(name, f"{dtype}, the model's", array.dtype, aspect="dtype")
    return array


def to_caller(array: Any, kind: Kind) -> Any:
    """Return an engine's CPU array as the caller's kind, over the same memory."""
    if kind.library == "numpy":
        return array
    return sys.modules[kind.library].from_dlpack(array)


def check_shape(name: str, array: Any, shape: tuple[int, ...], axes: str) -> None:
    """Refuse an array of another shape; `axes` names the axes in the error text."""
    if tuple(array.shape) != shape:
        raise ArgumentError(name, f"{shape}, which is {axes}", tuple(array.shape), aspect="shape")


def to_host(name: str, array: Any) -> Any:
    """Return the NumPy array over a CPU array's memory, whatever its dtype.

    Raises:
        ArgumentError: its memory is not the CPU's, or is not to be shared.
    """
    kind = kind_of(name, array)
    if kind.device != "cpu":
        raise ArgumentError(name, "an array on the CPU", kind.device, aspect="device")
    if isinstance(array, np.ndarray):
        return array
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError) as error:
        raise ArgumentError(name, "memory that NumPy can share", error) from error


def check_device(device: Any) -> str:
    """Return a device's name.

    Raises:
        ArgumentError: neither "cpu" nor "cuda" nor "cuda:<index>".
    """
    name = str(device)
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ArgumentError("device", "'cpu', 'cuda' or 'cuda:<index>'", repr(device))
    return name


def namespace_of(array: Any) -> Any:
    """Return the module whose functions take this array: its array API namespace, or its library."""
    if isinstance(array, np.ndarray):
        return np
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    library = sys.modules.get(type(array).__module__.partition(".")[0])
    if library is None or not hasattr(library, "from_dlpack"):
        raise ArgumentTypeError("inputs", "an array of NumPy, torch or an array API library", type(array))
    return library


def into_namespace(array: Any, namespace: Any) -> Any:
    """Return a NumPy array as one of `namespace`, without a copy where the library can."""
    return array if namespace is np else namespace.from_dlpack(array)
