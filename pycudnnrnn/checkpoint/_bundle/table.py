"""The index of a bundle: a sorted string table, whose values are protocol buffers, with checksums.

A table is a row of blocks with sorted keys and their values. A key omits the prefix that it shares with the key before
it. An index block has the places of the blocks, and a footer has the place of the index block. Every block has a
checksum: CRC-32C (Castagnoli), masked. Damaged bytes raise errors of Python's own, which `parsing` turns into a
`Refusal`.

Source: leveldb/doc/table_format.md; tensorflow/tsl/lib/io/format.cc and block_builder.cc, and lib/hash/crc32c.h for the
mask; RFC 3720, appendix B.4; protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pycudnnrnn._checks import needs
from pycudnnrnn.checkpoint._file import Refusal

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

    def __contains__(self, number: int) -> bool:
        return number in self._fields

    def number(self, number: int) -> int:
        """Return a signed number, or 0 if it is absent."""
        value: int = self._fields.get(number, [0])[-1]
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


def field(number: int, value: int | bytes, kind: int = VARINT) -> bytes:
    """Write a field: a number as a varint, or as `kind` says; bytes with their length."""
    if isinstance(value, bytes):
        return varint(number << 3 | BYTES) + varint(len(value)) + value
    if kind == FIXED32:
        return varint(number << 3 | FIXED32) + value.to_bytes(4, "little")
    return varint(number << 3 | VARINT) + varint(value) if value else b""


def _value(cursor: Cursor, kind: int) -> int | bytes:
    if kind == VARINT:
        return cursor.varint()
    if kind == BYTES:
        return cursor.take(cursor.varint())
    return int.from_bytes(cursor.take({FIXED32: 4, FIXED64: 8}[kind]), "little")


PIECE_NBYTES: Final = 1 << 22
"""Bytes that are copied at a time: the library takes nothing but `bytes`."""


def masked(crc: int) -> int:
    """Return the masked form of a CRC, as files store it: the CRC of data that contains CRCs stays meaningful."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def checksum(data: Any) -> int:
    """Return the CRC of bytes, or of an array of bytes.

    Raises:
        MissingDependencyError: google-crc32c is not installed.
    """
    with needs("google-crc32c", "tf", "a checkpoint of TensorFlow's format"):
        import google_crc32c  # noqa: PLC0415  optional
    crc = 0
    for at in range(0, len(data), PIECE_NBYTES):
        crc = google_crc32c.extend(crc, bytes(data[at : at + PIECE_NBYTES]))
    return crc


TABLE_END: Final = (0xDB4775248B80FB57).to_bytes(8, "little")
"""The end of a table. Source: tensorflow/tsl/lib/io/format.h, kTableMagicNumber."""

FOOTER_NBYTES: Final = 48
"""Two places of blocks, zeros, and the magic number."""

TRAILER_NBYTES: Final = 5
"""The end of each block: its kind of compression and its masked CRC."""

KEY_MAX: Final = 4096
"""Most bytes of a key: ten times those of TF's names. Keys take fewer in the file, where they share prefixes."""

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
    end, before, names_nbytes = 0, None, 0
    for _, value in _entries(_block(data, *index)):
        place = _place(Cursor(value))
        if place[0] != end:
            raise ValueError(f"a block lies at byte {place[0]}, expecting {end}")
        end = sum(place) + TRAILER_NBYTES
        for key, content in _entries(_block(data, *place)):
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
    return bytes(data) + masked(checksum(data)).to_bytes(4, "little")


def _place_of(offset: int, block: bytes) -> bytes:
    return varint(offset) + varint(len(block) - TRAILER_NBYTES)


def _place(cursor: Cursor) -> tuple[int, int]:
    return cursor.varint(), cursor.varint()


def _block(data: bytes, offset: int, nbytes: int) -> Cursor:
    """Return a block's keys and values, after checking its checksum."""
    end = offset + nbytes
    trailer = data[end : end + TRAILER_NBYTES]
    if int.from_bytes(trailer[1:], "little") != masked(checksum(data[offset : end + 1])):
        raise Refusal("hash", f"the block at byte {offset} is not the one that was written (CRC-32C differs)")
    restarts = int.from_bytes(data[end - 4 : end], "little")
    return Cursor(data[offset : end - 4 - 4 * restarts])


def _entries(block: Cursor) -> Iterator[tuple[bytes, bytes]]:
    key = b""
    while block.left:
        shared, unshared, value = block.varint(), block.varint(), block.varint()
        if shared + unshared > KEY_MAX:
            raise ValueError(f"a key of {shared} shared and {unshared} own bytes; the cap is {KEY_MAX}")
        key = key[:shared] + block.take(unshared)
        yield key, block.take(value)
