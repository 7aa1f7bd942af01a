"""A saver's files: which it writes, keeps, deletes and lists, and that a restore changes all or nothing."""

import errno
import json
import os
import signal
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from numpy.lib.stride_tricks import as_strided

from pycudnnrnn import CudnnGRU, Saver, _arrays, _overwriting, checkpoint, ops
from pycudnnrnn.checkpoint import _file
from pycudnnrnn.errors import ArgumentError, CheckpointError
from pycudnnrnn.saveable import RNNParamsSaveable
from tests.helpers.interrupts import at_every_moment, heeded
from tests.helpers.layers import built
from tests.helpers.together import together


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# --- one file has many names ------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder `d` that is the working folder's, with a link to it beside it."""
    (tmp_path / "d").mkdir()
    (tmp_path / "linked").symlink_to("d")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "d"


@pytest.mark.parametrize("other", ["{0}/d/m", "d/../d/m", "linked/m", "{0}/linked/../d/m", "./d//m", "linked/../d/m"])
def test_a_checkpoint_saved_again_under_another_name_of_it_is_not_deleted_as_an_old_one(other, folder, tmp_path):
    a = np.zeros(2)
    saver = Saver({"a": a}, max_to_keep=1)
    for _ in range(3):
        for path in ("d/m", other.format(tmp_path)):
            a += 1
            assert saver.save(path) == Path(path), "the caller's own name comes back"
            assert saver.last_checkpoints == [folder / "m"]
            found = np.zeros(2)
            Saver({"a": found}).restore(folder / "m")
            assert np.array_equal(found, a)
            assert checkpoint.latest_checkpoint(folder) == folder / "m"


def test_one_file_in_two_folders_that_are_one_is_not_deleted_either(folder, tmp_path, monkeypatch):
    """Such as one mounted twice: no name says so, the file itself does."""
    (tmp_path / "e").mkdir()
    saver = Saver({"a": np.zeros(2)}, max_to_keep=1)
    saver.save("d/m")
    (tmp_path / "e" / "m").write_bytes((folder / "m").read_bytes())
    real = os.lstat
    monkeypatch.setattr(os, "lstat", lambda path: real(str(path).replace("/d/", "/e/")))
    saver.save("e/m")
    assert (folder / "m").exists()


def test_after_a_chdir_a_savers_own_files_are_deleted_and_nobody_elses(folder, tmp_path, monkeypatch):
    saver = Saver({"a": np.zeros(2)}, max_to_keep=1)
    saver.save("d/m", 1)
    (tmp_path / "elsewhere" / "d").mkdir(parents=True)
    somebodys = tmp_path / "elsewhere" / "d" / "m-1"
    somebodys.write_bytes(b"precious")
    monkeypatch.chdir(tmp_path / "elsewhere")
    saver.save("d/m", 2)
    assert somebodys.read_bytes() == b"precious"
    assert names(folder) == ["checkpoint.json"]
    assert names(somebodys.parent) == ["checkpoint.json", "m-1", "m-2"]


def test_what_stands_where_an_old_checkpoint_was_stays_unless_it_is_a_file(folder):
    saver = Saver({"a": np.zeros(2)}, max_to_keep=1)
    for step, replace in ((1, Path.mkdir), (2, lambda path: path.symlink_to("m-3"))):
        path = saver.save(folder / "m", step)
        path.unlink()
        replace(path)
    saver.save(folder / "m", 3)
    saver.save(folder / "m", 4)
    assert names(folder) == ["checkpoint.json", "m-1", "m-2", "m-4"]


@pytest.mark.parametrize("form", ["safetensors", "tensorflow"])
def test_threads_that_share_a_saver_keep_as_many_as_it_keeps(folder, form):
    saver = Saver({"a": np.zeros(2)}, max_to_keep=2)
    together(4, lambda number: [saver.save(folder / "m", 10 * number + i, format=form) for i in range(8)])
    kept = saver.last_checkpoints
    assert len(kept) == 2
    assert {path.stem for path in folder.glob("m-*")} == {path.name for path in kept}
    assert checkpoint.latest_checkpoint(folder) == kept[-1]


TAKEN = {
    "a folder's book": ["checkpoint", "Checkpoint", "checkpoint.json", "CheckPoint.JSON"],
    "part of a TensorFlow checkpoint": ["m.index", "m.meta", "m.data-00000-of-00001", "m.INDEX"],
    "suffix is of another format": ["m.npz", "m.h5", "m.weights.h5", "m.keras", "m.onnx", "m.pt", "m.pth"],
}


