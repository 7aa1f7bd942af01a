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
from tests.helpers.faults import each, killed_at, refused, reported_late
from tests.helpers.layers import built
from tests.helpers.writers import names

ROOT = Path(__file__).parents[2]

FAILURES = {
    "ENOSPC": refused(errno.ENOSPC), "EINTR": refused(errno.EINTR), "EIO, reported late": reported_late(errno.EIO)
}  # fmt: skip


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m"


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # before it is watched: slow, and nothing pulls the plug here


# --- a saver ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FAILURES)
def test_a_saver_in_whose_save_any_call_fails_keeps_a_checkpoint_and_a_list_that_fit(kind, tmp_path):
    """Two are kept and a third is saved: the latest that the list names is there and whole, whatever fails."""
    a, saver = np.zeros(100), None

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
        restored = np.zeros(100)
        for path in saver.last_checkpoints:
            Saver({"a": restored}).restore(path)
            assert (restored == int(path.name[2:])).all(), (call, path)
        steps = [path.name for path in saver.last_checkpoints]
        if isinstance(error, UserWarning):  # raised, as warnings are in tests: the oldest could not be deleted
            error = None  # noqa: PLW2901
        assert steps == [name for name in names(tmp_path) if error is None or name in {"m-1", "m-2"}], call
        assert latest.name in ({"m-2", "m-3"} if error else {"m-3"}), call
        if error is not None:
            assert isinstance(error, (OSError, PycudnnrnnError)), repr(error)
            assert str(tmp_path) in str(error), "it says which file it is about"
        work()
        assert names(tmp_path) == ["m-2", "m-3"], call
        assert [path.name for path in saver.last_checkpoints] == ["m-2", "m-3"], call
        start()


def test_a_save_over_a_tensorflow_checkpoint_in_which_any_call_fails_leaves_the_old_or_the_new(tmp_path):
    a, restored, outcomes = np.arange(3.0), np.zeros(3), set()
    saver = Saver({"a": a})
    path = saver.save(tmp_path / "m", format="tensorflow")
    for call, error in each(lambda: saver.save(path, format="tensorflow"), FAILURES["ENOSPC"]):
        assert error is None or isinstance(error, (OSError, CheckpointError)), (call, error)
        Saver({"a": restored}).restore(tmp_path)
        outcomes.add("new" if np.array_equal(restored, a) else "old")
        assert restored[1] - restored[0] == 1, "never a mix"
        saver.save(path, format="tensorflow")
        index, *shards = sorted(names(tmp_path), key=lambda name: ".data-" in name)
        assert (index, len(shards)) == ("m.index", int(shards[0][-1])), "none is left over"
        a += 1
    assert outcomes == {"old", "new"}


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
            twin.params[...] = before
            continue
        assert isinstance(error, CheckpointError), (call, error)
        assert str(tmp_path) in str(error)
        assert np.array_equal(twin.params, before)
        work()
        twin.params[...] = before
    assert tried >= 3


# --- a process that is killed -----------------------------------------------------------------------------------------


def die_everywhere(folder, form):
    """Save over one and over two, in children that die at every call; count the dead."""
    died, a, path = 0, np.zeros(1), folder / "m"
    for saves in (1, 2):
        for number in itertools.count():
            for _ in range(saves):
                Saver({"a": np.array([1.0])}).save(path, format=form)
            new = Saver({"a": np.array([2.0])})
            if not killed_at(number, lambda new=new: new.save(path, format=form)):
                break
            died += 1
            Saver({"a": a}).restore(path)
            assert a in ([1.0], [2.0]), number
            assert all(name.startswith((".pycudnnrnn-", "m")) for name in names(folder))
            new.save(path, format=form)
            Saver({"a": a}).restore(path)
            assert a == [2.0]
    return died


@pytest.mark.long  # the tests above are its quick version: the same calls, which fail
@pytest.mark.parametrize("form", ["safetensors", "tensorflow"])
def test_a_process_that_dies_at_any_call_leaves_a_whole_file_and_at_most_its_temporary_ones(form, tmp_path):
    code = f"""
import os, pathlib
os.fsync = lambda _: None
from tests.files.test_file_faults import die_everywhere
print("died", die_everywhere(pathlib.Path({str(tmp_path)!r}), {form!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.partition("died ")[2]) > 49
