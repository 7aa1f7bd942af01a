"""Why a checkpoint is refused, from where it is found to the error that a caller gets."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from pycudnnrnn.errors import CheckpointError


class Refusal(Exception):  # noqa: N818  never leaves this package: CheckpointError does
    """A reason to refuse a file, before its path is known."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


@contextlib.contextmanager
def refused(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name every reason against a checkpoint with its path, and so what the operating system has against its files.

    Raises:
        CheckpointError: there is one.
    """
    try:
        yield
    except Refusal as refusal:
        raise CheckpointError(path, refusal.reason, refusal.detail) from refusal.__cause__
    except OSError as error:
        own = error.filename in (None, os.fspath(path))
        detail = (error.strerror or str(error)) if own else f"{error.filename}: {error.strerror}"
        raise CheckpointError(path, "unreadable", detail) from error