@pytest.mark.parametrize("form", ["safetensors", "tensorflow", "save"])
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, some in TAKEN.items() for name in some])
def test_a_name_that_stands_for_something_else_is_refused_and_nothing_is_written(tmp_path, form, kind, name):
    saver, layer = Saver({"a": np.zeros(2)}), built()
    with pytest.raises(ArgumentError, match=kind) as raised:
        checkpoint.save(tmp_path / name, layer) if form == "save" else saver.save(tmp_path / name, format=form)
    assert raised.value.argument == "path"
    assert names(tmp_path) == []


def test_the_latest_is_what_was_saved_last_in_either_format(tmp_path):
    saver = Saver({"a": np.zeros(2)}, max_to_keep=None)
    for step, form in enumerate(["tensorflow", "safetensors", "tensorflow", "tensorflow", "safetensors"]):
        path = saver.save(tmp_path / "m", step, format=form)
        assert checkpoint.latest_checkpoint(tmp_path) == path
    (tmp_path / "checkpoint.json").unlink()
    assert checkpoint.latest_checkpoint(tmp_path) == tmp_path / "m-3"
    saver.save(tmp_path / "n")
    os.utime(tmp_path / "checkpoint", (2**33, 2**33))  # as if TensorFlow had gone on there
    assert checkpoint.latest_checkpoint(tmp_path) == tmp_path / "m-3"
    (tmp_path / "m-3.index").unlink()
    assert checkpoint.latest_checkpoint(tmp_path) is None


def test_a_book_that_names_what_no_file_can_be_called_is_a_checkpoint_error(tmp_path):
    for name in ("a\ud800", "a\0", "a/b", "..", "", 3):
        (tmp_path / "checkpoint.json").write_text(json.dumps({"latest": name, "all": []}))
        with pytest.raises(CheckpointError, match="is not the name of a file in this folder"):
            checkpoint.latest_checkpoint(tmp_path)
    path = Saver({"a": np.zeros(2)}).save(tmp_path / "no \udcff UTF-8")
    (tmp_path / "checkpoint.json").write_text(json.dumps({"latest": path.name, "all": []}))
    assert checkpoint.latest_checkpoint(tmp_path) == path


def test_the_files_that_are_gone_are_not_listed_nor_counted(folder):
    saver = Saver({"a": np.zeros(2)}, max_to_keep=2)
    paths = [saver.save(folder / "m", step) for step in (1, 2)]
    paths[1].unlink()
    assert saver.last_checkpoints == paths[:1]
    paths.append(saver.save(folder / "m", 3))
    assert saver.last_checkpoints == [paths[0], paths[2]]
    assert json.loads((folder / "checkpoint.json").read_text())["all"] == ["m-1", "m-3"]
    assert names(folder) == ["checkpoint.json", "m-1", "m-3"]


def test_an_old_checkpoint_that_cannot_be_deleted_is_a_warning_and_is_tried_again(folder, monkeypatch):
    saver = Saver({"a": np.zeros(2)}, max_to_keep=1)
    first = saver.save(folder / "m", 1)

    def refuse(path, **_):
        raise PermissionError(errno.EPERM, "not yours", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        with pytest.warns(UserWarning, match="could not be deleted.*m-1"):
            second = saver.save(folder / "m", 2)
    assert saver.last_checkpoints == [first, second]
    saver.save(folder / "m", 3)
    assert names(folder) == ["checkpoint.json", "m-3"]


# --- the book ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"step": 100}', "metadata"), ('{"latest": "m", "all": [], "mine": 1}', "metadata"), ("[]", "metadata"),
        ("my notes", "header text"), ("", "header text"), (" " * (2 << 20), "size"),
    ],
)  # fmt: skip
def test_somebody_elses_file_of_the_books_name_is_not_overwritten(text, reason, tmp_path):
    (tmp_path / "checkpoint.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"checkpoint\.json") as raised:
        Saver({"a": np.zeros(2)}).save(tmp_path / "m")
    assert raised.value.reason == reason
    assert (tmp_path / "checkpoint.json").read_text() == text
    assert names(tmp_path) == ["checkpoint.json"]
    checkpoint.save(tmp_path / "m", built())  # which has nothing to note


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("m")])
def test_a_book_that_is_no_regular_file_is_refused_and_stays(make, tmp_path):
    make(tmp_path / "checkpoint.json")
    before = os.lstat(tmp_path / "checkpoint.json")
    with pytest.raises((CheckpointError, ArgumentError), match=r"checkpoint\.json"):
        Saver({"a": np.zeros(2)}).save(tmp_path / "m")
    assert os.lstat(tmp_path / "checkpoint.json").st_ino == before.st_ino
    assert names(tmp_path) == ["checkpoint.json"]


def test_a_book_that_finds_no_room_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    """It is on the disk before the checkpoint takes its name."""
    a = np.zeros(2)
    saver = Saver({"a": a})
    path = saver.save(tmp_path / "m")
    before, real = path.read_bytes(), os.write

    def full(descriptor, data):
        if bytes(data[:12]) == b'{\n "latest":':
            raise OSError(errno.ENOSPC, "no room")
        return real(descriptor, data)

    a += 1
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="no room") as raised:
            saver.save(path)
    assert raised.value.filename == str(tmp_path / "checkpoint.json")
    assert path.read_bytes() == before
    assert names(tmp_path) == ["checkpoint.json", "m"]
    assert saver.last_checkpoints == [path]


