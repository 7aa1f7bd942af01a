"""Write a file whole or not at all: the one writer of every file that this package makes.

The bytes go to a temporary file in the same folder, onto the disk, and under their name by a rename. At any moment
there is the old file or the new one, and never half of one, whatever fails: the disk is full, the process is
interrupted or killed.

A write changes what one name stands for. The new file has the mode and the ACL of the old one, and its owner and group
where the system lets us; other hard links to the old one keep it as it was. What is not a regular file is refused, and
so is a symbolic link, since what it points to may be anybody's, or shared: the file itself has to be named. A file that
may not be written to is refused, too, though a rename could do away with it.

A process that is killed leaves its temporary file behind. The next write to that folder removes it once it is an hour
old, by the clock of the folder's own file system.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pycudnnrnn.errors import ArgumentError

_PREFIX: Final = ".pycudnnrnn-"
_TEMPORARY: Final = re.compile(re.escape(_PREFIX) + "[0-9a-f]{16}")
"""Of one short length, so that the target may have any name that the file system takes."""

_STALE_S: Final = 3600
"""Age at which nobody can be writing a temporary file any more: what is being written has a fresh time."""

_ACL: Final = "system.posix_acl_access"
_ACL_ENTRY: Final = struct.Struct("<HHI")
"""Tag, rights and id, after a version of 4 bytes. Source: linux/posix_acl_xattr.h."""

_ACL_GROUP_OBJ: Final = 0x04
"""The tag of the owning group. Source: linux/posix_acl.h."""

_KINDS: Final = {
    stat.S_IFDIR: "a folder", stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` under `path`.

    Raises:
        ArgumentError: no name of a file, or of something else than a regular one.
        OSError: it cannot be written, and the old file is untouched; `filename` is `path`.
    """
    write_together([(path, data)])


def write_together(files: Sequence[tuple[Path, bytes]]) -> None:
    """Write files that belong together: none takes its name before all of them are on the disk.

    They take their names one by one, in the order given, so a crash may come between two.

    Raises:
        ArgumentError: as of `write_atomically`, and nothing has been written.
        OSError: as of `write_atomically`; `filename` is the first one that was not written.
    """
    made = [_NewFile(path) for path, _ in files]
    try:
        for file, (_, data) in zip(made, files, strict=True):
            file.write(data)
        for file in made:
            file.take_name()
    finally:  # the names of temporary files are known before there are any: an interrupt may come at any moment
        for file in made:
            file.close()


def check_target(path: Path) -> bool:
    """Refuse a path that `write_atomically` would refuse, before work is done for it; say whether a file is there.

    Raises:
        ArgumentError: no name of a file, or of something else than a regular one.
        OSError: what is there must not be written to, or there is no such folder.
    """
    file = _NewFile(path)
    try:
        with naming(path):
            return file.look() is not None
    finally:
        file.close()


