"""What an argument of a C function may be: a converter for each kind, in place of ctypes' permissive ones.

ctypes alone takes 2**32 + 16 for 16, True for 1, None for any pointer and a host array for a device address. Each kind
here refuses what is not meant, and says in `c` how the header spells it, so that a test can compare the two.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import numpy as np

from pycudnnrnn._checks import check_int, check_real
from pycudnnrnn._libcudnn.enums import CEnum
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError

FLOAT_MAX: Final = float(np.finfo(np.float32).max)
"""Largest finite C `float`."""


@dataclass(frozen=True)
class Kind:
    """One kind of argument; `convert` gives what ctypes is to pass, or raises an error that has the argument's name."""

    c: str

    def convert(self, name: str, value: Any, /) -> Any:
        raise NotImplementedError

    @property
    def native(self) -> Any:
        """The type that ctypes itself has for it, where there is one."""
        raise NotImplementedError

    def from_param(self, value: Any) -> Any:
        """Convert one argument of a call, for ctypes."""
        return self.convert("value", value)


class cudaStream_t(ctypes.c_void_p):
    """A CUDA stream, as its address; 0 is the legacy default stream. Source: driver_types.h."""


def _opaque(struct: str, pointer: str) -> Any:
    kind: Any = ctypes.POINTER(type(struct, (ctypes.Structure,), {}))
    kind.__name__ = pointer
    return kind


# Any: ctypes makes pointer types at run time. One each, so that none passes for another.
cudnnHandle_t: Any = _opaque("cudnnContext", "cudnnHandle_t")
cudnnTensorDescriptor_t: Any = _opaque("cudnnTensorStruct", "cudnnTensorDescriptor_t")
cudnnFilterDescriptor_t: Any = _opaque("cudnnFilterStruct", "cudnnFilterDescriptor_t")
cudnnDropoutDescriptor_t: Any = _opaque("cudnnDropoutStruct", "cudnnDropoutDescriptor_t")
cudnnRNNDescriptor_t: Any = _opaque("cudnnRNNStruct", "cudnnRNNDescriptor_t")
cudnnRNNDataDescriptor_t: Any = _opaque("cudnnRNNDataStruct", "cudnnRNNDataDescriptor_t")

OPAQUE: Final = (
    cudnnHandle_t,
    cudnnTensorDescriptor_t,
    cudnnFilterDescriptor_t,
    cudnnDropoutDescriptor_t,
    cudnnRNNDescriptor_t,
    cudnnRNNDataDescriptor_t,
)


@dataclass(frozen=True)
class Integer(Kind):
    """An integer by value, in the range of its C type."""

    ctype: type[Any]
    low: int
    high: int

    @property
    def native(self) -> Any:
        return self.ctype

    def convert(self, name: str, value: Any, /) -> Any:
        return self.ctype(check_int(name, value, self.low, self.high))


@dataclass(frozen=True)
class Real(Kind):
    """A real number by value; what a C type cannot hold is refused rather than turned into infinity."""

    ctype: type[Any]
    high: float

    @property
    def native(self) -> Any:
        return self.ctype

    def convert(self, name: str, value: Any, /) -> Any:
        number = check_real(name, value)
        if math.isfinite(number) and abs(number) > self.high:
            raise ArgumentError(name, f"a number from {-self.high} to {self.high}", number)
        return self.ctype(number)


@dataclass(frozen=True)
class Enumerated(Kind):
    """A member of one enumeration, or its plain value; a member of another one is refused."""

    enum: type[CEnum]
    known: bool = True

    @property
    def native(self) -> Any:
        return ctypes.c_int

    def convert(self, name: str, value: Any, /) -> Any:
        if isinstance(value, self.enum):
            return ctypes.c_int(value)
        if isinstance(value, Enum):
            raise ArgumentTypeError(name, f"a {self.c}", repr(value))
        number = check_int(name, value, -(2**31), 2**31 - 1)
        if self.known and number not in self.enum._value2member_map_:
            raise ArgumentError(name, f"a {self.c}: {', '.join(f'{m.value} {m.name}' for m in self.enum)}", number)
        return ctypes.c_int(number)


@dataclass(frozen=True)
class Opaque(Kind):
    """A pointer of one opaque type, or its owner."""

    pointer: Any
    null: bool = False

    @property
    def native(self) -> Any:
        return self.pointer

    def convert(self, name: str, value: Any, /) -> Any:
        if value is None and self.null:
            return None
        value = getattr(value, "_as_parameter_", value)
        if type(value) is not self.pointer:
            raise ArgumentTypeError(name, f"a {self.c}", repr(value))
        if not value:
            raise ArgumentError(name, f"a {self.c} that was created", "NULL")
        return value