# --- all or nothing ---------------------------------------------------------------------------------------------------


def read_only(array):
    array.flags.writeable = False
    return array


def frozen_layer():
    layer = built()
    read_only(layer.params)
    return layer


def with_a_variable(value):
    layer = built(CudnnGRU)
    layer.add_weight("own", (2, 2), initializer="ones")
    layer.variables_by_name()["own"].value = value
    return layer


def tfs_saveable(to_params):
    op = ops.CudnnGRU(1, 3, 2)
    return RNNParamsSaveable(op.params_to_canonical, to_params, op.init_params(1))


def inference_tensor():
    with torch.inference_mode():
        return torch.ones(3)


def raise_memory_error(*_):
    raise MemoryError


OP = ops.CudnnGRU(1, 3, 2)
UNFIT = {
    "a read-only array": (lambda: np.ones(3), lambda: read_only(np.zeros(3)), ArgumentError),
    "an array that is one element": (
        lambda: np.ones(3), lambda: as_strided(np.zeros(1), (3,), (0,)), ArgumentError
    ),
    "an array whose rows overlap": (
        lambda: np.ones((3, 2)), lambda: as_strided(np.zeros(4), (3, 2), (8, 8)), ArgumentError
    ),
    "an expanded tensor": (lambda: torch.ones(3), lambda: torch.zeros(1).expand(3), ArgumentError),
    "a tensor of inference mode": (lambda: torch.ones(3), inference_tensor, ArgumentError),
    "a read-only layer": (built, frozen_layer, ArgumentError),
    "a read-only variable of a layer": (
        lambda: with_a_variable(np.ones((2, 2))), lambda: with_a_variable(read_only(np.ones((2, 2)))), ArgumentError
    ),
    "a read-only buffer of a saveable": (lambda: built().saveable, lambda: frozen_layer().saveable, ArgumentError),
    "a saveable that runs out of memory": (
        lambda: tfs_saveable(OP.canonical_to_params), lambda: tfs_saveable(raise_memory_error), MemoryError
    ),
}  # fmt: skip
"""What is saved, what the same name then stands for, and the error."""


@pytest.mark.parametrize("kind", UNFIT)
def test_a_restore_into_several_changes_none_where_one_cannot_be_changed(kind, tmp_path):
    good, bad, error = UNFIT[kind]
    first, last = built(dropout=0.5), np.array([1, 2])
    first(np.zeros((2, 1, 5)))  # moves its dropout
    path = Saver({"a": first, "m": good(), "z": last}).save(tmp_path / "m")
    twin, other = built(seed=9, dropout=0.5), np.array([8, 9])
    before, dropout = twin.params.copy(), twin.op.dropout_state()
    with pytest.raises(error):
        Saver({"a": twin, "m": bad(), "z": other}).restore(path)
    assert np.array_equal(twin.params, before)
    assert twin.op.dropout_state() == dropout
    assert other.tolist() == [8, 9]
    Saver({"a": twin, "m": good(), "z": other}).restore(path)
    assert np.array_equal(twin.params, first.params)
    assert twin.op.dropout_state() == first.op.dropout_state()


def test_a_damaged_file_changes_nothing(tmp_path):
    layer, step = built(), np.array([1, 2])
    path = Saver({"m": layer, "step": step}).save(tmp_path / "m")
    other = built(seed=5)
    before = other.params.copy()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="SHA-256 differs"):
        Saver({"m": other, "step": step}).restore(path)
    assert np.array_equal(other.params, before)


def test_what_may_look_like_overlap_and_is_none_is_restored(tmp_path):
    whole = np.zeros((4, 6))
    views = {"rows": whole[::2, 1:3], "turned": np.zeros((3, 5)).T, "back": np.zeros(4)[::-1],
             "one": as_strided(np.zeros(3), (1, 3), (0, 8)), "none": np.zeros((0, 3)), "scalar": np.array(0.0),
             "torch": torch.zeros(6, 2)[::2].T, "parameter": torch.nn.Parameter(torch.zeros(3))}  # fmt: skip
    rng = np.random.default_rng(0)
    values = {name: rng.normal(size=tuple(a.shape)).astype(str(a.dtype)[-7:]) for name, a in views.items()}
    Saver(views).restore(Saver(values).save(tmp_path / "m"))
    for name, array in views.items():
        found = array.detach().numpy() if name in {"torch", "parameter"} else array
        assert np.array_equal(found, values[name]), name
    assert not whole[1::2].any()