def resolve(path: Path) -> Path:
    """Return the one absolute path of a file that is to be written: its folder without links, and its name.

    Raises:
        ArgumentError: no name of a file.
        OSError: there is no working directory.
    """
    with naming(path):
        return Path(os.path.realpath(path.parent), _name(path))


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other threads and processes that ask for this path's lock waiting, from our reading to our writing.

    The file itself cannot be the lock, since writing replaces it, and nor can the folder, which NFS locks for none: it
    is a file beside it, which is removed again. Where the file system has no locks, nobody waits.

    Raises:
        ArgumentError: as of `check_target`.
        OSError: as of `check_target`, or no file can be made beside it.
    """
    check_target(path)
    path = resolve(path)
    name = path.with_name(f"{_PREFIX}{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}.lock")
    with naming(path):
        descriptor = _taken(name)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            name.unlink()
        with contextlib.suppress(OSError):  # said outright: a child that was forked meanwhile has the descriptor, too
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _taken(lock: Path) -> int:
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(descriptor), lock.lstat()):
                return descriptor
        except FileNotFoundError:  # whoever had it removed it
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


class _Old(NamedTuple):
    """A file that a new one takes after."""

    status: os.stat_result
    acl: bytes | None


class _NewFile:
    """A file in the making, under a temporary name in the folder of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = f"{_PREFIX}{secrets.token_hex(8)}"
        self._folder: int | None = None

    def look(self) -> _Old | None:
        """Return what has the name now, None where it is free."""
        name = _name(self._path)
        # By its descriptor it stays the same folder, whoever renames it or changes the working directory.
        self._folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            status = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        kind = stat.S_IFMT(status.st_mode)
        if kind != stat.S_IFREG:
            raise _unfit(self._path, _KINDS.get(kind, "something else"))
        # A rename asks for no right to the file itself, so it is asked for here, and the answer says why there is none.
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=self._folder)
        try:
            return _Old(status, _acl(descriptor))
        finally:
            os.close(descriptor)

    def write(self, data: bytes) -> None:
        """Bring the bytes to the disk."""
        with naming(self._path):
            old = self.look()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(self._temporary, flags, 0o666 if old is None else 0o600, dir_fd=self._folder)
            try:
                self._remove_stale(os.fstat(descriptor).st_mtime)
                if old is not None:
                    _take_after(descriptor, old)
                _write(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def take_name(self) -> None:
        """Replace what has the name now."""
        with naming(self._path):
            os.replace(self._temporary, self._path.name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        # The rename itself reaches the disk with the folder. The file is whole in any case, so a failure is not one.
        with contextlib.suppress(OSError), self._readable_folder() as folder:
            os.fsync(folder)

    def close(self) -> None:
        """Remove the temporary file, if it is still there."""
        folder, self._folder = self._folder, None
        if folder is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary, dir_fd=folder)
            with contextlib.suppress(OSError):
                os.close(folder)

    def _remove_stale(self, now: float) -> None:
        with contextlib.suppress(OSError), self._readable_folder() as folder, os.scandir(folder) as entries:
            for entry in filter(lambda entry: _TEMPORARY.fullmatch(entry.name), entries):
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and status.st_mtime < now - _STALE_S:
                        os.unlink(entry.name, dir_fd=folder)

    @contextlib.contextmanager
    def _readable_folder(self) -> Iterator[int]:
        """Open the folder for reading, which is not needed for writing a file into it, and may be forbidden."""
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._folder)
        try:
            yield folder
        finally:
            os.close(folder)


def _take_after(descriptor: int, old: _Old) -> None:
    """Give a new file the owner, group, mode and ACL of the old one; another group than the old one's gets no rights.

    The mode of a file with an ACL has the ACL's mask in the place of the group's rights: without the ACL it is the
    owner's alone, since nobody else's rights are known.
    """
    status, acl = old
    try:
        os.fchown(descriptor, status.st_uid, status.st_gid)
    except OSError:
        with contextlib.suppress(OSError):
            os.fchown(descriptor, -1, status.st_gid)
    now, mode = os.fstat(descriptor), status.st_mode & 0o777
    if acl is not None:
        try:
            os.setxattr(descriptor, _ACL, acl if now.st_gid == status.st_gid else _without_group(acl))
        except OSError:
            mode &= 0o700
        else:
            return
    elif _acl(descriptor) is not None:  # the folder gives one to every new file, and the old one had none
        os.removexattr(descriptor, _ACL)
        now = os.fstat(descriptor)
    if now.st_gid != status.st_gid:
        mode &= 0o707
    if now.st_mode & 0o777 != mode:  # some file systems have one mode for all files, and no way to set it
        os.fchmod(descriptor, mode)


def _acl(descriptor: int) -> bytes | None:
    """Return a file's ACL; None where it has none, or its file system knows none."""
    try:
        return os.getxattr(descriptor, _ACL)
    except OSError as error:
        if error.errno in {errno.ENODATA, errno.ENOTSUP, errno.ENOSYS}:
            return None
        raise


def _without_group(acl: bytes) -> bytes:
    """Return an ACL that gives the owning group no rights."""
    entries = _ACL_ENTRY.iter_unpack(acl[4:])
    return acl[:4] + b"".join(_ACL_ENTRY.pack(tag, 0 if tag == _ACL_GROUP_OBJ else may, of) for tag, may, of in entries)


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        count = os.write(descriptor, rest)
        if not count:
            raise OSError(errno.EIO, "nothing was written")
        rest = rest[count:]


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors name the path that the caller knows."""
    try:
        yield
    except ArgumentError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    except ValueError as error:  # a NUL, or half of a surrogate pair
        raise ArgumentError("path", "a name that files can have", f"{str(path)!r} ({error})") from error


def _name(path: Path) -> str:
    if path.name in {"", ".."}:
        raise _unfit(path, "a folder")
    return path.name


def _unfit(path: Path, kind: str) -> ArgumentError:
    return ArgumentError("path", "a regular file, or a name that is free", f"{str(path)!r}, which is {kind}")
