"""What every writer of files holds to: what it refuses, what it keeps, and what it leaves behind."""

import errno
import os
import stat
from pathlib import Path

import pytest

from pycudnnrnn import _files
from pycudnnrnn._files import check_target, write_atomically, write_together
from pycudnnrnn.errors import ArgumentError, PycudnnrnnError
from tests.helpers.interrupts import at_every_moment
from tests.helpers.writers import WRITERS, names


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m"


def write(path, version):
    write_atomically(path, b"version %d" % version * 1000)


@pytest.mark.parametrize("name", WRITERS)
def test_every_writer_of_files_is_this_one(name, tmp_path, monkeypatch):
    """Where it finds no room, no other writes: the error names the file, which stays as it was."""
    call, path = WRITERS[name], tmp_path / name
    call(path, 1)
    before = path.read_bytes()
    assert names(tmp_path) == [name]

    def full(_):
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises((OSError, PycudnnrnnError), match="no room") as raised:
            call(path, 2)
    assert str(path) in str(raised.value)
    assert path.read_bytes() == before
    assert names(tmp_path) == [name]
    call(path, 2)
    assert path.read_bytes() != before


# --- what is refused --------------------------------------------------------------------------------------------------


SPECIAL = {
    "a folder": Path.mkdir,
    "a device, a pipe or a socket": os.mkfifo,
    "a symbolic link": lambda path: path.symlink_to("precious"),
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_no_regular_file_is_refused_and_stays(kind, path, tmp_path):
    (tmp_path / "precious").write_bytes(b"precious")
    SPECIAL[kind](path)
    before = os.lstat(path)
    with pytest.raises(ArgumentError, match=f"^Invalid path.*{path.name}.*{kind}"):
        write(path, 1)
    after = os.lstat(path)
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert names(tmp_path) == sorted(["precious", path.name])


def test_a_file_that_may_not_be_written_to_is_refused(tmp_path, monkeypatch):
    """A rename needs no right to the file itself, so nothing but the writer keeps it."""
    path = tmp_path / "m"
    path.write_bytes(b"old")
    path.chmod(0o444)
    real = os.open

    def as_another(name, flags, *arguments, **keywords):  # root may write to any
        if Path(name).name == "m" and flags & os.O_ACCMODE == os.O_WRONLY:
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
    done, real = [], {name: getattr(os, name) for name in ("fsync", "replace")}

    def fsync(descriptor):
        status = os.fstat(descriptor)
        done.append("fsync folder" if stat.S_ISDIR(status.st_mode) else f"fsync {status.st_size} byte")
        real["fsync"](descriptor)

    def replace(*paths, **keywords):
        done.append("replace")
        real["replace"](*paths, **keywords)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write_together([(tmp_path / "first", b"1"), (tmp_path / "second", b"2")])
    assert done == [*["fsync 1 byte"] * 2, *["replace", "fsync folder"] * 2]


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_a_new_file_has_the_mode_of_the_old_and_before_that_nobody_else_reads_it(path, tmp_path, monkeypatch):
    """But new bytes never run as the owner of the old."""
    write(path, 1)
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
    modes, chmod = [], Path.chmod

    def chmod_of_a_new_file(file, mode):
        modes.append(stat.S_IMODE(file.stat().st_mode))
        chmod(file, mode)

    for before, after in ((0o600, 0o600), (0o664, 0o664), (0o6755, 0o755)):
        path.chmod(before)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "chmod", chmod_of_a_new_file)
            write(path, 2)
        assert stat.S_IMODE(path.stat().st_mode) == after
    assert modes == [0o600] * 2


# --- what is left behind ----------------------------------------------------------------------------------------------


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
    for moment in at_every_moment(lambda: write_together([(file, b"new") for file in files]), [_files.__file__]):
        outcomes.add(tuple(file.read_bytes() if file.exists() else None for file in files))
        assert names(tmp_path) == sorted(file.name for file in files if file.exists()), moment
        start()
    old = b"old" if over else None
    assert outcomes == {(old, old), (b"new", old), (b"new", b"new")}
    assert moment > 300, "there are many moments"
