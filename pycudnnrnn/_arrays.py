"""Arrays of all libraries: their library, device and dtype, and conversion to and from an engine's arrays.

Only this module knows array libraries. A library is recognised by its arrays; it is never imported here.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import re
import sys
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pycudnnrnn._checks import plain, shorten
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.spec import DType

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    class AnyArray(Protocol):
        """The attributes that arrays of all libraries have."""

        @property
        def ndim(self) -> int: ...

        @property
        def shape(self) -> Any: ...

        def __getitem__(self, key: Any, /) -> Any: ...

    ArrayT = TypeVar("ArrayT", bound=AnyArray, default=Any)
else:
    from typing import TypeVar

    ArrayT = TypeVar("ArrayT")
"""The caller's kind of array: results have the type of `input_data`."""

Array = npt.NDArray[Any]

DLPACK_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 13: "cuda"}
"""Supported DLDeviceType values; 3 is pinned host memory, 13 CUDA managed memory. Source: dlpack.h, v1."""

ALIGNMENT_NBYTES: Final = 64
"""Alignment of memory that JAX takes without a copy on the CPU. Observed with jaxlib 0.10.2; also a cache line."""

_UNSHARED = (BufferError, RuntimeError, TypeError, ValueError)
"""The errors that libraries raise if they cannot share an array."""


class ArrayKind(NamedTuple):
    """The library of an array, and its device: "cpu" or "cuda:<index>".

    `place` is JAX's own device object: JAX may have several on one CPU.
    """

    library: str
    device: str
    place: Any = None


NUMPY = ArrayKind("numpy", "cpu")


def kind_of(name: str, array: Any) -> ArrayKind:
    """Return the library and the device of an array.

    Raises:
        ArgumentTypeError: not an array of a supported library, or a tracer.
        ArgumentError: its memory is on an unsupported device, or on several.
    """
    if isinstance(array, np.ndarray):
        plain(name, array)
        return NUMPY
    library = library_of(array)
    if library == "cupy":
        return ArrayKind(library, f"cuda:{array.data.device_id}")
    if library:
        _check_plain(name, array, library)
    if not library or not hasattr(array, "__dlpack_device__"):  # JAX's random keys have none
        raise ArgumentTypeError(name, "a NumPy, CuPy or JAX array, or a torch tensor", type(array))
    try:
        device_type, index = array.__dlpack_device__()
    except _UNSHARED as error:
        raise ArgumentError(name, "an array on one device, the CPU or a CUDA one", error) from error
    device = DLPACK_DEVICES.get(int(device_type))
    if device is None:
        raise ArgumentError(name, "an array on the CPU or on a CUDA device", array.device, aspect="device")
    place = next(iter(array.devices())) if library == "jax" else None
    return ArrayKind(library, device if device == "cpu" else f"{device}:{index}", place)


def library_of(array: Any) -> str:
    """Return the name of an array's library, "" for none."""
    kind: type = type(array)
    return _library_of_type(kind)


@functools.lru_cache(maxsize=256)
def _library_of_type(kind: type) -> str:
    if issubclass(kind, np.ndarray):
        return "numpy"
    for library, name in (("cupy", "ndarray"), ("torch", "Tensor"), ("jax", "Array"), ("jax", "core.Tracer")):
        try:
            known = operator.attrgetter(name)(sys.modules.get(library))
        except AttributeError:  # not imported, or only half
            continue
        if issubclass(kind, known):
            return library
    return ""


def _check_plain(name: str, array: Any, library: str) -> None:
    """Raise an error for a tracer, and for a torch tensor that is lazy, not dense, or has a history."""
    module = sys.modules[library]
    if library == "jax":
        if isinstance(array, module.core.Tracer):
            expected = "an array with numbers: inside jit, grad or vmap, interop.jax.rnn is the call"
            raise ArgumentTypeError(name, expected, type(array))
        if array.is_deleted():
            raise ArgumentError(name, "an array that has its memory", "one that was deleted or donated")
        return
    if type(array).__torch_dispatch__ is not module.Tensor.__torch_dispatch__:
        raise ArgumentTypeError(name, "a plain torch tensor (interop.torch has modules for traces)", type(array))
    try:
        dense = array.layout is module.strided and not (array.is_nested or array.is_neg() or array.is_conj())
        in_memory = (dense and (array.data_ptr() != 0 or not array.numel())) or array.is_meta
    except (RuntimeError, ValueError):  # of a functorch wrapper, or of a parameter without its size
        in_memory = False
    if not in_memory:
        expected = "a dense tensor with its values in memory: resolve_neg(), to_dense() or clone() may return one"
        raise ArgumentError(name, expected, f"a tensor of layout {array.layout} whose memory does not have its values")
    if array.requires_grad and module.is_grad_enabled():
        expected = "a tensor without a history: detach() it, or let interop.torch keep the gradients"
        raise ArgumentError(name, expected, "one that requires grad")