def test_arrays_are_saved_by_their_elements_however_they_lie_in_memory(tmp_path):
    """The safetensors library writes memory from its first byte on, whatever the strides say."""
    whole = np.arange(24.0).reshape(4, 6)
    views = {"turned": whole.T, "back": whole[::-1], "part": whole[1:3, ::2], "many": np.broadcast_to(whole[0], (3, 6))}
    filled = {name: np.zeros(view.shape) for name, view in views.items()}
    Saver(filled).restore(Saver(views).save(tmp_path / "m"))
    foreign = safetensors.numpy.load(_file.foreign_image(views, {}))
    for name, view in views.items():
        assert np.array_equal(filled[name], view)
        assert np.array_equal(foreign[name], view)


@pytest.mark.parametrize(
    ("modules", "step"), [((_arrays, checkpoint), 7), ((_overwriting,), 1)], ids=["around the writes", "among them"]
)
def test_an_interrupt_at_any_moment_of_a_restore_comes_before_all_or_after_all(tmp_path, modules, step):
    layer, arrays = built(dropout=0.5), {f"a{i}": np.full(3, 1.0) for i in range(3)}
    layer(np.zeros((2, 1, 5)))
    path = Saver({"m": layer, **arrays}).save(tmp_path / "m")
    twin, others = built(seed=9, dropout=0.5), {name: np.zeros(3) for name in arrays}
    params, dropout = twin.params.copy(), twin.op.dropout_state()
    saver = Saver({"m": twin, **others})
    seen = set()
    for moment in at_every_moment(lambda: saver.restore(path), [m.__file__ for m in modules], step):
        new = [np.array_equal(twin.params, layer.params), twin.op.dropout_state() == layer.op.dropout_state()]
        new += [bool(array.all()) for array in others.values()]
        old = [np.array_equal(twin.params, params), twin.op.dropout_state() == dropout]
        old += [not array.any() for array in others.values()]
        assert all(new) or all(old), moment
        seen.add(all(new))
        twin.params[...] = params
        twin.op.set_dropout_state(dropout)
        for array in others.values():
            array[...] = 0
    assert seen == {True, False}


def test_ctrl_c_at_each_write_of_a_restore_comes_once_after_the_last(tmp_path, monkeypatch):
    arrays = {f"a{i}": np.full(3, 1.0) for i in range(3)}
    path, writing = Saver(arrays).save(tmp_path / "m"), _arrays.writing

    def interrupted(*arguments):
        write = writing(*arguments)

        def both_sides():
            signal.raise_signal(signal.SIGINT)
            write()
            signal.raise_signal(signal.SIGINT)

        return both_sides

    monkeypatch.setattr(_arrays, "writing", interrupted)
    others = {name: np.zeros(3) for name in arrays}
    with heeded():
        with pytest.raises(KeyboardInterrupt):
            Saver(others).restore(path)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert all(array.all() for array in others.values())


@pytest.mark.parametrize("bad", ["x", np.array(["1", "2"]), np.array([1, "x"], object), np.array([1j, 2]), [3.0]])
def test_set_weights_changes_none_where_one_array_is_bad(bad):
    layer = built()
    for i in range(2):
        layer.add_weight(f"w{i}", (2,), initializer="zeros")
    before = layer.get_weights()
    with pytest.raises(ArgumentError, match=r"weights\[2\]") as raised:
        layer.set_weights([layer.params + 1, np.ones(2), bad])
    assert raised.value.argument == "weights[2]"
    read_only(layer.weights[2].value)
    with pytest.raises(ArgumentError, match="read-only") as raised:
        layer.set_weights([layer.params + 1, np.ones(2), np.ones(2)])
    assert raised.value.argument == "weights[2]"
    assert all(np.array_equal(a, b) for a, b in zip(layer.get_weights(), before, strict=True))
    with pytest.raises(ArgumentError):
        layer.weights[1].assign(bad)
    assert not layer.weights[1].value.any()


def test_a_restore_takes_no_more_than_twice_the_model(tmp_path):
    layer = CudnnGRU(1, 1000, dtype="float64")
    layer.build((None, None, 500))
    saver = Saver({"m": layer})
    path = saver.save(tmp_path / "m")
    tracemalloc.start()
    saver.restore(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 2 * layer.params.nbytes + (16 << 20)


# --- what can be saved can be restored --------------------------------------------------------------------------------


def test_the_name_that_the_format_has_for_itself_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="__metadata__"):
        Saver({"__metadata__": np.zeros(2)}).save(tmp_path / "m")
    assert names(tmp_path) == []
    a, b = np.ones(2), np.ones(2)
    saver = Saver({"__metadata__/x": a, "metadata": b})
    path = saver.save(tmp_path / "m")
    a[...] = b[...] = 0
    saver.restore(path)
    assert [a.all(), b.all()] == [True, True]
