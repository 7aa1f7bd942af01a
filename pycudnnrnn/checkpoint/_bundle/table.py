"""A sorted string table: the format of a bundle's index.

A table is a row of blocks with sorted keys and their values. A key omits the prefix that it shares with the key before
it. An index block has the places of the blocks, and a footer has the place of the index block. Every block has a
checksum.

Source: leveldb/doc/table_format.md; tensorflow/tsl/lib/io/format.cc and block_builder.cc.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Final

from pycudnnrnn.checkpoint._bundle.crc32c import checksum, masked
from pycudnnrnn.checkpoint._bundle.wire import Cursor, varint
from pycudnnrnn.checkpoint._file_formats import TABLE_END
from pycudnnrnn.checkpoint._refusal import Refusal

FOOTER_NBYTES: Final = 48
"""Two places of blocks, zeros, and the magic number."""

TRAILER_NBYTES: Final = 5
"""The end of each block: its kind of compression and its masked CRC."""

KEY_MAX: Final = 4096
"""Most bytes of a key: ten times those of TF's names. Keys take fewer in the file, where they share prefixes."""

KEYS_MAX: Final = 1 << 16
"""Most keys. A large model trained with Adam has a few thousand variables."""

NAMES_NBYTES_MAX: Final = 1 << 24
"""Most bytes of all keys: 256 for each of the most keys."""

BLOCK_NBYTES: Final = 1 << 18
"""The size at which a written block ends. Source: tensorflow/tsl/lib/io/table_options.h."""

RESTART_INTERVAL: Final = 16
"""Distance between keys that are written in full. In the index block all are. Source: the same."""


def read(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values. The keys are in order and unique.

    Raises:
        Refusal: not a table, or a damaged one.
    """
    if len(data) < FOOTER_NBYTES or not data.endswith(TABLE_END):
        raise Refusal("header form", "it does not end as an index of TensorFlow's does")
    footer = Cursor(data, len(data) - FOOTER_NBYTES, len(data))
    meta, index = _place(footer), _place(footer)
    if any(footer.take(footer.left - len(TABLE_END))):
        raise Refusal("header form", "its footer has more than the places of two blocks")
    end, before, keys, names_nbytes = 0, b"", 0, 0
    for _, value in _entries(_block(data, *index)):
        place = _place(Cursor(value))
        if place[0] != end:
            raise Refusal("header form", f"a block lies at byte {place[0]}, expecting {end}: they lie side by side")
        end = sum(place) + TRAILER_NBYTES
        for key, found in _entries(_block(data, *place)):
            keys, names_nbytes = keys + 1, names_nbytes + len(key)
            if keys > KEYS_MAX or names_nbytes > NAMES_NBYTES_MAX:
                raise Refusal("too many tensors", f"the cap is {KEYS_MAX}, and {NAMES_NBYTES_MAX} bytes of names")
            if keys > 1 and key <= before:
                raise Refusal("header form", f"key {keys} is not after the one before it")
            before = key
            yield key, found
    _block(data, *meta)  # nothing in it is needed, but it must be undamaged, too
    if meta[0] != end or index[0] != sum(meta) + TRAILER_NBYTES:
        raise Refusal("header form", "its blocks do not lie side by side")
    if sum(index) + TRAILER_NBYTES + FOOTER_NBYTES != len(data):
        raise Refusal("size", f"{len(data)} bytes where its blocks and its footer have another number")


def written(entries: Mapping[bytes, bytes]) -> bytes:
    """Return the table of these keys and values, as TensorFlow writes it, byte for byte."""
    out, index, block = bytearray(), _Builder(interval=1), _Builder()

    def end(finished: _Builder) -> bytes:
        contents = finished.contents()
        place = varint(len(out)) + varint(len(contents))
        out.extend(contents + b"\0" + masked(checksum(contents + b"\0")).to_bytes(4, "little"))
        return place

    keys = sorted(entries)
    for key, after in itertools.zip_longest(keys, keys[1:]):
        block.add(key, entries[key])
        if after is None or block.nbytes >= BLOCK_NBYTES:
            index.add(_between(key, after), end(block))
            block = _Builder()
    places = end(block) + end(index)
    return bytes(out) + places.ljust(FOOTER_NBYTES - len(TABLE_END), b"\0") + TABLE_END


def _between(key: bytes, after: bytes | None) -> bytes:
    """Return a short key, at least `key` and less than `after`: the index's entry for a block.

    Source: leveldb/util/comparator.cc.
    """
    if after is None:
        at = next((i for i, byte in enumerate(key) if byte < 0xFF), None)
        return key if at is None else key[:at] + bytes([key[at] + 1])
    at = _shared(key, after)
    if at < min(len(key), len(after)) and key[at] + 1 < after[at]:
        return key[:at] + bytes([key[at] + 1])
    return key


def _shared(a: bytes, b: bytes) -> int:
    """Return the length of the common prefix of two keys."""
    both = min(len(a), len(b))
    return next((i for i in range(both) if a[i] != b[i]), both)


class _Builder:
    """A block to which keys and values are added."""

    def __init__(self, interval: int = RESTART_INTERVAL) -> None:
        self._interval = interval
        self.keys = 0
        self._last = b""
        self._data = bytearray()
        self._restarts = [0]

    @property
    def nbytes(self) -> int:
        return len(self._data) + 4 * len(self._restarts) + 4

    def add(self, key: bytes, value: bytes) -> None:
        shared = _shared(key, self._last)
        if self.keys and self.keys % self._interval == 0:
            self._restarts.append(len(self._data))
            shared = 0
        self._data += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        self._last = key
        self.keys += 1

    def contents(self) -> bytes:
        numbers = [*self._restarts, len(self._restarts)]
        return bytes(self._data) + b"".join(number.to_bytes(4, "little") for number in numbers)


def _place(cursor: Cursor) -> tuple[int, int]:
    return cursor.varint(), cursor.varint()


def _block(data: bytes, offset: int, nbytes: int) -> Cursor:
    """Return a block's keys and values, after checking its checksum."""
    end = offset + nbytes
    if end + TRAILER_NBYTES > len(data) - FOOTER_NBYTES:
        raise Refusal("header form", f"a block of {nbytes} bytes at {offset} reaches over the end of the file")
    stored = int.from_bytes(data[end + 1 : end + TRAILER_NBYTES], "little")
    if stored != masked(checksum(data[offset : end + 1])):
        raise Refusal("hash", f"the block at byte {offset} is not the one that was written (its CRC-32C differs)")
    if data[end]:
        raise Refusal("header form", f"the block at byte {offset} is compressed, which TensorFlow's own are not")
    restarts = int.from_bytes(data[end - 4 : end], "little") if nbytes >= 4 else -1
    if not 0 <= 4 * restarts <= nbytes - 4:
        raise Refusal("header form", f"the block at byte {offset} has no room for what it says of itself")
    return Cursor(data, offset, end - 4 - 4 * restarts)


def _entries(block: Cursor) -> Iterator[tuple[bytes, bytes]]:
    key = b""
    while block.left:
        shared, own, value = block.varint(), block.varint(), block.varint()
        if shared > len(key) or shared + own > KEY_MAX:
            raise Refusal("header form", f"a key of {shared} shared and {own} own bytes; the cap is {KEY_MAX}")
        key = key[:shared] + block.take(own)
        yield key, block.take(value)