def to_engine(name: str, array: Any, device: str, xp: Any) -> Any:
    """Return an array of namespace `xp` (NumPy or CuPy) over the same memory, which must be on `device`.

    A call may mix arrays of several libraries.

    Raises:
        ArgumentError: not on `device`, or memory that cannot be shared.
    """
    kind = kind_of(name, array)
    if kind.device != device:
        raise ArgumentError(name, f"an array on {device}, where this runs", f"one on {kind.device}")
    if isinstance(array, np.ndarray):
        return plain(name, array)
    return array if isinstance(array, xp.ndarray) else _shared(name, array, kind, xp)


def check_dtype(name: str, array: Any, dtype: np.dtype[Any]) -> None:
    """Raise an error for an array that does not have the model's dtype."""
    if array.dtype != dtype:
        raise ArgumentError(name, f"{dtype}, the model's", array.dtype, aspect="dtype")


def check_writable(name: str, array: Any, native: Any) -> None:
    """Raise an error for a caller's array that cannot be written to; `native` is the engine's array over it."""
    library = library_of(array)
    if library == "jax":
        expected = "an array that can be written: JAX's never are, so take what is returned, or give NumPy's or CuPy's"
        raise ArgumentError(name, expected, "a JAX array")
    if library != "cupy" and not getattr(native.flags, "writeable", True):  # CuPy has no read-only arrays
        raise ArgumentError(name, "a writable array", "a read-only one")


def _shared(name: str, array: Any, kind: ArrayKind, xp: Any) -> Any:
    try:
        if kind.library == "jax" and kind.device == "cpu":
            return np.asarray(array)  # read-only, as JAX's memory has to stay; its DLPack would be writable
        if kind.library == "torch":
            torch = sys.modules["torch"]
            array = array.detach() if array.requires_grad else array
            if array.dtype is torch.bfloat16:  # NumPy's DLPack has no such type
                return xp.from_dlpack(array.view(torch.int16)).view(DType.BFLOAT16.numpy)
        return xp.from_dlpack(array)
    except _UNSHARED as error:
        raise ArgumentError(name, f"memory that {xp.__name__} can share", error) from error


def to_caller(array: Any, kind: ArrayKind) -> Any:
    """Return an engine's array as the caller's kind, over the same memory. Nobody may write to it afterwards.

    On the CPU, JAX copies memory that does not start at a multiple of ALIGNMENT_NBYTES. On CUDA, JAX gets a copy in its
    own memory: it frees CuPy's memory together with its array, and XLA may still be reading it then.
    """
    if kind.library in {"numpy", "cupy"}:
        return array
    library = sys.modules[kind.library]
    if kind.library == "torch":
        return _by_dlpack(array, library)
    # Without this, float64 would become float32 where JAX's default types are narrow.
    with library.enable_x64(True) if array.dtype.itemsize == 8 else contextlib.nullcontext():
        if kind.device == "cpu":
            return library.device_put(array, kind.place)
        return library.block_until_ready(library.numpy.copy(_by_dlpack(array, library.numpy)))


def _by_dlpack(array: Any, namespace: Any) -> Any:
    """Return a NumPy or CuPy array as one of `namespace` over the same memory. Their DLPack has no bfloat16."""
    if array.dtype.name == "bfloat16":
        return namespace.from_dlpack(array.view("int16")).view(namespace.bfloat16)
    return namespace.from_dlpack(array)


def stream_address(library: str, device: str) -> int | None:
    """Return the address of torch's current stream. None on the CPU, and for CuPy's stream, which the engine knows."""
    if library != "torch" or device == "cpu":
        return None
    address: int = sys.modules["torch"].cuda.current_stream(int(device.partition(":")[2])).cuda_stream
    return address


def libraries_of(*arrays: Any) -> frozenset[str]:
    """Return the libraries of a call's arrays; None is not an array."""
    return _libraries(frozenset(map(type, arrays)))


@functools.lru_cache(maxsize=256)
def _libraries(types: frozenset[type]) -> frozenset[str]:
    return frozenset(_library_of_type(kind) for kind in types if kind is not type(None))


