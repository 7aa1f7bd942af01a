"""The checkpoints that a saver wrote: their files, whether they still exist, and how they are deleted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pycudnnrnn._atomic import write_together
from pycudnnrnn.checkpoint import _bundle
from pycudnnrnn.checkpoint._folder_list import LIST, list_image, listed_latest
from pycudnnrnn.checkpoint._paths import INDEX, is_file, is_part, with_suffix
from pycudnnrnn.checkpoint._refusal import refused
from pycudnnrnn.errors import ArgumentError

SAFETENSORS: Final = "safetensors"
TENSORFLOW: Final = "tensorflow"

FORMATS: Final = (SAFETENSORS, TENSORFLOW)
"""The formats that a saver writes."""

OTHERS: Final = {
    ".pt": "torch", ".pth": "torch", ".h5": "Keras", ".keras": "Keras", ".onnx": "ONNX", ".npz": "NumPy",
}  # fmt: skip
"""Suffixes of other programs' files of weights."""


class SavedCheckpoint(NamedTuple):
    """A checkpoint: its path and its format."""

    path: Path
    format: str

    @property
    def files(self) -> tuple[Path, ...]:
        """The names that its files may have. The last one is of a file that every checkpoint has."""
        return _bundle.files(self.path) if self.format == TENSORFLOW else (self.path,)

    @property
    def is_there(self) -> bool:
        try:
            return is_file(self.files[-1]) and not self.files[-1].is_symlink()
        except OSError:  # unknown: it stays on the list
            return True

    def write(self, data: bytes | Mapping[str, Any], kept: Sequence[SavedCheckpoint]) -> None:
        """Write the file or the tensors of this checkpoint, and the folder's list of the checkpoints that are kept.

        Raises:
            ArgumentError: as for `check_name`.
            CheckpointError: the folder has another file of the list's name, which must not be overwritten.
        """
        check_name(self.path, self.format)
        folder = self.path.parent
        with refused(folder / LIST), contextlib.suppress(FileNotFoundError):
            listed_latest(folder)
        listed = folder / LIST, list_image(self.path, [one.path for one in kept])
        if isinstance(data, bytes):
            write_together([(self.path, data), listed])
        else:
            _bundle.write(self.path, data, [listed])

    def delete(self) -> None:
        """Delete its files, which no other checkpoint shares: none has the name of another's part."""
        for file in reversed(self.files):
            file.unlink(missing_ok=True)


def check_name(path: Path, form: str) -> None:
    """Refuse a name under which a checkpoint would be read as something else.

    Raises:
        ArgumentError: the list's name, the name of a TensorFlow checkpoint's part or of another program's file, or the
            name of a folder or of a checkpoint in the other format.
    """
    name = path.name.casefold()  # some file systems ignore case
    if name == LIST or is_part(Path(name)):
        expected = "another name: this one is of a folder's list, or of a part of a TensorFlow checkpoint"
        raise ArgumentError("path", expected, repr(str(path)))
    if path.suffix.lower() in OTHERS:
        expected = f"a name with another suffix, since {path.suffix} is of {OTHERS[path.suffix.lower()]}'s files"
        raise ArgumentError("path", f"{expected}: `pycudnnrnn convert` writes these", repr(str(path)))
    other = path if form == TENSORFLOW else with_suffix(path, INDEX)
    if os.path.lexists(other):
        expected = "a name of which no other file or folder is a checkpoint: one name is one checkpoint"
        raise ArgumentError("path", expected, f"{str(path)!r}, where {other.name!r} exists")
