"""Which files a checkpoint of TensorFlow is: its prefix, its index, its shards, and the folder's `checkpoint`.

Source: tensorflow/core/util/tensor_bundle/naming.cc; tensorflow/python/training/checkpoint_management.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pycudnnrnn.checkpoint._bundle import table
from pycudnnrnn.checkpoint._file import Refusal, _Source

INDEX: Final = ".index"

BOOK: Final = "checkpoint"
"""The file in a folder that names its latest checkpoint."""

BOOK_MAX: Final = 1 << 20
"""Most bytes of it."""


def prefix_of(path: Path) -> Path:
    """Return the prefix of a checkpoint: for a folder, of its latest, as its `checkpoint` file says.

    Only the last part of what stands there counts: TensorFlow writes whole paths, which are wrong in a folder that was
    moved.

    Raises:
        Refusal: nothing of the kind; what is there instead is named.
    """
    if path.is_dir():
        return path / _latest(path)
    if path.suffix == INDEX:
        return path.with_suffix("")
    if re.fullmatch(r"\.data-[0-9]{5}-of-[0-9]{5}|\.meta", path.suffix):
        raise Refusal("unreadable", f"it is a part of a checkpoint: give {path.with_suffix('').name!r}, its prefix")
    if not with_suffix(path, INDEX).exists() and path.is_file():
        with _Source(path) as source:
            end = source.read(max(0, source.size - len(table.MAGIC)), min(source.size, len(table.MAGIC)))
        if table.looks_like_one(end):
            raise Refusal("metadata", "a checkpoint of format V1, from before TensorFlow 0.12: save it anew there")
        raise Refusal("unreadable", "no checkpoint of TensorFlow: those are a .index and .data- files")
    return path


def shard_paths(prefix: Path, count: int) -> list[Path]:
    """Return the files that hold the tensors."""
    return [with_suffix(prefix, f".data-{i:05d}-of-{count:05d}") for i in range(count)]


def with_suffix(prefix: Path, suffix: str) -> Path:
    """Return a file of a checkpoint; its prefix may have dots of its own."""
    return prefix.with_name(prefix.name + suffix)


def _latest(folder: Path) -> str:
    with _Source(folder / BOOK) as source:
        if source.size > BOOK_MAX:
            raise Refusal("size", f"{BOOK} has {source.size} bytes; the cap is {BOOK_MAX}")
        text = source.read(0, source.size).decode("utf-8", "surrogateescape")
    found = re.search(r'^\s*model_checkpoint_path\s*:\s*"((?:[^"\\\n]|\\.)*)"', text, re.MULTILINE)
    if found is None:
        raise Refusal("header text", f"{BOOK} names no model_checkpoint_path")
    escaped = found[1].encode("utf-8", "surrogateescape")
    # Text format escapes as C does, and Python reads those escapes; what is no ASCII stands as octal numbers.
    name = Path(escaped.decode("unicode_escape").encode("latin-1").decode("utf-8", "surrogateescape")).name
    if not name or "\0" in name:
        raise Refusal("header text", f"{BOOK} names no file")
    return name
