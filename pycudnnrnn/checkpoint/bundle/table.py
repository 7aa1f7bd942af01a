"""The index of a bundle: a sorted string table of entries, which are protocol buffers, with checksums.

A table is a row of blocks with sorted keys and their values. A key omits the prefix that it shares with the key before
it. An index block has the places of the blocks, and a footer has the place of the index block. Every block has a
checksum: CRC-32C (Castagnoli), masked. The empty key has the header; each other key is a tensor's name, or one of its
slices. Damaged bytes raise errors of Python's own, which `parsing` turns into a `Refusal`.

Source: leveldb/doc/table_format.md; tensorflow/tsl/lib/io/format.cc and block_builder.cc, and lib/hash/crc32c.h for the
mask; RFC 3720, appendix B.4; protobuf.dev/programming-guides/encoding; tensorflow/core/protobuf/tensor_bundle.proto,
core/framework/tensor_shape.proto and tensor_slice.proto; core/util/saved_tensor_slice_util.cc for the keys of slices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, Self

import numpy as np

from pycudnnrnn._checks import needs
from pycudnnrnn.checkpoint.safetensors_file import Refusal, TensorSpec
from pycudnnrnn.spec import DType

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5

_64_BITS: Final = 2**64 - 1


class Cursor:
    """A position in bytes from an untrusted file."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise ValueError(f"{count} bytes are announced where {self.left} are left")
        self._at += count
        return self._data[self._at - count : self._at]

    def varint(self) -> int:
        value = shift = 0
        while shift < 64:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value & _64_BITS
        raise ValueError("a number of more than 64 bits")


class Message:
    """A message from an untrusted file: its fields by number. Unknown fields are skipped, as in protobuf."""

    def __init__(self, data: bytes) -> None:
        self._fields: dict[int, list[Any]] = {}
        cursor = Cursor(data)
        while cursor.left:
            tag = cursor.varint()
            self._fields.setdefault(tag >> 3, []).append(_value(cursor, tag & 7))

    def number(self, number: int, absent: int = 0) -> int:
        """Return a signed number, or `absent`."""
        value: int = self._fields.get(number, [absent])[-1]
        return value - 2**64 if value >= 2**63 else value

    def message(self, number: int) -> Message:
        """Return a message, or an empty one if it is absent."""
        return Message(self._fields.get(number, [b""])[-1])

    def messages(self, number: int) -> list[Message]:
        return [Message(data) for data in self._fields.get(number, [])]


def varint(value: int) -> bytes:
    """Write a number of at most 64 bits, a negative one in two's complement."""
    value &= _64_BITS
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def field(number: int, value: int | bytes) -> bytes:
    """Write a field: a number as a varint, or bytes with their length."""
    if isinstance(value, bytes):
        return varint(number << 3 | BYTES) + varint(len(value)) + value
    return varint(number << 3 | VARINT) + varint(value) if value else b""


def _value(cursor: Cursor, kind: int) -> int | bytes:
    if kind == VARINT:
        return cursor.varint()
    if kind == BYTES:
        return cursor.take(cursor.varint())
    return int.from_bytes(cursor.take({FIXED32: 4, FIXED64: 8}[kind]), "little")


PIECE_NBYTES: Final = 1 << 22
"""Bytes that are copied at a time: the library takes nothing but `bytes`."""


def checksum(data: Any) -> int:
    """Return the CRC of bytes, masked as files store it: the CRC of data that contains CRCs stays meaningful.

    Raises:
        MissingDependencyError: google-crc32c is not installed.
    """
    with needs("google-crc32c", "tf", "a checkpoint of TensorFlow's format"):
        import google_crc32c  # noqa: PLC0415  optional
    crc = 0
    for at in range(0, len(data), PIECE_NBYTES):
        crc = google_crc32c.extend(crc, bytes(data[at : at + PIECE_NBYTES]))
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