@dataclass(frozen=True)
class Address(Kind):
    """An address as a number, in device memory: host arrays, strings and bytes are refused, and 0 unless `null`."""

    ctype: type[ctypes.c_void_p] = ctypes.c_void_p
    null: bool = False

    @property
    def native(self) -> Any:
        return self.ctype

    def convert(self, name: str, value: Any, /) -> Any:
        if type(value) is self.ctype:
            value = value.value or 0
        if value is None and self.null:
            return None
        return self.ctype(check_int(name, value, 0 if self.null else 1, 2**64 - 1))


@dataclass(frozen=True)
class Reference(Kind):
    """Where the function writes a value: `byref` or `pointer` of the right ctypes object, or that object itself."""

    target: Any

    def convert(self, name: str, value: Any, /) -> Any:
        wanted = f"a reference to a {self.target.__name__}"
        pointer = ctypes.POINTER(self.target)
        if value is None or (isinstance(value, (pointer, ctypes.Array)) and not value):
            raise ArgumentError(name, wanted, "NULL or nothing")
        try:
            return pointer.from_param(value)
        except TypeError:
            raise ArgumentTypeError(name, wanted, repr(value)) from None


@dataclass(frozen=True)
class HostValue(Kind):
    """One value in host memory, of a type that the function learns from another argument; 8 bytes hold any."""

    def convert(self, name: str, value: Any, /) -> Any:
        if value is None:
            return None
        if isinstance(value, ctypes.Array) and ctypes.sizeof(value) >= ctypes.sizeof(ctypes.c_double):
            return ctypes.byref(value)
        raise ArgumentTypeError(name, "a ctypes array of 8 bytes or more", repr(value))


@dataclass(frozen=True)
class Array(Kind):
    """An array of `ctype`, at least as long as the argument `count` says.

    An input is a sequence or an integer array, each element checked, or a ctypes array; an output is a ctypes array.
    """

    ctype: Any
    count: str
    output: bool = False

    def convert(self, name: str, value: Any, /) -> Any:
        if isinstance(value, ctypes.Array) and value._type_ is self.ctype:
            return value
        if self.output:
            raise ArgumentTypeError(name, f"a ctypes array of {self.ctype.__name__}", repr(value))
        numbers = int32_values(name, value)
        return (self.ctype * len(numbers)).from_buffer_copy(numbers)


def int32_values(name: str, value: Any) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Turn a sequence or a one-dimensional integer array in host memory into int32, each element checked."""
    low, high = -(2**31), 2**31 - 1
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.ndim == 1:
        if value.size and not (low <= int(value.min()) and int(value.max()) <= high):
            raise ArgumentError(name, f"integers from {low} to {high}", f"{value.min()} to {value.max()}")
        return value.astype(np.int32)
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray)):
        raise ArgumentTypeError(name, "a sequence or one-dimensional array of integers on the host", repr(value))
    return np.array([check_int(f"{name}[{i}]", number, low, high) for i, number in enumerate(value)], np.int32)


int32_t: Final = Integer("int", ctypes.c_int, -(2**31), 2**31 - 1)
uint32_t: Final = Integer("unsigned", ctypes.c_uint, 0, 2**32 - 1)
size_t: Final = Integer("size_t", ctypes.c_size_t, 0, 2**64 - 1)
unsigned_long_long: Final = Integer("unsigned long long", ctypes.c_ulonglong, 0, 2**64 - 1)
float_: Final = Real("float", ctypes.c_float, FLOAT_MAX)
double: Final = Real("double", ctypes.c_double, math.inf)
stream: Final = Address("cudaStream_t", cudaStream_t, null=True)
device_in: Final = Address("const void *")
device_out: Final = Address("void *")
device_lengths: Final = Address("const int *", null=True)
"""devSeqLengths. The header says array, but it is device memory; from 8.9.1 on it is ignored, and NULL is right."""
address_out: Final = Reference("void **", ctypes.c_void_p)
host_value: Final = HostValue("void *")


def out(kind: Any) -> Reference:
    """Where a function writes a value of the kind."""
    if isinstance(kind, type) and issubclass(kind, CEnum):
        return Reference(f"{kind.__name__} *", ctypes.c_int)
    if isinstance(kind, (Integer, Real)):
        return Reference(f"{kind.c} *", kind.ctype)
    return Reference(f"{kind.__name__} *", kind)


def null(kind: Any) -> Any:
    """The same kind, with None for NULL where cuDNN allows it."""
    return replace(kind if isinstance(kind, Address) else Opaque(kind.__name__, kind), null=True)


def ints(count: str) -> Array:
    return Array("const int *", ctypes.c_int, count)


def ints_out(count: str) -> Array:
    return Array("int *", ctypes.c_int, count, output=True)


def text_out(count: str) -> Array:
    return Array("char *", ctypes.c_char, count, output=True)
