"""The files of a TensorFlow checkpoint: its prefix, its index and its shards.

Source: tensorflow/core/util/tensor_bundle/naming.cc.
"""

from __future__ import annotations

import errno
import re
import stat
from pathlib import Path
from typing import Final

from pycudnnrnn.checkpoint._refusal import Refusal, refused

INDEX: Final = ".index"

_PART: Final = re.compile(r"\.data-[0-9]{5}-of-[0-9]{5}|\.meta")
"""The endings of the names of a checkpoint's other files."""


def is_tensorflow(path: Path) -> bool:
    """Return True if a path means a TensorFlow checkpoint, complete or not: one of its files, or its prefix.

    Every reader asks this function, so that a name means the same checkpoint to all of them.

    Raises:
        CheckpointError: two checkpoints have the name, or the operating system does not allow to look.
    """
    with refused(path):
        if is_part(path):
            return True
        index = with_suffix(path, INDEX)
        if is_file(path) and is_file(index):
            raise Refusal("mismatch", f"{path.name!r} and {index.name!r} are two checkpoints of one name: rename one")
        return is_file(index)


def is_part(path: Path) -> bool:
    """Return True if a checkpoint's file could have this name: an index, a shard or a graph."""
    return path.suffix == INDEX or _PART.fullmatch(path.suffix) is not None


def prefix_of(path: Path) -> Path:
    """Return the prefix of a checkpoint, which is given by its prefix or by its index.

    Raises:
        Refusal: it is another part of a checkpoint, or no checkpoint.
        CheckpointError: as for `is_tensorflow`.
    """
    if path.suffix == INDEX:
        return path.with_suffix("")
    if is_part(path) or (not is_tensorflow(path) and is_file(path)):
        raise Refusal("format", "not a checkpoint of TensorFlow 0.12 or later: give its prefix, .index file or folder")
    return path


def shard_paths(prefix: Path, count: int) -> list[Path]:
    """Return the files that hold the tensors."""
    return [with_suffix(prefix, f".data-{i:05d}-of-{count:05d}") for i in range(count)]


def is_file(path: Path) -> bool:
    """Return True for a regular file or a link to one.

    Raises:
        OSError: the operating system does not say whether there is one. `Path.is_file` may return False then.
    """
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # a name that fits may become too long by a suffix
            return False
        raise


def with_suffix(prefix: Path, suffix: str) -> Path:
    """Return a file of a checkpoint. The prefix itself may contain dots."""
    return prefix.parent / f"{prefix.name}{suffix}"
