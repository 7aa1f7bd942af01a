"""Protocol buffers as bytes, as far as a bundle needs them: numbers, and messages in messages.

Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from typing import Final

from pycudnnrnn.checkpoint._refusal import Refusal

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5

VARINT_NBYTES_MAX: Final = 10
"""A varint has 64 bits, 7 a byte."""

Value = int | bytes


class Cursor:
    """A position in bytes from an untrusted file. Every step is checked."""

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self._data = data
        self._at = at
        self._end = len(data) if end is None else end

    @property
    def left(self) -> int:
        return self._end - self._at

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise Refusal("header form", f"{count} bytes are announced where {self.left} are left")
        self._at += count
        return self._data[self._at - count : self._at]

    def varint(self) -> int:
        if self.left > 0 and (byte := self._data[self._at]) < 0x80:  # most have one byte
            self._at += 1
            return byte
        value = 0
        for i in range(VARINT_NBYTES_MAX):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                return value & (2**64 - 1)
        raise Refusal("header form", f"a number of more than {VARINT_NBYTES_MAX} bytes")


def varint(value: int) -> bytes:
    """Write a number of at most 64 bits, a negative one in two's complement."""
    value &= 2**64 - 1
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


class Message:
    """A message from an untrusted file: its fields by number. Unknown fields are skipped, as in protobuf."""

    def __init__(self, data: bytes) -> None:
        self._fields: dict[int, list[Value]] = {}
        cursor = Cursor(data)
        while cursor.left:
            tag = cursor.varint()
            self._fields.setdefault(tag >> 3, []).append(_value(cursor, tag & 7))

    def __contains__(self, number: int) -> bool:
        return number in self._fields

    def number(self, number: int) -> int:
        """Return a signed number, or 0 if it is absent."""
        value = self._last(number, 0)
        if not isinstance(value, int):
            raise Refusal("header form", f"field {number} is no number")
        return value - 2**64 if value >= 2**63 else value

    def message(self, number: int) -> Message:
        """Return a message, or an empty one if it is absent."""
        found = self.messages(number)
        if len(found) > 1:
            raise Refusal("header form", f"field {number} is there {len(found)} times")
        return found[0] if found else Message(b"")

    def messages(self, number: int) -> list[Message]:
        values = self._fields.get(number, [])
        if not all(isinstance(value, bytes) for value in values):
            raise Refusal("header form", f"field {number} is no message")
        return [Message(value) for value in values if isinstance(value, bytes)]

    def _last(self, number: int, default: Value) -> Value:
        return self._fields.get(number, [default])[-1]


def field(number: int, value: Value, kind: int | None = None) -> bytes:
    """Write a field: a number as a varint, or as `kind` says; bytes with their length."""
    if isinstance(value, bytes):
        return varint(number << 3 | BYTES) + varint(len(value)) + value
    if kind == FIXED32:
        return varint(number << 3 | FIXED32) + value.to_bytes(4, "little")
    return varint(number << 3 | VARINT) + varint(value) if value else b""


def _value(cursor: Cursor, kind: int) -> Value:
    if kind == VARINT:
        return cursor.varint()
    if kind == BYTES:
        return cursor.take(cursor.varint())
    if kind in {FIXED32, FIXED64}:
        return int.from_bytes(cursor.take(4 if kind == FIXED32 else 8), "little")
    raise Refusal("header form", f"a field of kind {kind}, which protocol buffers do not have any more")
