"""Protocol buffers as bytes, as far as a bundle needs them: numbers, and messages in messages.

Damaged bytes raise errors of Python's own, which `parsing` turns into a `Refusal`.

Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from typing import Any, Final

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
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


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
