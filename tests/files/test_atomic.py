"""What every writer of files holds to: what it refuses, what it keeps, and what it leaves behind."""

import errno
import os
import re
import resource
import socket
import stat
import struct
import threading
import time
from pathlib import Path

import pytest

from pycudnnrnn import _atomic
from pycudnnrnn._atomic import check_target, locked, write_atomically, write_together
from pycudnnrnn.errors import ArgumentError, PycudnnrnnError
from tests.helpers.interrupts import at_every_moment
from tests.helpers.writers import BESIDE, WRITERS

LEFT_BEHIND = ".pycudnnrnn-0123456789abcdef"


@pytest.fixture(params=WRITERS)
def writer(request, tmp_path):
    """A function that writes a version of a file, and its path."""
    write, name = WRITERS[request.param]
    return write, tmp_path / name


def names(folder):
    """What is in a folder, but for the book and locks."""
    return sorted(p.name for p in folder.iterdir() if p.name not in BESIDE and not p.name.endswith(".lock"))


# --- what is refused --------------------------------------------------------------------------------------------------


def a_socket(path):
    made = socket.socket(socket.AF_UNIX)
    made.bind(os.path.relpath(path))  # an address has 108 bytes
    made.close()


SPECIAL = {
    "a folder": Path.mkdir,
    "a FIFO": os.mkfifo,
    "a socket": a_socket,
    "a symbolic link": lambda path: path.symlink_to("precious"),
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_no_regular_file_is_refused_by_every_writer_and_stays(kind, writer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write, path = writer
    (tmp_path / "precious").write_bytes(b"precious")
    SPECIAL[kind](path)
    before = os.lstat(path)
    with pytest.raises(PycudnnrnnError, match=f"{path.name}.*{kind}") as raised:
        write(path, 1)
    assert isinstance(raised.value, ArgumentError)
    assert raised.value.argument == "path"
    after = os.lstat(path)
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert names(tmp_path) == sorted(["precious", path.name])


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/dev/null", "a device"), ("", "a folder"), (".", "a folder"), ("..", "a folder"), ("/", "a folder"),
        ("x/..", "a folder"), ("a\0b", "null"), ("a\0b/c", "null"), ("\ud800", "surrogates"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("call", [lambda path: write_atomically(path, b"new"), check_target])
def test_what_is_no_name_of_a_file_is_an_error_that_names_the_argument(call, path, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    with pytest.raises(ArgumentError, match=text) as raised:
        call(Path(path))
    assert raised.value.argument == "path"
    assert names(tmp_path) == ["x"]


def test_a_dangling_link_is_refused_too(tmp_path):
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ArgumentError, match="symbolic link"):
        write_atomically(tmp_path / "link", b"new")
    assert names(tmp_path) == ["link"]


def test_a_file_that_may_not_be_written_to_is_refused(tmp_path, monkeypatch):
    """A rename needs no right to the file itself, so nothing but the writer keeps it."""
    path = tmp_path / "m"
    path.write_bytes(b"old")
    path.chmod(0o444)
    real = os.open

    def as_another(name, flags, *arguments, **keywords):  # root may write to any
        if name == "m" and flags & os.O_ACCMODE == os.O_WRONLY:
            assert not flags & os.O_TRUNC
            raise PermissionError(errno.EACCES, "not yours", name)
        return real(name, flags, *arguments, **keywords)

    monkeypatch.setattr(os, "open", as_another)
    for call in (lambda: write_atomically(path, b"new"), lambda: check_target(path)):
        with pytest.raises(PermissionError) as raised:
            call()
        assert (raised.value.filename, raised.value.errno) == (str(path), errno.EACCES)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["m"]


@pytest.mark.parametrize("place", ["nowhere/m", "file/m", "loop/m", "n" * 256])
def test_a_place_where_nothing_can_be_is_an_oserror_that_names_it(place, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match=re.escape(place)) as raised:
        write_atomically(tmp_path / place, b"new")
    assert raised.value.filename == str(tmp_path / place)
    assert names(tmp_path) == ["file", "loop"]


def test_of_files_that_belong_together_none_is_written_where_one_cannot_be(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "first").write_bytes(b"old")
    with pytest.raises(ArgumentError, match="folder"):
        write_together([(tmp_path / "first", b"new"), (tmp_path / "folder", b"new")])
    assert (tmp_path / "first").read_bytes() == b"old"
    write_together([(tmp_path / "first", b"1"), (tmp_path / "second", b"2")])
    assert [(tmp_path / name).read_bytes() for name in ("first", "second")] == [b"1", b"2"]
    assert names(tmp_path) == ["first", "folder", "second"]


def test_the_bytes_reach_the_disk_before_they_have_their_name_and_the_name_after_it(tmp_path, monkeypatch):
    done, kinds = [], {stat.S_IFREG: "file", stat.S_IFDIR: "folder"}
    real = {name: getattr(os, name) for name in ("write", "fsync", "replace")}

    def noting(name):
        def call(first, *arguments, **keywords):
            what = kinds[stat.S_IFMT(os.fstat(first).st_mode)] if isinstance(first, int) else ""
            done.append(f"{name} {what}".strip())
            return real[name](first, *arguments, **keywords)

        return call

    for name in real:
        monkeypatch.setattr(os, name, noting(name))
    write_together([(tmp_path / "first", b"1"), (tmp_path / "second", b"2")])
    assert done == [*["write file", "fsync file"] * 2, *["replace", "fsync folder"] * 2]


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_every_name_that_a_file_system_takes_is_taken(writer, tmp_path):
    write, path = writer
    for length in (1 + len(path.name), 240, 254, 255):
        long = path.with_name("n" * (length - len(path.name)) + path.name)
        write(long, 1)
        write(long, 2)
        assert long.is_file()
        long.unlink()
    assert names(tmp_path) == []


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
def test_the_mode_of_an_existing_file_stays_and_a_new_one_has_the_usual(mode, writer, tmp_path):
    write, path = writer
    write(path, 1)
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
    path.chmod(mode)
    write(path, 2)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_new_bytes_never_run_as_the_owner_of_the_old(tmp_path):
    path = tmp_path / "m"
    path.write_bytes(b"old")
    path.chmod(0o6755)
    write_atomically(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_nobody_reads_the_new_file_before_it_has_the_mode_of_the_old(tmp_path, monkeypatch):
    path, modes = tmp_path / "m", []
    path.write_bytes(b"old")
    path.chmod(0o600)
    real = {
        name: getattr(os, name) for name in ("fchown", "write")
    }  # the first thing that is done with it, and the last

    def looking(name):
        def call(descriptor, *arguments):
            modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
            return real[name](descriptor, *arguments)

        return call

    for name in real:
        monkeypatch.setattr(os, name, looking(name))
    before = os.umask(0)
    try:
        write_atomically(path, b"new")
    finally:
        os.umask(before)
    assert modes == [0o600, 0o600]


def test_another_group_than_the_old_files_gets_no_rights(tmp_path, monkeypatch):
    path, tried = tmp_path / "m", []
    path.write_bytes(b"old")
    path.chmod(0o664)
    real = os.stat

    def of_another(path, **keywords):
        found = list(real(path, **keywords))
        found[5] += 1
        return os.stat_result(found)

    def refuse(_, uid, gid):
        tried.append((uid, gid - real(path).st_gid))
        raise PermissionError(errno.EPERM, "not yours")

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", of_another)
        patch.setattr(os, "fchown", refuse)
        write_atomically(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o604
    assert tried == [(real(path).st_uid, 1), (-1, 1)], "both together, and then the group alone"
    assert path.read_bytes() == b"new"


ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
NOBODYS = 0xFFFFFFFF


def acl(*entries):
    """The bytes of an ACL: (tag, rights, id) each. Source: linux/posix_acl_xattr.h."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def shared(group=0):
    """Of the owner and of user 1234, who may write, of the owning group with these rights, and of no others."""
    return acl((1, 6, NOBODYS), (2, 6, 1234), (4, group, NOBODYS), (16, 6, NOBODYS), (32, 0, NOBODYS))


def give_acl(path, name, value):
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        pytest.skip(f"no ACLs here: {error}")


def acl_of(path):
    return os.getxattr(path, ACCESS) if ACCESS in os.listxattr(path) else None


@pytest.mark.parametrize("group", [0, 4])
def test_the_acl_of_an_existing_file_stays_and_the_group_gets_no_more_than_its_entry(group, writer):
    write, path = writer
    write(path, 1)
    give_acl(path, ACCESS, shared(group))
    write(path, 2)
    assert acl_of(path) == shared(group)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660, "the mask"


def test_another_group_than_the_old_files_gets_no_rights_by_an_acl_either(tmp_path, monkeypatch):
    path = tmp_path / "m"
    path.write_bytes(b"old")
    give_acl(path, ACCESS, shared(6))
    real = os.stat

    def of_another(path, **keywords):
        found = list(real(path, **keywords))
        found[5] += 1
        return os.stat_result(found)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", of_another)
        patch.setattr(os, "fchown", lambda *_: None)
        write_atomically(path, b"new")
    assert acl_of(path) == shared(0)


def test_where_an_acl_cannot_be_copied_the_file_is_the_owners_alone(tmp_path, monkeypatch):
    path = tmp_path / "m"
    path.write_bytes(b"old")
    give_acl(path, ACCESS, shared())

    def refuse(*_):
        raise OSError(errno.ENOTSUP, "not here")

    monkeypatch.setattr(os, "setxattr", refuse)
    write_atomically(path, b"new")
    assert (acl_of(path), stat.S_IMODE(path.stat().st_mode)) == (None, 0o600)
    assert path.read_bytes() == b"new"


def test_a_folders_acl_for_new_files_is_a_new_files_and_not_that_of_one_that_was_there(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"1")
    old.chmod(0o664)
    give_acl(tmp_path, DEFAULT, shared(6))
    write_atomically(old, b"2")
    write_atomically(new, b"2")
    assert (acl_of(old), stat.S_IMODE(old.stat().st_mode)) == (None, 0o664)
    assert acl_of(new) == shared(6)


@pytest.mark.parametrize("code", [errno.ENODATA, errno.ENOTSUP, errno.ENOSYS])
def test_where_there_are_no_acls_the_mode_stays(code, tmp_path, monkeypatch):
    path = tmp_path / "m"
    path.write_bytes(b"old")
    path.chmod(0o640)

    def none(*_):
        raise OSError(code, "none")

    monkeypatch.setattr(os, "getxattr", none)
    monkeypatch.setattr(os, "setxattr", lambda *_: pytest.fail("there is none to set"))
    write_atomically(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_another_hard_link_keeps_the_old_contents(writer, tmp_path):
    write, path = writer
    write(path, 1)
    before = path.read_bytes()
    os.link(path, tmp_path / "other")
    write(path, 2)
    assert (tmp_path / "other").read_bytes() == before != path.read_bytes()


def test_a_folder_that_is_a_link_is_gone_through(writer, tmp_path):
    write, path = writer
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to("real")
    write(tmp_path / "linked" / path.name, 1)
    assert (tmp_path / "real" / path.name).is_file()
    assert (tmp_path / "linked").is_symlink()


# --- what is left behind ----------------------------------------------------------------------------------------------


def test_what_a_killed_process_left_is_removed_once_it_is_old(tmp_path, monkeypatch):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 1e6)  # the clock of the folder's file system counts, not ours
    old = tmp_path / LEFT_BEHIND
    others = [".pycudnnrnn-mine", f"{LEFT_BEHIND}.txt", "x.pycudnnrnn-0123456789abcdef", "precious"]
    for name in (LEFT_BEHIND, *others):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (1e9, 1e9))
    (tmp_path / f"{LEFT_BEHIND[:-1]}0").mkdir()
    link = tmp_path / f"{LEFT_BEHIND[:-1]}1"
    link.symlink_to("precious")
    os.utime(link, (1e9, 1e9), follow_symlinks=False)
    fresh = tmp_path / f"{LEFT_BEHIND[:-1]}2"
    fresh.touch()
    write_atomically(tmp_path / "m", b"new")
    kept = sorted(["m", fresh.name, *others, f"{LEFT_BEHIND[:-1]}0", f"{LEFT_BEHIND[:-1]}1"])
    assert names(tmp_path) == kept
    assert not old.exists()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a listing that was not closed
@pytest.mark.parametrize("over", [False, True])
def test_an_interrupt_at_any_moment_leaves_a_whole_file_and_nothing_beside_it(over, tmp_path, monkeypatch):
    """Ctrl-C comes between any two instructions of Python: at each of them, one after another."""
    files = [tmp_path / "m", tmp_path / "book"]
    monkeypatch.setattr(os, "fsync", lambda _: None)  # slow, and nothing pulls the plug here

    def start():
        for file in files:
            file.unlink(missing_ok=True)
            if over:
                file.write_bytes(b"old")

    start()
    outcomes = set()
    for moment in at_every_moment(lambda: write_together([(file, b"new") for file in files]), [_atomic.__file__]):
        outcomes.add(tuple(file.read_bytes() if file.exists() else None for file in files))
        assert names(tmp_path) == sorted(file.name for file in files if file.exists()), moment
        start()
    old = b"old" if over else None
    assert outcomes == {(old, old), (b"new", old), (b"new", b"new")}
    assert moment > 300, "there are many moments"


# --- a disk that is full ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0, 0.5])
def test_a_file_that_finds_no_room_is_an_error_and_the_old_one_stays(share, writer, tmp_path):
    """The kernel refuses to write beyond some byte, whoever writes: HDF5 and torch are no exception."""
    write, path = writer
    write(path, 1)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(share * len(before)), hard))  # Python ignores SIGXFSZ
    try:
        with pytest.raises((OSError, PycudnnrnnError)) as raised:
            write(path, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    error = raised.value if isinstance(raised.value, OSError) else raised.value.__cause__
    assert (error.errno, error.filename) == (errno.EFBIG, str(path))
    assert str(path) in str(raised.value)
    assert path.read_bytes() == before
    assert names(tmp_path) == [path.name]
    write(path, 2)
    assert path.read_bytes() != before


def test_a_lock_is_given_back_though_a_child_that_was_forked_meanwhile_lives_on(tmp_path):
    """Such as a loader's worker: it has the lock's descriptor, too."""
    path, asked, got = tmp_path / "f", threading.Event(), threading.Event()
    end, writer = os.pipe()

    def wait():
        asked.set()
        with locked(path):
            got.set()

    waiting = threading.Thread(target=wait)
    with locked(path):
        child = os.fork()
        if not child:
            os.close(writer)
            os.read(end, 1)  # until the parent's end is closed
            os._exit(0)
        waiting.start()
        asked.wait()
        assert not got.wait(0.2)
    try:
        assert got.wait(60)
    finally:
        os.close(writer)
        os.waitpid(child, 0)
        waiting.join()
        os.close(end)
    assert not list(tmp_path.iterdir())
