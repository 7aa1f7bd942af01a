"""What an array is: its library, its device, its dtype; and the way between it and the array an engine works on.

The one place that knows array libraries. A library is recognised by the arrays it made, never imported.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.spec import DType

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    class AnyArray(Protocol):
        """What arrays of all libraries have."""

        @property
        def ndim(self) -> int: ...

        @property
        def shape(self) -> Any: ...

        def __getitem__(self, key: Any, /) -> Any: ...

    ArrayT = TypeVar("ArrayT", bound=AnyArray, default=Any)
else:
    from typing import TypeVar

    ArrayT = TypeVar("ArrayT")
"""The caller's kind of array: what goes in as `input_data` says what comes out."""

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


def to_host(name: str, array: Any) -> Any:
    """Return the NumPy array over a CPU array's memory, or a copy of a CUDA array, whatever its dtype.

    Raises:
        ArgumentError: its memory is not to be shared.
    """
    kind = kind_of(name, array)
    if kind.library == "cupy":
        return move(array, np)
    if isinstance(array, np.ndarray):
        return array
    if kind.device != "cpu":
        array = array.detach().cpu()
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


def overwrite(array: Any, values: Any) -> None:
    """Write a NumPy array into an array of any kind and device, cast to its dtype."""
    kind = kind_of("array", array)
    if kind.device == "cpu":
        to_host("array", array)[...] = values
        return
    array[...] = sys.modules[kind.library].asarray(values.astype(str(array.dtype).rpartition(".")[2], copy=False))


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
    """Return a NumPy array as one of `namespace`, without a copy where it can; other arrays stay as they are."""
    return namespace.from_dlpack(array) if isinstance(array, np.ndarray) and namespace is not np else array


def move(array: Any, xp: Any) -> Any:
    """Return a NumPy or CuPy array as one of namespace `xp`, copied to or from the device where that differs."""
    if isinstance(array, xp.ndarray):
        return array
    return array.get() if xp is np else xp.asarray(array)
