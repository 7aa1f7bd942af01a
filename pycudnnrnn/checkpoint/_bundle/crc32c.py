"""CRC-32C (Castagnoli), as TensorFlow's files have it: masked.

`google-crc32c` computes it where it is installed. Without it NumPy does, on many parts of the data side by side: a CRC
is linear over GF(2), so those of parts combine into that of the whole.

Source: RFC 3720, appendix B.4; tensorflow/tsl/lib/hash/crc32c.h for the mask.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_google: Any
try:
    import google_crc32c as _google
except ImportError:
    _google = None

POLYNOMIAL: Final = 0x82F63B78
"""Castagnoli's, bits reversed."""

LANES: Final = 4096
"""Parts that are computed together: their states fit into the cache, and NumPy's calls cost little in comparison."""

Words = npt.NDArray[np.uint32]


def masked(crc: int) -> int:
    """Return the masked form of a CRC, as files store it: the CRC of data that contains CRCs stays meaningful."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def checksum(data: Any, crc: int = 0) -> int:
    """Return the CRC of `data`, a buffer of contiguous bytes; `crc` is the CRC of the data before it."""
    if _google is not None:
        found: int = _google.extend(crc, bytes(data))
        return found
    return by_numpy(data, crc)


def by_numpy(data: Any, crc: int = 0) -> int:
    """Compute the same without `google-crc32c`."""
    rest = np.frombuffer(data, np.uint8)
    state = crc ^ 0xFFFFFFFF
    words = rest.size // (4 * LANES)
    if words:
        lanes = np.frombuffer(data, "<u4", LANES * words).reshape(LANES, words)
        state = _joined(_side_by_side(lanes), 4 * words, state)
        rest = rest[4 * LANES * words :]
    table = _byte_table().tolist()
    for byte in rest.tolist():
        state = table[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state ^ 0xFFFFFFFF


def _side_by_side(lanes: Words) -> Words:
    """Return the state after each row, beginning with 0."""
    low, high = _word_tables()
    state = np.zeros(len(lanes), np.uint32)
    for column in np.ascontiguousarray(lanes.T):
        state ^= column
        state = low[state & 0xFFFF] ^ high[state >> 16]
    return state


def _joined(states: Words, nbytes: int, first: int) -> int:
    """Join the states of parts of `nbytes` each, neighbour by neighbour. `first` is the state before the first part."""
    after = _zeros(nbytes)
    states = states.copy()
    states[0] ^= _times(after, np.array([first], np.uint32))[0]
    while len(states) > 1:
        states = _times(after, states[0::2]) ^ states[1::2]
        after = _times(after, after)
    return int(states[0])


def _zeros(nbytes: int) -> Words:
    """Return the matrix that `nbytes` zero bytes apply to a state: one word for each bit of the state."""
    bits: Words = np.left_shift(np.uint32(1), np.arange(32, dtype=np.uint32), dtype=np.uint32)
    power: Words = np.bitwise_xor(_byte_table()[bits & 0xFF], bits >> 8, dtype=np.uint32)
    found = bits
    while nbytes:
        if nbytes & 1:
            found = _times(power, found)
        power, nbytes = _times(power, power), nbytes >> 1
    return found


def _times(matrix: Words, states: Words) -> Words:
    found = np.zeros(len(states), np.uint32)
    for bit, column in enumerate(matrix):
        found ^= np.where(states >> np.uint32(bit) & 1, column, np.uint32(0))
    return found


@functools.cache
def _byte_table() -> Words:
    """Return the state after 8 zero bits, for each state of one byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(POLYNOMIAL), table >> 1)
    return table


@functools.cache
def _word_tables() -> tuple[Words, Words]:
    """Return the state after 32 zero bits, for the low and the high half of a state."""
    halves = np.arange(1 << 16, dtype=np.uint32)
    matrix = _zeros(4)
    return _times(matrix, halves), _times(matrix, halves << np.uint32(16))
