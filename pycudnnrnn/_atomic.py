"""Write files atomically: the one writer of every file that this package makes.

The bytes go to a temporary file in the same folder and onto the disk, and get their name by a rename. So after a full
disk, an interrupt or a killed process, the name has the old contents or the new ones. Only a killed process leaves its
temporary file behind.

The new file has the mode of the old one. Other hard links to the old file keep its contents. A target that is not a
regular file raises an error. So does a symbolic link, because its file may be shared, and a file without write
permission, although a rename could replace it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from filelock import FileLock

from pycudnnrnn.errors import ArgumentError

_PREFIX: Final = ".pycudnnrnn-"

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
"""Flags for a file that does not exist yet. Only Windows has O_BINARY."""

_KINDS: Final = {
    stat.S_IFDIR: "a folder", stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip


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
    temporaries = [path.parent / f"{_PREFIX}{secrets.token_hex(8)}" for path, _ in files]
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


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let only one thread of one process at a time read and write `path`; others that call this wait.

    The lock is a separate file in the same folder, which stays there, because writing replaces the file itself.

    Raises:
        ArgumentError: as for `check_target`.
        OSError: as for `check_target`, or the lock's file cannot be made.
    """
    check_target(path)
    path = resolve(path)
    lock = FileLock(path.with_name(f"{_PREFIX}{path.name}.lock"))
    try:  # taken within, so that no interrupt comes in between; to give back a lock that was not taken does nothing
        with naming(path):
            lock.acquire()
        yield
    finally:
        lock.release()


def _mode(path: Path) -> int | None:
    """Return the permissions of the file that will be replaced, None if there is none."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        path.parent.stat()  # it may be the folder that is missing
        return None
    if not stat.S_ISREG(mode):
        raise _unfit(path, _KINDS.get(stat.S_IFMT(mode), "something else"))
    os.close(os.open(path, os.O_WRONLY))  # a rename does not need this permission
    return mode & 0o777


def _write(temporary: Path, data: bytes, mode: int | None) -> None:
    """Write a new file to the disk. Nobody else can read it before it has its mode; None is a new file's usual mode."""
    descriptor = os.open(temporary, _NEW, 0o666 if mode is None else 0o600)
    try:
        if mode not in {None, stat.S_IMODE(temporary.stat().st_mode)}:  # some file systems have one mode for all files
            temporary.chmod(mode)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
