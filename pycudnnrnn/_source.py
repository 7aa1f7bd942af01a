"""A file of others, open for reading: opened once, a regular file, and never waited for."""

from __future__ import annotations

import errno
import io
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class Source(io.BufferedReader):
    """Every file that somebody else may have put there is opened here; nothing can be swapped after a check.

    `size` is that of the moment of opening: what is added later is not read, and what is taken away is an error.

    Raises:
        OSError: it cannot be opened, or is no regular file: a pipe would wait for a writer, a device may have no end.
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
        """Return exactly so many bytes from there, wherever the stream stands."""
        parts = []
        while count and (part := os.pread(self.fileno(), count, offset)):
            parts.append(part)
            offset, count = offset + len(part), count - len(part)
        if count:
            raise _shorter()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def whole(self, most: int) -> bytes:
        """Return all of it, if that is at most so many bytes."""
        if self.size > most:
            raise OSError(errno.EFBIG, f"it has {self.size} bytes, expecting at most {most}")
        return self.read_at(0, self.size)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the buffer, or fail: HDF5 does not look at how much of it was."""
        count = super().readinto(buffer)
        if count < memoryview(buffer).nbytes:
            raise _shorter()
        return count


def _open_at_once(path: str, flags: int) -> int:
    """Open a pipe, too, without waiting for its writer, and a terminal without making it ours."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _regular_size(status: os.stat_result, path: str | os.PathLike[str]) -> int:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
    return status.st_size


def _shorter() -> OSError:
    return OSError(errno.EIO, "it became shorter while it was read")
