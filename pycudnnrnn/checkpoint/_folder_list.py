"""The list of a folder's checkpoints: TensorFlow's file `checkpoint`, for both formats.

Source: tensorflow/python/training/checkpoint_management.py; the text format of protocol buffers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pycudnnrnn._checks import is_file_name
from pycudnnrnn._source import Source
from pycudnnrnn.checkpoint._paths import is_file, is_tensorflow
from pycudnnrnn.checkpoint._refusal import parsing, refused
from pycudnnrnn.errors import CheckpointError

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
        found = _LATEST.search(text)
        if found is None:
            raise ValueError("it names no model_checkpoint_path; if it is another file, move it or use another folder")
        escaped = os.fsencode(found[1]).decode("unicode_escape")  # an escape is one byte, as in C
        name = Path(os.fsdecode(escaped.encode("latin-1"))).name
        if not is_file_name(name):
            raise ValueError("its model_checkpoint_path names no file")
        return folder / name


def latest(folder: Path) -> Path | None:
    """Return the latest checkpoint of a folder, or None if there is none.

    Raises:
        CheckpointError: the folder's list is damaged, or two checkpoints have the name in it.
    """
    with refused(folder / LIST):
        try:
            found = listed_latest(folder)
        except FileNotFoundError:
            return None
        return found if is_tensorflow(found) or is_file(found) else None


def latest_in(path: Path) -> Path:
    """Return the latest checkpoint if `path` is a folder, and otherwise `path`.

    Raises:
        CheckpointError: as for `latest`, or there is none.
    """
    with refused(path):
        if not path.is_dir():
            return path
    found = latest(path)
    if found is None:
        raise CheckpointError(path, "unreadable", f"the folder has no file {LIST!r} that names a checkpoint in it")
    return found


def list_image(newest: Path, kept: Sequence[Path]) -> bytes:
    """Return the bytes of a list, as TensorFlow writes it."""
    lines = [f'model_checkpoint_path: "{_escaped(newest.name)}"']
    lines += [f'all_model_checkpoint_paths: "{_escaped(path.name)}"' for path in kept if path.parent == newest.parent]
    return ("\n".join(lines) + "\n").encode()


def _escaped(name: str) -> str:
    """Escape as C does: quotes, backslashes and everything except printable ASCII become octal numbers."""
    return "".join(chr(byte) if byte in _PLAIN else f"\\{byte:03o}" for byte in os.fsencode(name))
