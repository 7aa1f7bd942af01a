"""The entries of a bundle's index: its header, one entry for each tensor, and the keys of slices.

Source: tensorflow/core/protobuf/tensor_bundle.proto, tensorflow/core/framework/tensor_shape.proto and
tensor_slice.proto; tensorflow/core/util/saved_tensor_slice_util.cc for the keys.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple, Self

import numpy as np

from pycudnnrnn.checkpoint._bundle.table import FIXED32, Message, field
from pycudnnrnn.checkpoint._file import Refusal, TensorSpec
from pycudnnrnn.spec import DType

VERSION: Final = 1
"""The version of the format that is written; no newer one is read."""

SHARDS_MAX: Final = 4096
"""Most files of a bundle. Each machine of a training writes one."""

NBYTES_MAX: Final = 1 << 48
"""Most bytes of a tensor: more than any file has, but small enough to keep arithmetic on sizes cheap."""

DTYPES: Final = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 8: "complex64", 9: "int64", 10: "bool",
    14: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16", 22: "uint32", 23: "uint64",
}  # fmt: skip
"""The numbers of the DataTypes that NumPy has. Source: tensorflow/core/framework/types.proto."""

Extents = tuple[tuple[int, int], ...]
"""Start and length in each dimension."""

ALL: Final = -1
"""The length of a part that spans a whole dimension."""


def read_header(data: bytes) -> int:
    """Return the number of shards in the entry under the empty key."""
    message = Message(data)
    shards, newest = message.number(1), message.message(3).number(2)
    if not 1 <= shards <= SHARDS_MAX:
        raise ValueError(f"{shards} shards; the cap is {SHARDS_MAX}")
    if message.number(2):
        raise ValueError("written on a big-endian machine")
    if newest > VERSION:
        raise ValueError(f"it needs a reader of version {newest}, and this one is of {VERSION}")
    return shards


def header(num_shards: int) -> bytes:
    """Write the entry under the empty key."""
    return field(1, num_shards) + field(3, field(1, VERSION))


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
        slices = tuple(_extents(part) for part in message.messages(7))
        numbers = (message.number(3), message.number(4), message.number(5))
        if shape.number(3) or min((*sizes, *numbers)) < 0:
            raise ValueError(f"an entry with an unknown or negative number: {sizes}, {numbers}")
        return cls(message.number(1), sizes, *numbers, message.number(6) & 0xFFFFFFFF, slices)

    def written(self) -> bytes:
        sizes = b"".join(field(2, field(1, size)) for size in self.shape)
        return b"".join([
            field(1, self.kind), field(2, sizes), field(3, self.shard), field(4, self.offset), field(5, self.size),
            field(6, self.crc, FIXED32),
        ])  # fmt: skip

    def spec(self) -> TensorSpec:
        """Return the array's shape and dtype.

        Raises:
            Refusal: no array of numbers, or more of them than any file has, or another number of bytes.
        """
        if self.kind not in DTYPES:
            raise Refusal("mismatch", f"it is of TensorFlow's dtype {self.kind}, which NumPy has no numbers of")
        name = DTYPES[self.kind]
        spec = TensorSpec(self.shape, DType.BFLOAT16.numpy if name == "bfloat16" else np.dtype(name))
        # NumPy multiplies the other sizes even if one is 0.
        if math.prod(max(size, 1) for size in self.shape) * spec.dtype.itemsize > NBYTES_MAX:
            raise Refusal("format", f"{list(self.shape)} is more than {NBYTES_MAX} bytes")
        if not self.slices and self.size != spec.nbytes:
            raise Refusal("format", f"{self.size} bytes where its shape and dtype have {spec.nbytes}")
        return spec


def slice_key(name: str, extents: Extents) -> bytes:
    """Return the key of a part. Keys sort in the order of names and numbers.

    Source: tensorflow/core/lib/strings/ordered_code.cc.
    """
    rank = len(extents).to_bytes(1, "big")
    return b"\x00" + name.encode() + b"\x00\x01\x01" + rank + b"".join(_signed(n) for extent in extents for n in extent)


def _signed(value: int) -> bytes:
    """Write a number as n bytes with the n highest bits inverted, and 7 bits of the number in each byte."""
    count = (value ^ (value >> 63)).bit_length() // 7 + 1
    flipped = (value & ((1 << 8 * count) - 1)) ^ (((1 << count) - 1) << 7 * count)
    return flipped.to_bytes(count, "big")


def _extents(part: Message) -> Extents:
    """Read a part's start and length in each dimension; a missing length is -1, the whole dimension."""
    extents = part.messages(1)
    return tuple((extent.number(1), extent.number(2) if 2 in extent else ALL) for extent in extents)
