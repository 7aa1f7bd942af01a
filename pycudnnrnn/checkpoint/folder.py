"""The checkpoints in a folder: their names and files, and TensorFlow's list of them, the file `checkpoint`.

Source: tensorflow/python/training/checkpoint_management.py; the text format of protocol buffers.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pycudnnrnn._checks import is_file_name
from pycudnnrnn._files import Source, write_together
from pycudnnrnn.checkpoint import bundle
from pycudnnrnn.checkpoint.safetensors_file import Refusal, parsing, refused
from pycudnnrnn.errors import ArgumentError, CheckpointError

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


LIST: Final = "checkpoint"
"""The name of the file in a folder that lists its checkpoints and names the latest one."""

LIST_MAX: Final = 1 << 20
"""Most bytes of it."""

_LATEST: Final = re.compile(
    r'^\s*model_checkpoint_path\s*:\s*"((?:[^"\\\n]|\\[abfnrtv"\'\\]|\\[0-3][0-7]{2})*)"', re.MULTILINE
)
"""The line that names the latest checkpoint, with the escapes that protocol buffers write."""

_PLAIN: Final = frozenset(range(0x20, 0x7F)) - frozenset(b'"\\')
"""The characters that need no escape."""


def listed_latest(folder: Path) -> Path:
    """Return the path that a folder's list names as the latest checkpoint, whether it exists or not.

    Only the last part of the path in the list counts: TensorFlow writes absolute paths, which are wrong after the
    folder has moved.

    Raises:
        OSError: the list cannot be read.
        Refusal: it is not such a list.
    """
    with Source(folder / LIST) as source, parsing(f"the list {LIST!r}"):
        text = source.whole(LIST_MAX).decode("utf-8", "surrogateescape")
        line = _LATEST.search(text)
        if line is None:
            raise ValueError("it names no model_checkpoint_path; if it is another file, move it or use another folder")
        escaped = os.fsencode(line[1]).decode("unicode_escape")  # an escape is one byte, as in C
        name = Path(os.fsdecode(escaped.encode("latin-1"))).name
        if not is_file_name(name):
            raise ValueError("its model_checkpoint_path names no file")
        return folder / name


def latest_checkpoint(folder: str | os.PathLike[str]) -> Path | None:
    """Return the checkpoint that was saved last in a folder, in either format.

    The folder's list, the file "checkpoint", names it. TensorFlow writes the same list.

    Args:
        folder: the folder to look in. It need not exist.

    Returns:
        The path of the checkpoint, or None if there is none.

    Raises:
        CheckpointError: the list is damaged, or two checkpoints have the name in it: "m" and "m.index".

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from pycudnnrnn import Saver, checkpoint
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(checkpoint.latest_checkpoint(folder))
        ...     path = Saver({"a": np.ones(3)}).save(f"{folder}/model", global_step=7)
        ...     print(checkpoint.latest_checkpoint(folder).name)
        None
        model-7
    """
    with refused(Path(folder) / LIST):
        try:
            path = listed_latest(Path(folder))
        except FileNotFoundError:
            return None
        return path if is_tensorflow(path) or is_file(path) else None


def latest_in(path: Path) -> Path:
    """Return the latest checkpoint if `path` is a folder, and otherwise `path`.

    Raises:
        CheckpointError: as for `latest_checkpoint`, or there is none.
    """
    with refused(path):
        if not path.is_dir():
            return path
    checkpoint = latest_checkpoint(path)
    if checkpoint is None:
        raise CheckpointError(path, "unreadable", f"the folder has no file {LIST!r} that names a checkpoint in it")
    return checkpoint


def _escaped(name: str) -> str:
    """Escape as C does: quotes, backslashes and everything except printable ASCII become octal numbers."""
    return "".join(chr(byte) if byte in _PLAIN else f"\\{byte:03o}" for byte in os.fsencode(name))


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
        return bundle.files(self.path) if self.format == TENSORFLOW else (self.path,)

    @property
    def exists(self) -> bool:
        try:
            return is_file(self.files[-1]) and not self.files[-1].is_symlink()
        except OSError:  # unknown: it stays on the list
            return True

    def write(self, data: bytes | Mapping[str, Any], checkpoints: Sequence[SavedCheckpoint]) -> None:
        """Write the file or the tensors of this checkpoint, and the folder's list of `checkpoints`.

        Raises:
            ArgumentError: as for `check_name`.
            CheckpointError: the folder has another file of the list's name, which must not be overwritten.
        """
        check_name(self.path, self.format)
        folder = self.path.parent
        with refused(folder / LIST), contextlib.suppress(FileNotFoundError):
            listed_latest(folder)
        lines = [f'model_checkpoint_path: "{_escaped(self.path.name)}"']
        beside = [one.path.name for one in checkpoints if one.path.parent == folder]
        lines += [f'all_model_checkpoint_paths: "{_escaped(name)}"' for name in beside]
        listed = folder / LIST, ("\n".join(lines) + "\n").encode()
        if isinstance(data, bytes):
            write_together([(self.path, data), listed])
        else:
            bundle.write(self.path, data, [listed])

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
