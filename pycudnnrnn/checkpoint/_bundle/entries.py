"""The entries of a bundle's index: its header, one entry for each tensor, and the keys of slices.

Source: tensorflow/core/protobuf/tensor_bundle.proto, tensorflow/core/framework/tensor_shape.proto and
tensor_slice.proto; tensorflow/core/util/saved_tensor_slice_util.cc for the keys.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Final, NamedTuple, Self

import numpy as np

from pycudnnrnn.checkpoint._bundle.wire import FIXED32, Message, field
from pycudnnrnn.checkpoint._file import TensorSpec
from pycudnnrnn.checkpoint._refusal import Refusal
from pycudnnrnn.errors import MissingDependencyError
from pycudnnrnn.spec import DType

VERSION: Final = 1
"""The version of the format that is written; no newer one is read."""

SHARDS_MAX: Final = 4096
"""Most files of a bundle. Each machine of a training writes one."""

RANK_MAX: Final = 32
"""Most dimensions: the limit of NumPy 1. TensorFlow's is 254."""

NBYTES_MAX: Final = 1 << 48
"""Most bytes of a tensor: more than any file has, but small enough to keep arithmetic on sizes cheap."""

DTYPES: Final = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 8: "complex64", 9: "int64", 10: "bool",
    14: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16", 22: "uint32", 23: "uint64",
}  # fmt: skip
"""The numbers of the DataTypes that NumPy has. Source: tensorflow/core/framework/types.proto."""

OTHER_DTYPES: Final = {
    7: "string", 11: "qint8", 12: "quint8", 13: "qint32", 15: "qint16", 16: "quint16", 20: "resource", 21: "variant",
    24: "float8_e5m2", 25: "float8_e4m3fn", 26: "float8_e4m3fnuz", 27: "float8_e4m3b11fnuz", 28: "float8_e5m2fnuz",
    29: "int4", 30: "uint4", 31: "int2", 32: "uint2",
}  # fmt: skip
"""The numbers of the DataTypes that NumPy does not have."""


Extents = tuple[tuple[int, int], ...]
"""Start and length in each dimension."""

ALL: Final = -1
"""The length of a part that spans a whole dimension."""


class Header(NamedTuple):
    """The entry under the empty key."""

    num_shards: int

    @classmethod
    def read(cls, data: bytes) -> Self:
        message = Message(data)
        shards, newest = message.number(1), message.message(3).number(2)
        if not 1 <= shards <= SHARDS_MAX:
            raise Refusal("metadata", f"{shards} shards; the cap is {SHARDS_MAX}")
        if message.number(2):
            raise Refusal("metadata", "written on a big-endian machine")
        if newest > VERSION:
            raise Refusal("metadata", f"it needs a reader of version {newest}, and this one is of {VERSION}")
        return cls(shards)

    def written(self) -> bytes:
        return field(1, self.num_shards) + field(3, field(1, VERSION))


class Entry(NamedTuple):
    """One tensor: its dtype, shape and place, and its masked CRC. `slices` are the parts of a partitioned variable."""

    kind: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int
    slices: tuple[Extents, ...] = ()

    @classmethod
    def read(cls, data: bytes) -> Self:
        message = Message(data)
        shape = message.message(2)
        sizes = tuple(dim.number(1) for dim in shape.messages(2))
        if shape.number(3) or min(sizes, default=0) < 0 or len(sizes) > RANK_MAX:
            raise Refusal("shape", f"no shape of at most {RANK_MAX} known sizes")
        slices = tuple(_extents(part) for part in message.messages(7))
        numbers = (message.number(3), message.number(4), message.number(5))
        if min(numbers) < 0:
            raise Refusal("offsets", f"shard, offset and size are {numbers}")
        return cls(message.number(1), sizes, *numbers, message.number(6) & 0xFFFFFFFF, slices)

    def written(self) -> bytes:
        sizes = b"".join(field(2, field(1, size)) for size in self.shape)
        return b"".join([
            field(1, self.kind), field(2, sizes), field(3, self.shard), field(4, self.offset), field(5, self.size),
            field(6, self.crc, FIXED32),
        ])  # fmt: skip

    @property
    def dtype_name(self) -> str:
        return DTYPES.get(self.kind) or OTHER_DTYPES.get(self.kind, f"number {self.kind}")

    def spec(self) -> TensorSpec:
        """Return the array's shape and dtype.

        Raises:
            Refusal: no array of numbers, or more of them than any file has.
        """
        if self.kind not in DTYPES:
            raise Refusal("dtype", f"it is of {self.dtype_name}, which is not an array of numbers of NumPy's")
        spec = TensorSpec(self.shape, numpy_dtype(DTYPES[self.kind]))
        # NumPy multiplies the other sizes even if one is 0.
        if math.prod(max(size, 1) for size in self.shape) * spec.dtype.itemsize > NBYTES_MAX:
            raise Refusal("shape", f"{list(self.shape)} is more than {NBYTES_MAX} bytes")
        return spec


@functools.cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    if name != "bfloat16":
        return np.dtype(name)
    try:
        return DType.BFLOAT16.numpy
    except MissingDependencyError as error:
        raise Refusal("dtype", str(error)) from error


def slice_key(name: str, extents: Extents) -> bytes:
    """Return the key of a part. Keys sort in the order of names and numbers.

    Source: tensorflow/core/lib/strings/ordered_code.cc.
    """
    escapes = {0x00: b"\x00\xff", 0xFF: b"\xff\x00"}
    escaped = b"".join(escapes.get(byte, bytes([byte])) for byte in name.encode())
    rank = len(extents).to_bytes(1, "big")
    return b"\x00" + escaped + b"\x00\x01\x01" + rank + b"".join(_signed(n) for extent in extents for n in extent)


def _signed(value: int) -> bytes:
    """Write a number as n bytes with the n highest bits inverted, and 7 bits of the number in each byte."""
    count = (value ^ (value >> 63)).bit_length() // 7 + 1
    flipped = (value & ((1 << 8 * count) - 1)) ^ (((1 << count) - 1) << 7 * count)
    return flipped.to_bytes(count, "big")


def _extents(part: Message) -> Extents:
    """Read a part's start and length in each dimension; a missing length is -1, the whole dimension."""
    extents = part.messages(1)
    return tuple((extent.number(1), extent.number(2) if 2 in extent else ALL) for extent in extents)
