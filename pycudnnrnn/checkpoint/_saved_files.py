"""The checkpoints that a saver wrote: their files, whether they still exist, and how they are deleted."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pycudnnrnn.checkpoint import _latest
from pycudnnrnn.checkpoint._bundle import files, paths
from pycudnnrnn.checkpoint._refusal import refused
from pycudnnrnn.errors import ArgumentError, CheckpointError

TENSORFLOW: Final = "tensorflow"

FORMATS: Final = ("safetensors", TENSORFLOW)
"""The formats that a saver writes."""


class SavedCheckpoint(NamedTuple):
    """A checkpoint: its path and its format."""

    path: Path
    format: str

    @property
    def files(self) -> tuple[Path, ...]:
        """The names that its files may have. The last one is of a file that every checkpoint has."""
        return files(self.path) if self.format == TENSORFLOW else (self.path,)

    @property
    def is_there(self) -> bool:
        return _is_there(self.files[-1])

    def delete(self, kept: Iterable[SavedCheckpoint]) -> OSError | None:
        """Delete the files that no kept checkpoint shares. Return the error if that failed."""
        others = [file for one in kept for file in one.files]
        errors = [_delete(file, others) for file in reversed(self.files)]
        return next(filter(None, errors), None)


def books(newest: SavedCheckpoint, kept: Sequence[SavedCheckpoint]) -> list[tuple[Path, bytes]]:
    """Return the books that record a folder's latest checkpoint: ours of all, and TensorFlow's of its format.

    Raises:
        CheckpointError: a file of that name is not a book, so it must not be overwritten.
    """
    folder = newest.path.parent
    _latest.check_ours(folder)
    ours = folder / _latest.BOOK, _latest.image(newest.files[-1], [one.files[-1] for one in kept])
    if newest.format != TENSORFLOW:
        return [ours]
    try:
        with refused(folder / paths.BOOK):
            paths.check_book(folder)
    except CheckpointError as error:
        detail = f"{error.detail}, and not overwritten: save into another folder, or move it"
        raise CheckpointError(error.path, error.reason, detail) from error.__cause__
    names = [one.path for one in kept if one.format == TENSORFLOW]
    return [(folder / paths.BOOK, paths.book_image(newest.path, names)), ours]


def latest(folder: Path) -> Path | None:
    """Return the checkpoint that a folder's books name. The book that was written last decides; ours at equal times.

    Raises:
        CheckpointError: that book is damaged, or the operating system does not report whether the checkpoint exists.
    """
    with refused(folder):
        ours, theirs = _age(folder / _latest.BOOK), _age(folder / paths.BOOK)
    if theirs > ours:
        with refused(folder / paths.BOOK):
            found: Path | None = files(paths.prefix_of(folder))[-1]
    else:
        found = _latest.latest(folder)
    with refused(folder if found is None else found):
        if found is None or not _is_file(found):
            return None
        prefix = found.with_suffix("") if found.suffix == paths.INDEX else found
        # A safetensors file of the prefix's name would be read instead: the index itself is the path then.
        return prefix if prefix == found or not _is_file(prefix) else found


def check_name(path: Path) -> None:
    """Refuse a name under which the file would be read as something else.

    Raises:
        ArgumentError: a book's name, the name of a TensorFlow checkpoint's part, or a suffix of another format.
    """
    name = path.name.casefold()  # some file systems ignore case
    if name in {_latest.BOOK, paths.BOOK}:
        what = "this is a folder's book, which says which of its checkpoints is the latest"
    elif paths.is_part(Path(name)):
        what = "a part of a TensorFlow checkpoint is called so"
    elif Path(name).suffix in _OTHERS:
        what = "its suffix is of another format; .safetensors is this one's, and `pycudnnrnn convert` writes others"
    else:
        return
    raise ArgumentError("path", f"another name: {what}", repr(str(path)))


_OTHERS: Final = frozenset({
    ".npz", ".npy", ".h5", ".hdf5", ".keras", ".onnx", ".pt", ".pth", ".bin", ".pkl", ".pickle", ".msgpack", ".eqx",
    ".json",
})  # fmt: skip
"""Suffixes of other formats."""


def _age(book: Path) -> int:
    try:
        return book.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


def _is_there(file: Path) -> bool:
    try:
        return stat.S_ISREG(os.lstat(file).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # unknown: the checkpoint stays on the list
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