def new(shape: tuple[int, ...], dtype: np.dtype[Any], xp: Any = np, *, zeros: bool = False) -> Any:
    """Return a new array, uninitialised or zeros, that every library in this process takes without a copy."""
    if xp is np and "jax" in sys.modules:  # looking for the place costs a microsecond
        return aligned(shape, dtype, zeros=zeros)
    return (xp.zeros if zeros else xp.empty)(shape, dtype)


def aligned(
    shape: tuple[int, ...], dtype: np.dtype[Any], *, zeros: bool = False, order: Literal["C", "F"] = "C"
) -> Any:
    """Return a new NumPy array whose memory begins at a cache line. BLAS reads its rows up to a quarter faster."""
    make = np.zeros if zeros else np.empty
    raw: npt.NDArray[np.uint8] = make(math.prod(shape) * dtype.itemsize + ALIGNMENT_NBYTES, np.uint8)
    start = -raw.__array_interface__["data"][0] % ALIGNMENT_NBYTES
    return np.ndarray(shape, dtype, raw, start, order=order)


def address(array: Any) -> int:
    """Return the address of a NumPy or CuPy array's first element.

    Args:
        array: a NumPy or CuPy array.
    """
    place = array.__array_interface__["data"][0] if isinstance(array, np.ndarray) else array.data.ptr
    return int(place)


def overlap(one: Any, other: Any) -> bool:
    """Return True if two NumPy or CuPy arrays of one device may share memory: their spans overlap."""
    (low, high), (start, end) = _span(one), _span(other)
    return low < end and start < high


def _span(array: Any) -> tuple[int, int]:
    """Return the lowest address of an array's elements and the end of the highest; both are equal without elements."""
    first = address(array)
    if not array.size:
        return first, first
    steps = [stride * (size - 1) for stride, size in zip(array.strides, array.shape, strict=True)]
    return first + sum(s for s in steps if s < 0), first + sum(s for s in steps if s > 0) + array.itemsize


def check_shape(name: str, array: Any, shape: tuple[int, ...], axes: str) -> None:
    """Raise an error for an array of another shape; `axes` names the axes in its message."""
    if tuple(array.shape) != shape:
        raise ArgumentError(name, f"{shape}, which is {axes}", tuple(array.shape), aspect="shape")


def to_host(name: str, array: Any) -> Any:
    """Return a NumPy array over a CPU array's memory, or a copy of a CUDA array, of any dtype.

    Raises:
        ArgumentError: its memory cannot be shared.
    """
    if library_of(array) == "torch":
        array = array.detach()  # only the numbers are asked for
    library = kind_of(name, array).library
    if library == "torch":
        return to_engine(name, array.cpu(), "cpu", np)
    return move(array, np) if library == "cupy" else np.asarray(array)


def host_values(name: str, values: Any) -> npt.NDArray[Any]:
    """Return an array of any library, a number or nested lists of them as a NumPy array."""
    host: npt.NDArray[Any] = np.asarray(to_host(name, values) if hasattr(values, "__dlpack_device__") else values)
    return host


def check_device(device: Any) -> str:
    """Return a device's name.

    Raises:
        ArgumentError: neither "cpu" nor "cuda" nor "cuda:<index>".
    """
    name = str(device)
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ArgumentError("device", "'cpu', 'cuda' or 'cuda:<index>'", shorten(device))
    return name


def namespace_of(array: Any, name: str = "inputs") -> Any:
    """Return the namespace of an array: its array API namespace, or its library."""
    if isinstance(array, np.ndarray):
        plain(name, array)
        return np
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    library = sys.modules.get(type(array).__module__.partition(".")[0])
    if library is None or not hasattr(library, "from_dlpack"):
        raise ArgumentTypeError(name, "an array of NumPy, torch or an array API library", type(array))
    return library


def into_namespace(array: Any, namespace: Any) -> Any:
    """Return a NumPy array as one of `namespace`, if possible without a copy; return other arrays unchanged."""
    return _by_dlpack(array, namespace) if isinstance(array, np.ndarray) and namespace is not np else array


def move(array: Any, xp: Any) -> Any:
    """Return a NumPy or CuPy array as one of namespace `xp`, copied between host and device if needed."""
    if isinstance(array, xp.ndarray):
        return array
    if xp is not np:
        return xp.asarray(array)
    with array.device:  # CuPy waits for the current stream of the current device, wherever the array is
        return array.get()
