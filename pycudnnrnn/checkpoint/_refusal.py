"""Reasons to refuse a checkpoint, and how they become the error that a caller gets."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

from pycudnnrnn.errors import CheckpointError

REASONS: Final = (
    "unreadable",  # an error of the operating system, or not a regular file
    "format",  # not a checkpoint, or one whose structure is damaged
    "mismatch",  # other items, models, tensors, shapes or dtypes than those to restore
    "hash",  # the contents are not those that were written
    "not finite",  # asked for with require_finite=True
)
"""All values of `CheckpointError.reason`."""


class Refusal(Exception):  # noqa: N818  never leaves this package: CheckpointError does
    """A reason to refuse a file, before its path is known."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


@contextlib.contextmanager
def refused(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn a `Refusal`, or an error of the operating system, into an error that names the checkpoint's path.

    Raises:
        CheckpointError: the block raised one of the two.
    """
    try:
        yield
    except Refusal as refusal:
        raise CheckpointError(path, refusal.reason, refusal.detail) from refusal.__cause__
    except OSError as error:
        own = error.filename in (None, os.fspath(path))
        detail = (error.strerror or str(error)) if own else f"{error.filename}: {error.strerror}"
        raise CheckpointError(path, "unreadable", detail) from error


@contextlib.contextmanager
def parsing(what: str) -> Iterator[None]:
    """Turn any error that damaged contents lead to into a `Refusal`. `what` names the part that is read."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise Refusal("format", f"{what} is damaged: {error}") from error
