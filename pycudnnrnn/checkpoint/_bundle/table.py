"""A sorted string table: the format of a bundle's index.

A table is a row of blocks with sorted keys and their values. A key omits the prefix that it shares with the key before
it. An index block has the places of the blocks, and a footer has the place of the index block. Every block has a
checksum.

Source: leveldb/doc/table_format.md; tensorflow/tsl/lib/io/format.cc and block_builder.cc.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pycudnnrnn.checkpoint._bundle.crc32c import checksum, masked
from pycudnnrnn.checkpoint._bundle.wire import Cursor, varint
from pycudnnrnn.checkpoint._refusal import Refusal

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
        for key, found in _entries(_block(data, *place)):
            names_nbytes += len(key)
            if names_nbytes > NAMES_NBYTES_MAX:
                raise ValueError(f"more than {NAMES_NBYTES_MAX} bytes of names")
            if before is not None and key <= before:
                raise ValueError(f"the key {key!r:.80} is not after the one before it")
            before = key
            yield key, found
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
        shared, own, value = block.varint(), block.varint(), block.varint()
        if shared + own > KEY_MAX:
            raise ValueError(f"a key of {shared} shared and {own} own bytes; the cap is {KEY_MAX}")
        key = key[:shared] + block.take(own)
        yield key, block.take(value)
