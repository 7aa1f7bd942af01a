"""Every call of the operating system fails in its turn, and the process dies at every one: files stay whole.

After each: the old file or the new one, no other beside it that stays, an error of a type that is promised and that
names the file, and a next call that works.
"""

import errno
import functools
import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pycudnnrnn import Saver, checkpoint
from pycudnnrnn.errors import CheckpointError, PycudnnrnnError
from tests.helpers.faults import cut_short, each, killed_at, refused, reported_late
from tests.helpers.layers import built
from tests.helpers.writers import BESIDE, WRITERS

ROOT = Path(__file__).parents[2]
LEFT_BEHIND = ".pycudnnrnn-"

FAILURES = {
    "ENOSPC": refused(errno.ENOSPC), "EINTR": refused(errno.EINTR), "EIO, reported late": reported_late(errno.EIO)
}  # fmt: skip


def content(path):
    """What a file holds, None where there is none."""
    return path.read_bytes() if path.exists() else None


def names(folder):
    return sorted(p.name for p in folder.iterdir() if p.name not in BESIDE and not p.name.endswith(".lock"))


def check_typed(error, path):
    """Refuse an error that is none of those promised, or that does not say which file it is about."""
    assert isinstance(error, (OSError, PycudnnrnnError)), repr(error)
    assert str(path.parent) in str(error), repr(error)


@pytest.fixture
def writer(monkeypatch, tmp_path):
    """All files have one writer: tests/files/test_atomic.py."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # before it is watched: slow, and nothing pulls the plug here
    write, name = WRITERS["Saver.save"]
    return write, tmp_path / name


def starting(path, old):
    """Return what puts things back to where there was an old file, or with None no file."""

    def start():
        path.unlink(missing_ok=True)
        if old is not None:
            path.write_bytes(old)

    start()
    return start


def cases(write, path):
    """Over an old file and where there was none: what puts that back, the work, and what there may be after it."""
    write(path, 1)
    for data in (path.read_bytes(), None):
        start = starting(path, data)
        old = content(path)
        write(path, 2)
        new = content(path)
        assert new != old
        start()
        yield start, functools.partial(write, path, 2), old, new


@pytest.mark.parametrize("kind", FAILURES)
def test_a_write_in_which_any_call_fails_leaves_a_whole_file_and_the_next_works(kind, writer, tmp_path):
    write, path = writer
    failed = set()
    for start, work, old, new in cases(write, path):
        for call, error in each(work, FAILURES[kind]):
            failed.add(call)
            found = content(path)
            assert found in {old, new}, call
            if error is None:
                assert found == new, call
            else:
                check_typed(error, path)
            assert [name for name in names(tmp_path) if name != path.name] == [], call
            work()
            assert names(tmp_path) == [path.name], call
            start()
    assert {"open", "write", "fsync", "close", "replace", "unlink", "stat"} <= failed


def test_writes_that_take_one_byte_are_gone_on_with(writer, tmp_path):
    write, path = writer
    for start, work, _, new in cases(write, path):
        for call, error in each(work, cut_short):
            assert error is None, call
            assert content(path) == new
            assert names(tmp_path) == [path.name]
            start()


# --- a saver ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FAILURES)
def test_a_saver_in_whose_save_any_call_fails_keeps_a_checkpoint_and_a_list_that_fit(kind, tmp_path, monkeypatch):
    """Two are kept and a third is saved: the latest that the list names is there and whole, whatever fails."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    a, saver, steps = np.zeros(100), None, None

    def start():
        nonlocal saver
        for path in tmp_path.iterdir():
            path.unlink()
        saver = Saver({"a": a}, max_to_keep=2)
        for step in (1, 2):
            a[...] = step
            saver.save(tmp_path / "m", step)
        a[...] = 3

    def work():
        saver.save(tmp_path / "m", 3)

    start()
    for call, error in each(work, FAILURES[kind]):
        latest = checkpoint.latest_checkpoint(tmp_path)
        found = np.zeros(100)
        for path in saver.last_checkpoints:
            Saver({"a": found}).restore(path)
            assert (found == int(path.name[2:])).all(), (call, path)
        steps = [path.name for path in saver.last_checkpoints]
        if isinstance(error, UserWarning):  # raised, as warnings are in tests: the oldest could not be deleted
            error = None  # noqa: PLW2901
        assert steps == [name for name in names(tmp_path) if error is None or name in {"m-1", "m-2"}], call
        assert latest.name in ({"m-2", "m-3"} if error else {"m-3"}), call
        if error is not None:
            check_typed(error, tmp_path / "m-3")
        work()
        assert names(tmp_path) == ["m-2", "m-3"], call
        assert [path.name for path in saver.last_checkpoints] == ["m-2", "m-3"], call
        start()


