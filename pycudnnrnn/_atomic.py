"""Write a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path to write to; when the block ends, it becomes `path`.

    At any moment there is the old file or the new one, and never half of one: the temporary file is in the same folder,
    is brought to the disk, and renamed. When that fails, or the block raises, the old file is untouched and the
    temporary one is gone. It has the suffix of `path`, since some libraries go by it.
    """
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(8)}{path.suffix}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError as error:
        error.filename = str(path)  # the one that the caller knows
        raise
    try:
        os.close(descriptor)
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)  # noqa: PTH105  one system call, by its name
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    # The rename itself reaches the disk with the folder. The new file is whole in any case, so a failure is not one.
    with contextlib.suppress(OSError):
        _sync(path.parent)


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` under `path`, as `replacing` does."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
