"""CRC-32C (Castagnoli), as TensorFlow's files have it: masked.

Source: RFC 3720, appendix B.4; tensorflow/tsl/lib/hash/crc32c.h for the mask.
"""

from __future__ import annotations

from typing import Any, Final

from pycudnnrnn._checks import needs

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