READERS = {
    "restore": lambda path, layer: Saver({"m": layer}).restore(path),
    "load": lambda path, _: checkpoint.load(path.with_name("alone")),
    "inspect": lambda path, _: checkpoint.inspect(path),
    "latest_checkpoint": lambda path, _: checkpoint.latest_checkpoint(path.parent).name,  # there is one
}


@pytest.mark.parametrize("kind", FAILURES)
@pytest.mark.parametrize("name", READERS)
def test_a_read_in_which_any_call_fails_is_a_checkpoint_error_and_changes_nothing(name, kind, tmp_path):
    layer, twin = built(), built(seed=9)
    path = Saver({"m": layer}).save(tmp_path / "m")
    checkpoint.save(tmp_path / "alone", layer)
    before, work = twin.params.copy(), functools.partial(READERS[name], path, twin)
    tried = 0
    for call, error in each(work, FAILURES[kind]):
        tried += 1
        if error is None:
            # Nothing was written; Python reads again after a signal; and a file that is not there is reported first.
            assert call == "close" or (call, kind) in {("read", "EINTR"), ("stat", "EIO, reported late")}, call
            continue
        assert isinstance(error, CheckpointError), (call, error)
        assert str(tmp_path) in str(error)
        assert np.array_equal(twin.params, before)
        work()
        twin.params[...] = before
    assert tried >= 3


# --- a process that is killed -----------------------------------------------------------------------------------------


def die_everywhere(folder):
    """Write files in children that die at every call, before it and after it; return how many died."""
    died = 0
    for name in ("Saver.save", "plot"):
        write, file_name = WRITERS[name]
        path = folder / name.replace(" ", "-").replace(".", "-") / file_name
        path.parent.mkdir()
        for start, work, old, new in cases(write, path):
            for after in (False, True):
                for number in range(500):
                    if not killed_at(number, work, after):
                        break
                    died += 1
                    found = content(path)
                    assert found in {old, new}, (name, number, after)
                    left = [other for other in names(path.parent) if other != path.name]
                    assert all(other.startswith(LEFT_BEHIND) for other in left)
                    assert len(left) <= 2
                    work()
                    assert content(path) == new
                    for other in left:
                        (path.parent / other).unlink()
                    assert names(path.parent) == [path.name], (name, number, after)
                    start()
    return died


def die_in_a_bundle(folder):
    """Save over a bundle of one shard and of two, in children that die at every call; return how many died."""
    died, found, path = 0, np.zeros(3), folder / "m"
    for shards, after in itertools.product((1, 2), (False, True)):
        for number in range(500):
            for file in folder.iterdir():
                file.unlink()
            for _ in range(shards):
                Saver({"a": np.full(3, 1.0)}).save(path, format="tensorflow")
            work = functools.partial(Saver({"a": np.full(3, 2.0)}).save, path, format="tensorflow")
            if not killed_at(number, work, after):
                break
            died += 1
            Saver({"a": found}).restore(path)
            assert found.tolist() in ([1] * 3, [2] * 3), (number, after)
            work()
            Saver({"a": found}).restore(path)
            assert found.tolist() == [2] * 3
            assert len(list(folder.glob("*.data-*"))) <= 2
    return died


@pytest.mark.long  # the tests above are its quick version: the same calls, which fail
@pytest.mark.parametrize(("work", "least"), [("die_everywhere", 100), ("die_in_a_bundle", 150)])
def test_a_process_that_dies_at_any_call_leaves_a_whole_file_and_at_most_its_temporary_ones(work, least, tmp_path):
    code = f"""
import os, pathlib
os.fsync = lambda _: None
from tests.files.test_file_faults import {work}
print("died", {work}(pathlib.Path({str(tmp_path)!r})))
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.partition("died ")[2]) > least
