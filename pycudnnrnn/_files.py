"""Files: reading one that somebody else may have written, and writing one atomically.

A file for reading is a regular one, opened once. Every file that this package makes is written here: the bytes go to a
temporary file in the same folder and onto the disk, and get their name by a rename. So after a full disk, an interrupt
or a killed process, the name has the old contents or the new ones. Only a killed process leaves its temporary file
behind.

The new file has the mode of the old one. Other hard links to the old file keep its contents. A target that is not a
regular file raises an error. So does a symbolic link, because its file may be shared, and a file without write
permission, although a rename could replace it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pycudnnrnn.errors import ArgumentError

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
            # Without waiting for the writer of a pipe. Windows has neither this flag nor such pipes.
            no_wait = getattr(os, "O_NONBLOCK", 0)
            super().__init__(io.FileIO(path, opener=lambda path, flags: os.open(path, flags | no_wait)))
        except ValueError as error:  # a NUL, or half a surrogate pair
            raise OSError(errno.EINVAL, f"it is not a path: {error}", os.fspath(path)) from error
        with contextlib.ExitStack() as on_error:
            on_error.callback(self.close)
            status = os.fstat(self.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
            on_error.pop_all()
        self.size = status.st_size

    def whole(self, most: int) -> bytes:
        """Return the whole file, which may have at most `most` bytes."""
        if self.size > most:
            raise OSError(errno.EFBIG, f"it has {self.size} bytes, expecting at most {most}")
        data = bytearray(self.size)
        self.readinto(data)
        return bytes(data)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the whole buffer, or raise an error: HDF5 does not check how many bytes were read."""
        count = super().readinto(buffer)
        if count < memoryview(buffer).nbytes:
            raise OSError(errno.EIO, "it is too short, or became shorter while it was read")
        return count


PREFIX: Final = ".pycudnnrnn-"
"""The beginning of the names of temporary files and locks."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to `path`.

    Raises:
        ArgumentError: `path` is not a possible name, or names something other than a regular file.
        OSError: the file cannot be written. The old file is unchanged; `filename` is `path`.
    """
    write_together([(path, data)])


def write_together(files: Sequence[tuple[Path, bytes]]) -> None:
    """Write files that belong together: all of them are on the disk before the first gets its name.

    The renames follow in the order given, one by one, so a crash may come between two.

    Raises:
        ArgumentError: as for `write_atomically`; no file has changed.
        OSError: as for `write_atomically`; `filename` is the first file that was not written.
    """
    temporaries = [path.parent / f"{PREFIX}{secrets.token_hex(8)}" for path, _ in files]
    try:
        for temporary, (path, data) in zip(temporaries, files, strict=True):
            with naming(path):
                _write(temporary, data, _mode(path))
        for temporary, (path, _) in zip(temporaries, files, strict=True):
            with naming(path):
                temporary.replace(path)
            _flush_folder(path.parent)
    finally:  # the names were chosen before any file was made, because an interrupt may come at any moment
        for temporary in temporaries:
            with contextlib.suppress(OSError, ValueError):
                temporary.unlink()


def check_target(path: Path) -> bool:
    """Return True if there is a file at `path`; raise the errors of `write_atomically` before any work is done for it.

    Raises:
        ArgumentError: `path` is not a possible name, or names something other than a regular file.
        OSError: the file is not writable, or its folder does not exist.
    """
    with naming(path):
        return _mode(path) is not None


def resolve(path: Path) -> Path:
    """Return the absolute path of a file to write: its folder without symbolic links, and its name.

    Raises:
        ArgumentError: `path` is not a possible name of a file.
        OSError: there is no working directory.
    """
    with naming(path):
        os.fsencode(path)  # refuses what no file can be called
        if path.name in {"", ".."}:
            raise _unfit(path, "a folder")
        return Path(os.path.realpath(path.parent), path.name)


def _mode(path: Path) -> int | None:
    """Return the permissions of the file that will be replaced, None if there is none."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        path.parent.stat()  # it may be the folder that is missing
        return None
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFLNK: "a symbolic link"}
        raise _unfit(path, kinds.get(stat.S_IFMT(mode), "a device, a pipe or a socket"))
    os.close(os.open(path, os.O_WRONLY))  # a rename does not need this permission
    return mode & 0o777


def _write(temporary: Path, data: bytes, mode: int | None) -> None:
    """Write a new file to the disk. Nobody else can read it before it has its mode; None is a new file's usual mode."""
    first_mode = 0o666 if mode is None else 0o600
    file = io.FileIO(temporary, "x", opener=lambda path, flags: os.open(path, flags, first_mode))
    with io.BufferedWriter(file) as buffered:
        if mode not in {None, stat.S_IMODE(temporary.stat().st_mode)}:  # some file systems have one mode for all files
            temporary.chmod(mode)
        buffered.write(data)
        buffered.flush()
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    """Bring a rename to the disk, where a folder can be opened. The file is whole in any case."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Make errors name the path that the caller knows."""
    try:
        yield
    except ArgumentError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    except ValueError as error:  # a NUL, or half of a surrogate pair
        raise ArgumentError("path", "a name that files can have", f"{str(path)!r} ({error})") from error


def _unfit(path: Path, kind: str) -> ArgumentError:
    return ArgumentError("path", "a regular file, or a name that is free", f"{str(path)!r}, which is {kind}")
