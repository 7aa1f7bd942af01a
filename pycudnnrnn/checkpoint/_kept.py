"""The checkpoints that a saver wrote: their files, whether they are still there, and their end."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pycudnnrnn.checkpoint import _book
from pycudnnrnn.checkpoint._bundle import paths
from pycudnnrnn.checkpoint._refusal import refused
from pycudnnrnn.errors import CheckpointError

TENSORFLOW: Final = "tensorflow"

FORMATS: Final = ("safetensors", TENSORFLOW)
"""What a saver writes."""


class SavedCheckpoint(NamedTuple):
    """A checkpoint: what it is called, and its files; without the last of them it is none."""

    path: Path
    files: tuple[Path, ...]
    format: str

    @property
    def is_there(self) -> bool:
        return _is_there(self.files[-1])

    def delete(self, kept: Iterable[SavedCheckpoint]) -> OSError | None:
        """Delete what is not kept under another name; return why it could not be done."""
        others = [file for one in kept for file in one.files]
        errors = [_delete(file, others) for file in reversed(self.files)]
        return next(filter(None, errors), None)


def book(newest: Path, kept: Sequence[Path], form: str) -> tuple[Path, bytes]:
    """Return the file that says which of a folder's checkpoints is the latest.

    Raises:
        CheckpointError: a file of that name is something else, and not to be overwritten.
    """
    folder = newest.parent
    if form != TENSORFLOW:
        _book.check_ours(folder)
        return folder / _book.BOOK, _book.image(newest, kept)
    try:
        with refused(folder / paths.BOOK):
            paths.check_book(folder)
    except CheckpointError as error:
        detail = f"{error.detail}, and not overwritten: save into another folder, or move it"
        raise CheckpointError(error.path, error.reason, detail) from error.__cause__
    return folder / paths.BOOK, paths.book_image(newest, kept)


def _is_there(file: Path) -> bool:
    try:
        return stat.S_ISREG(os.lstat(file).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # it cannot be told, and is not forgotten
        return True


def _delete(old: Path, kept: Iterable[Path]) -> OSError | None:
    try:
        others = [os.lstat(path) for path in kept if _is_there(path)]
        status = os.lstat(old)
        if stat.S_ISREG(status.st_mode) and not any(os.path.samestat(status, other) for other in others):
            old.unlink(missing_ok=True)
    except OSError as error:
        return error if _is_there(old) else None
    return None
