"""Recognise files of other formats by the bytes that they begin or end with."""

from __future__ import annotations

from typing import Final

from pycudnnrnn._source import Source

TABLE_END: Final = (0xDB4775248B80FB57).to_bytes(8, "little")
"""The end of a sorted string table. Source: tensorflow/tsl/lib/io/format.h, kTableMagicNumber."""

_BEGIN: Final = {
    b"PK\x03\x04": "it begins as a zip archive, which is what torch's .pt and Keras' .keras files are",
    b"\x89HDF\r\n\x1a\n": "it begins as an HDF5 file, which is what Keras' .h5 files are",
}
"""Source: APPNOTE.TXT (PKWARE), 4.3.7; HDF5 File Format Specification, II.A."""

V1: Final = "a checkpoint of format V1, from before TensorFlow 0.12: save it anew there"


def is_table(source: Source) -> bool:
    """Return True if a file is one of TensorFlow's tables: an index, or a whole checkpoint of format V1."""
    count = min(source.size, len(TABLE_END))
    return source.read_at(source.size - count, count) == TABLE_END


def what_it_is(source: Source) -> str:
    """Describe a file that is not safetensors, and the command that reads it; "" for an unknown format."""
    begin = source.read_at(0, min(source.size, 8))
    for mark, text in _BEGIN.items():
        if begin.startswith(mark):
            return f"{text}: `pycudnnrnn convert` reads those by their suffix"
    return V1 if is_table(source) else ""