TABLE_END: Final = (0xDB4775248B80FB57).to_bytes(8, "little")
"""The end of a table. Source: tensorflow/tsl/lib/io/format.h, kTableMagicNumber."""

FOOTER_NBYTES: Final = 48
"""Two places of blocks, zeros, and the magic number."""

TRAILER_NBYTES: Final = 5
"""The end of each block: its kind of compression and its masked CRC."""

KEY_MAX: Final = 4096
"""Most bytes of a key that is written: ten times those of TF's names."""

NAMES_NBYTES_MAX: Final = 1 << 24
"""Most bytes of all keys: about 100 for each of 150,000 tensors."""


def read(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values. The keys are in order and unique.

    Raises:
        Refusal, ValueError, LookupError: not a table, or a damaged one.
    """
    if len(data) < FOOTER_NBYTES or not data.endswith(TABLE_END):
        raise ValueError("it does not end as an index of TensorFlow's does")
    footer = Cursor(data[-FOOTER_NBYTES:])
    meta, index = _place(footer), _place(footer)
    if any(footer.take(footer.left - len(TABLE_END))):
        raise ValueError("its footer has more than the places of two blocks")
    before, names_nbytes = None, 0
    for _, value in _entries(_block(data, *index)):
        for key, content in _entries(_block(data, *_place(Cursor(value)))):
            names_nbytes += len(key)
            if names_nbytes > NAMES_NBYTES_MAX:
                raise ValueError(f"more than {NAMES_NBYTES_MAX} bytes of names")
            if before is not None and key <= before:
                raise ValueError(f"the key {key!r:.80} is not after the one before it")
            before = key
            yield key, content
    _block(data, *meta)  # nothing in it is needed, but it must be undamaged, too


def written(entries: Mapping[bytes, bytes]) -> bytes:
    """Return the table of these keys and values: one block, in which every key is complete."""
    keys = sorted(entries)
    block = _sealed([(key, entries[key]) for key in keys])
    meta, index = _sealed([]), _sealed([(keys[-1], _place_of(0, block))])
    places = _place_of(len(block), meta) + _place_of(len(block + meta), index)
    return block + meta + index + places.ljust(FOOTER_NBYTES - len(TABLE_END), b"\0") + TABLE_END


def _sealed(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """Return a block with its trailer. Each key is a restart, where a reader may begin."""
    data, restarts = bytearray(), []
    for key, value in pairs:
        restarts.append(len(data))
        data += varint(0) + varint(len(key)) + varint(len(value)) + key + value
    numbers = [*(restarts or [0]), max(len(restarts), 1)]
    data += b"".join(number.to_bytes(4, "little") for number in numbers) + b"\0"
    return bytes(data) + checksum(data).to_bytes(4, "little")


def _place_of(offset: int, block: bytes) -> bytes:
    return varint(offset) + varint(len(block) - TRAILER_NBYTES)


def _place(cursor: Cursor) -> tuple[int, int]:
    return cursor.varint(), cursor.varint()


def _block(data: bytes, offset: int, nbytes: int) -> Cursor:
    """Return a block's keys and values, after checking its checksum."""
    end = offset + nbytes
    trailer = data[end : end + TRAILER_NBYTES]
    if int.from_bytes(trailer[1:], "little") != checksum(data[offset : end + 1]):
        raise Refusal("hash", f"the block at byte {offset} is not the one that was written (CRC-32C differs)")
    restarts = int.from_bytes(data[end - 4 : end], "little")
    return Cursor(data[offset : end - 4 - 4 * restarts])


def _entries(block: Cursor) -> Iterator[tuple[bytes, bytes]]:
    key = b""
    while block.left:
        shared, unshared, value = block.varint(), block.varint(), block.varint()
        key = key[:shared] + block.take(unshared)
        yield key, block.take(value)


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
            varint(6 << 3 | FIXED32), self.crc.to_bytes(4, "little"),
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
    return tuple((extent.number(1), extent.number(2, ALL)) for extent in extents)
