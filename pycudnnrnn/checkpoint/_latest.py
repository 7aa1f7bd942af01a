"""The book of a folder, `checkpoint.json`: the latest of its checkpoints, and the others that were kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pycudnnrnn._checks import is_file_name, shorten
from pycudnnrnn._source import Source
from pycudnnrnn.errors import CheckpointError

BOOK: Final = "checkpoint.json"
"""The name of the file that records which of a folder's checkpoints is the latest."""

BOOK_MAX: Final = 1 << 20
"""Most bytes of it."""


def latest(folder: Path) -> Path | None:
    """Return the checkpoint that the book names, or None if there is no book.

    Raises:
        CheckpointError: the book is damaged.
    """
    content = _read(folder)
    if content is None:
        return None
    try:
        name = content["latest"]
    except (TypeError, KeyError) as error:
        raise CheckpointError(folder / BOOK, "header text", f"not a book of checkpoints: {error}") from error
    if not isinstance(name, str) or not is_file_name(name):
        raise CheckpointError(folder / BOOK, "metadata", f"{shorten(name)} is not the name of a file in this folder")
    return folder / name


def check_ours(folder: Path) -> None:
    """Refuse to overwrite a file of the book's name that is not a book.

    Raises:
        CheckpointError: there is such a file.
    """
    content = _read(folder)
    if content is not None and not (isinstance(content, dict) and content.keys() == {"latest", "all"}):
        detail = "not written by this package, and not overwritten: save into another folder, or move it"
        raise CheckpointError(folder / BOOK, "metadata", detail)


def image(newest: Path, kept: Sequence[Path]) -> bytes:
    """Return the bytes of a book."""
    content = {"latest": newest.name, "all": [path.name for path in kept if path.parent == newest.parent]}
    return (json.dumps(content, indent=1) + "\n").encode()


def _read(folder: Path) -> Any:
    """Return the content of the book, or None if there is no book."""
    book = folder / BOOK
    try:
        with Source(book) as source:
            if source.size > BOOK_MAX:
                raise CheckpointError(book, "size", f"more than {BOOK_MAX} bytes")
            text = source.whole(BOOK_MAX)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(book, "unreadable", error.strerror or str(error)) from error
    try:
        return json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(book, "header text", f"not a book of checkpoints: {error}") from error
