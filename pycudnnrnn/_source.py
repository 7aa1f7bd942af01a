"""A file that somebody else may have written, open for reading: a regular file, opened once."""

from __future__ import annotations

import errno
import io
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class Source(io.BufferedReader):
    """A regular file for reading. It is opened once, so nothing can be exchanged between a check and a read.

    `size` is the file's size when it was opened: bytes that are appended later are not read.

    Args:
        path: the file.

    Raises:
        OSError: the file cannot be opened, or is not a regular file, such as a pipe or a device.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            super().__init__(io.FileIO(path, opener=_open_at_once))
        except ValueError as error:  # a NUL, or half a surrogate pair
            raise OSError(errno.EINVAL, f"it is not a path: {error}", os.fspath(path)) from error
        try:
            self.size = _regular_size(os.fstat(self.fileno()), path)
        except OSError:
            self.close()
            raise

    def read_at(self, offset: int, count: int) -> bytes:
        """Return exactly `count` bytes from `offset` on. This moves the stream's position."""
        self.seek(offset)
        data = self.read(count)
        if len(data) < count:
            raise _shorter()
        return data

    def whole(self, most: int) -> bytes:
        """Return the whole file, which may have at most `most` bytes."""
        if self.size > most:
            raise OSError(errno.EFBIG, f"it has {self.size} bytes, expecting at most {most}")
        return self.read_at(0, self.size)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the whole buffer, or raise an error: HDF5 does not check how many bytes were read."""
        count = super().readinto(buffer)
        if count < memoryview(buffer).nbytes:
            raise _shorter()
        return count


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for the writer of a pipe. Windows has neither this flag nor such pipes."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _regular_size(status: os.stat_result, path: str | os.PathLike[str]) -> int:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
    return status.st_size


def _shorter() -> OSError:
    return OSError(errno.EIO, "it is too short, or became shorter while it was read")
