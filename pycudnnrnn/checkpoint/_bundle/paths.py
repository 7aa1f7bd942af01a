"""The files of a TensorFlow checkpoint: its prefix, its index, its shards, and the folder's `checkpoint`.

Source: tensorflow/core/util/tensor_bundle/naming.cc; tensorflow/python/training/checkpoint_management.py.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pycudnnrnn._checks import is_file_name
from pycudnnrnn._source import Source
from pycudnnrnn.checkpoint._file_formats import V1, is_table
from pycudnnrnn.checkpoint._refusal import Refusal

INDEX: Final = ".index"

BOOK: Final = "checkpoint"
"""The file in a folder that names its latest checkpoint."""

BOOK_MAX: Final = 1 << 20
"""Most bytes of that file."""

_PART: Final = re.compile(r"\.data-[0-9]{5}-of-[0-9]{5}|\.meta")
"""The endings of the names of a checkpoint's other files."""


def is_one(path: Path) -> bool:
    """Return True if a path means a TensorFlow checkpoint, complete or not: a folder, one of its files, or a prefix.

    Raises:
        OSError, Refusal: the operating system does not allow to look.
    """
    mode = _mode(path)
    if stat.S_ISDIR(mode) or is_part(path):
        return True
    return not mode and bool(_mode(with_suffix(path, INDEX)))


def is_part(path: Path) -> bool:
    """Return True if a checkpoint's file could have this name: an index, a shard or a graph."""
    return path.suffix == INDEX or _PART.fullmatch(path.suffix) is not None


def prefix_of(path: Path) -> Path:
    """Return the prefix of a checkpoint; for a folder, of the latest one that its `checkpoint` file names.

    Only the last part of the path in that file counts: TensorFlow writes absolute paths, which are wrong after the
    folder has moved.

    Raises:
        OSError: a file cannot be read.
        Refusal: there is no checkpoint; the error names the file that is there.
    """
    mode = _mode(path)
    if stat.S_ISDIR(mode):
        return path / _latest(path)
    if path.suffix == INDEX:
        return path.with_suffix("")
    if _PART.fullmatch(path.suffix):
        raise Refusal("unreadable", f"it is a part of a checkpoint: give {path.with_suffix('').name!r}, its prefix")
    if stat.S_ISREG(mode) and not _mode(with_suffix(path, INDEX)):
        with Source(path) as source:
            v1 = is_table(source)
        if v1:
            raise Refusal("metadata", V1)
        raise Refusal("unreadable", "no checkpoint of TensorFlow: those are a .index and .data- files")
    return path


def _mode(path: Path) -> int:
    """Return the kind of file that has this name, or 0 if there is none."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except ValueError as error:  # a NUL
        raise Refusal("unreadable", str(error)) from error


def shard_paths(prefix: Path, count: int) -> list[Path]:
    """Return the files that hold the tensors."""
    return [with_suffix(prefix, f".data-{i:05d}-of-{count:05d}") for i in range(count)]


def with_suffix(prefix: Path, suffix: str) -> Path:
    """Return a file of a checkpoint. The prefix itself may contain dots."""
    return prefix.with_name(prefix.name + suffix)


def book_image(newest: Path, kept: Sequence[Path]) -> bytes:
    """Return the bytes of a folder's `checkpoint` file, in protobuf's text format, as TensorFlow writes it."""
    names = [path.name for path in kept if path.parent == newest.parent]
    lines = [f'model_checkpoint_path: "{_escaped(newest.name)}"']
    lines += [f'all_model_checkpoint_paths: "{_escaped(name)}"' for name in names]
    return ("\n".join(lines) + "\n").encode()


def check_book(folder: Path) -> None:
    """Refuse to overwrite a file of the book's name that is not a book.

    Raises:
        Refusal: there is one.
    """
    if _mode(folder / BOOK):
        _latest(folder)


def _escaped(name: str) -> str:
    """Escape as C does: quotes, backslashes and everything except printable ASCII become octal numbers."""
    plain = set(range(0x20, 0x7F)) - set(b'"\\')
    return "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in os.fsencode(name))


def _latest(folder: Path) -> str:
    with Source(folder / BOOK) as source:
        if source.size > BOOK_MAX:
            raise Refusal("size", f"{BOOK} has {source.size} bytes; the cap is {BOOK_MAX}")
        text = source.read_at(0, source.size).decode("utf-8", "surrogateescape")
    found = re.search(r'^\s*model_checkpoint_path\s*:\s*"((?:[^"\\\n]|\\.)*)"', text, re.MULTILINE)
    if found is None:
        raise Refusal("header text", f"{BOOK} names no model_checkpoint_path")
    name = Path(os.fsdecode(_ESCAPE.sub(_unescaped, os.fsencode(found[1])))).name
    if not is_file_name(name):
        raise Refusal("header text", f"{BOOK} names no file")
    return name


_ESCAPE: Final = re.compile(rb"\\([0-7]{1,3}|[xX][0-9a-fA-F]{1,2}|.)", re.DOTALL)
_LETTERS: Final = dict(zip(b"abfnrtv", b"\a\b\f\n\r\t\v", strict=True)) | {byte: byte for byte in b"\"'\\?"}


def _unescaped(match: re.Match[bytes]) -> bytes:
    """Read an escape of the text format, which is C's. Octal numbers encode everything except ASCII."""
    text = match[1]
    if text[:1].isdigit() or text[1:]:
        byte = int(text, 8) if text[:1].isdigit() else int(text[1:], 16)
    else:
        byte = _LETTERS.get(text[0], -1)
    if not 0 <= byte <= 0xFF:
        raise Refusal("header text", f"{BOOK} has an escape that is none: {match[0]!r}")
    return bytes([byte])
