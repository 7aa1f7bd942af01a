"""A saver's files: which it writes, keeps, deletes and lists, and which names it refuses."""

import errno
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from pycudnnrnn import CudnnGRU, CudnnLSTM, Saver, checkpoint, ops
from pycudnnrnn.checkpoint import items
from pycudnnrnn.errors import ArgumentError, CheckpointError, StateError
from pycudnnrnn.saveable import CudnnOpaqueParamsSaveable, RNNParamsSaveable
from tests.helpers.layers import built
from tests.helpers.together import together

FORMATS = ["safetensors", "tensorflow"]


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder `d` that is the working folder's, with a link to it beside it."""
    (tmp_path / "d").mkdir()
    (tmp_path / "linked").symlink_to("d")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "d"


# --- the list of a folder ---------------------------------------------------------------------------------------------


def test_the_latest_checkpoints_are_kept_and_named_by_step(folder):
    step = np.array(0)
    saver = Saver({"step": step}, max_to_keep=2)
    (folder / "mine.safetensors").write_bytes(b"not the saver's")
    for n in (1, 2, np.array([3])):
        step[...] = n
        path = saver.save(folder / "model.safetensors", global_step=n)
        assert path.name == f"model-{int(step)}.safetensors"
        assert checkpoint.latest_checkpoint(folder) == path
    saved = ["model-2.safetensors", "model-3.safetensors"]
    assert names(folder) == ["checkpoint", "mine.safetensors", *saved]
    lines = [f'model_checkpoint_path: "{saved[1]}"', *(f'all_model_checkpoint_paths: "{name}"' for name in saved)]
    assert (folder / "checkpoint").read_text().splitlines() == lines
    assert [p.name for p in saver.last_checkpoints] == saved
    saver.save(folder.parent / "other", 4)
    assert "model-3" not in (folder.parent / "checkpoint").read_text(), "it is in another folder"
    for keep in (None, 0):
        everything = Saver({"step": step}, max_to_keep=keep)
        for n in range(6):
            everything.save(folder / f"keep{keep}", global_step=n)
        assert len(list(folder.glob(f"keep{keep}-*"))) == 6
    assert saver.save(folder / "model.ckpt", 9, format="tensorflow").name == "model.ckpt-9"


def test_both_formats_are_in_one_list_and_old_ones_are_deleted_with_all_their_files(folder):
    a = np.zeros(2)
    saver = Saver({"a": a}, max_to_keep=2)
    for step, form in enumerate(["tensorflow", "safetensors", "tensorflow", "tensorflow", "safetensors"]):
        a[...] = step
        path = saver.save(folder / "m", step, format=form)
        assert checkpoint.latest_checkpoint(folder) == path
        restored = np.zeros(2)
        Saver({"a": restored}).restore(folder)
        assert restored[0] == step
        assert checkpoint.inspect(folder).summaries["a"].most == step
    assert saver.last_checkpoints == [folder / "m-3", folder / "m-4"]
    assert names(folder) == ["checkpoint", "m-3.data-00000-of-00001", "m-3.index", "m-4"]
    (folder / "m-3.index").unlink()
    assert saver.last_checkpoints == [folder / "m-4"]
    (folder / "m-4").unlink()
    assert checkpoint.latest_checkpoint(folder) is None
    assert checkpoint.latest_checkpoint(folder / "nowhere") is None
    with pytest.raises(CheckpointError, match="no file 'checkpoint' that names a checkpoint"):
        saver.restore(folder)
    with pytest.raises(CheckpointError, match="it lists TensorFlow's checkpoints: name its folder"):
        saver.restore(folder / "checkpoint")


@pytest.mark.parametrize(("first", "second"), [FORMATS, FORMATS[::-1]])
def test_a_name_that_a_checkpoint_of_the_other_format_has_is_refused_before_anything_is_written(folder, first, second):
    a = np.array(1.0)
    saver = Saver({"a": a})
    saver.save(folder / "m", format=first)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    a[...] = 2
    calls = [lambda: saver.save(folder / "m", format=second)]
    if second == "safetensors":
        calls.append(lambda: checkpoint.save(folder / "m", built(CudnnGRU)))
    for call in calls:
        with pytest.raises(
            ArgumentError, match=r"^Invalid path: .*where 'm(\.index)?' exists.*one name is one checkpoint"
        ):
            call()
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    saver.restore(folder)
    assert a == 1


def test_no_reader_chooses_between_two_checkpoints_of_one_name(folder, run):
    """Only other programs, or a copy, bring two there."""
    Saver({"a": np.array(1.0)}).save(folder / "n")
    Saver({"a": np.array(2.0)}).save(folder / "m", format="tensorflow")
    (folder / "n").rename(folder / "m")
    readers = Saver({"a": np.array(0.0)}).restore, checkpoint.inspect, checkpoint.load, checkpoint.read_tensorflow
    text = r"'m' and 'm\.index' are two checkpoints of one name: rename one"
    for read, path in itertools.product(readers, (folder / "m", folder)):
        with pytest.raises(CheckpointError, match=text):
            read(path)
    with pytest.raises(CheckpointError, match=text):
        checkpoint.latest_checkpoint(folder)
    status, _, error = run("convert", str(folder / "m"), "x.h5", "--to", "keras")
    assert (status, bool(re.search(text, error))) == (1, True)
    assert checkpoint.read_tensorflow(folder / "m.index") == {"a": 2}


def test_a_folder_finds_its_latest_whatever_its_name(folder):
    (folder / "x").mkdir()
    for step, (name, form) in enumerate(
        itertools.product(['a"b', "a\\b", "ü ß", "a\nb", "a\udcffb", "x/../y"], FORMATS)
    ):
        Saver({"a": np.array(step)}).save(folder / f"{name}{step}", format=form)
        a = np.array(-1)
        Saver({"a": a}).restore(folder)
        assert a == step


def test_a_list_that_tensorflow_wrote_elsewhere_is_read_by_the_last_part_of_its_path(folder):
    Saver({"a": np.array(3)}).save(folder / "a'\"\\\n\tü", format="tensorflow")
    (folder / "checkpoint").write_text(r'model_checkpoint_path: "/gone/a\'\"\\\n\t\303\274"')
    assert checkpoint.read_tensorflow(folder) == {"a": 3}


@pytest.mark.parametrize(
    "text", ["my notes", " " * (2 << 20), '{"latest": "m"}', *(f'model_checkpoint_path: "{name}"' for name in
             (r"a\777", "\\", r"a\0", r"\u1234", "..", ""))],
)  # fmt: skip
def test_what_is_no_list_is_an_error_and_is_not_overwritten(folder, text):
    (folder / "checkpoint").write_text(text)
    calls = [lambda form=form: Saver({"a": np.zeros(2)}).save(folder / "m", format=form) for form in FORMATS]
    for call in (*calls, lambda: checkpoint.latest_checkpoint(folder), lambda: checkpoint.read_tensorflow(folder)):
        with pytest.raises(CheckpointError, match=r"checkpoint: (format|unreadable): "):
            call()
    assert (folder / "checkpoint").read_text() == text
    assert names(folder) == ["checkpoint"]
    checkpoint.save(folder / "m", built())  # which has nothing to note


# --- what is deleted --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["{0}/d/m", "d/../d/m", "linked/m", "{0}/linked/../d/m", "./d//m"])
def test_a_checkpoint_saved_again_under_another_name_of_it_is_not_deleted_as_an_old_one(other, folder, tmp_path):
    a = np.zeros(2)
    saver = Saver({"a": a}, max_to_keep=1)
    for path in ("d/m", other.format(tmp_path), "d/m"):
        a += 1
        assert saver.save(path) == Path(path), "the caller's own name comes back"
        assert saver.last_checkpoints == [folder / "m"]
        restored = np.zeros(2)
        Saver({"a": restored}).restore(folder / "m")
        assert np.array_equal(restored, a)


def test_what_stands_where_an_old_checkpoint_was_stays_unless_it_is_a_file_and_what_is_gone_is_not_listed(folder):
    saver = Saver({"a": np.zeros(2)}, max_to_keep=1)
    (folder / "precious").write_bytes(b"precious")
    for step, replace in ((1, Path.mkdir), (2, lambda path: path.symlink_to("precious"))):
        path = saver.save(folder / "m", step)
        path.unlink()
        replace(path)
        assert saver.last_checkpoints == []
    saver.save(folder / "m", 3)
    assert names(folder) == ["checkpoint", "m-1", "m-2", "m-3", "precious"]
    assert "m-1" not in (folder / "checkpoint").read_text()


def test_an_old_checkpoint_that_cannot_be_deleted_is_a_warning_and_is_tried_again(folder, monkeypatch):
    saver = Saver({"a": np.zeros(2)}, max_to_keep=1)
    first = saver.save(folder / "m", 1)

    def refuse(path, **_):
        raise PermissionError(errno.EPERM, "not yours", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        with pytest.warns(UserWarning, match="could not be deleted.*m-1") as said:
            second = saver.save(folder / "m", 2)
    assert said[0].filename == __file__
    assert saver.last_checkpoints == [first, second]
    saver.save(folder / "m", 3, format="tensorflow")
    assert names(folder) == ["checkpoint", "m-3.data-00000-of-00001", "m-3.index"]

    tried = []

    def interrupted(path, **_):
        if path.name.startswith("m-3"):
            tried.append(path.name)
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", interrupted)
        with pytest.raises(KeyboardInterrupt):
            saver.save(folder / "m", 4)
    assert tried == ["m-3.index"], "without it, nothing takes the rest for a checkpoint"
    saver.save(folder / "m", 5)
    assert names(folder) == ["checkpoint", "m-5"]
    (folder / "m-4").write_bytes(b"precious")
    saver.save(folder / "m", 6)
    assert names(folder) == ["checkpoint", "m-4", "m-6"], "what was deleted is the saver's no more"


def test_threads_that_share_a_saver_keep_as_many_as_it_keeps(folder):
    saver = Saver({"a": np.zeros(2)}, max_to_keep=2)
    together(4, lambda number: [saver.save(folder / "m", 10 * number + i, format=FORMATS[i % 2]) for i in range(6)])
    saved = saver.last_checkpoints
    assert len(saved) == 2
    assert {path.stem for path in folder.glob("m-*")} == {path.name for path in saved}
    assert checkpoint.latest_checkpoint(folder) == saved[-1]


# --- what is refused, before anything is written ----------------------------------------------------------------------

NO_NAMES = ["", ".", "..", "/", "nul\0", "half \ud800"]
TAKEN = ["checkpoint", "Checkpoint", "m.index", "m.meta", "m.data-00000-of-00001", "m.INDEX"]
OTHERS = ["m.pt", "m.PTH", "m.h5", "m.keras", "m.onnx", "m.npz"]


@pytest.mark.parametrize("path", [*NO_NAMES, *TAKEN, *OTHERS])
def test_a_name_that_no_checkpoint_can_have_is_refused(folder, path):
    saver, text = Saver({"a": np.zeros(3)}), "another suffix, since .* is of .*'s files" if path in OTHERS else ""
    text = "which is a folder" if path in {"", ".", "..", "/"} else text
    path = path if path in NO_NAMES else f"d/{path}"
    calls = [lambda form=form: saver.save(path, format=form) for form in FORMATS]
    calls += [lambda: saver.save(path, global_step=3)] * (path in NO_NAMES or bool(text))
    for call in (*calls, lambda: checkpoint.save(path, built(CudnnGRU))):
        with pytest.raises(ArgumentError, match=f"^Invalid path.*{text}"):
            call()
    assert names(folder) == []


def saveable_of(layer, scope):
    return CudnnOpaqueParamsSaveable.of(layer.params, layer.spec, scope, "s")


OP, LAYER = ops.CudnnLSTM(2, 8, 4), built(CudnnGRU)
PARAMS = OP.init_params(seed=1)
MANY = {
    "a fraction of a step": (lambda path: Saver({"a": np.zeros(1)}).save(path, 1.5), "global_step"),
    "a negative step": (lambda path: Saver({"a": np.zeros(1)}).save(path, -1), "global_step"),
    "a format": (lambda path: Saver({"a": np.zeros(1)}).save(path, format="hdf5"), "format"),
    "a number of checkpoints": (lambda _: Saver({"a": np.zeros(1)}, max_to_keep=-1), "max_to_keep"),
    "nothing": (lambda path: Saver(CudnnGRU(1, 3).variables).save(path), "items: none, .*once it is built"),
    "one tensor twice": (
        lambda path: Saver({"m": built(), "": saveable_of(built(), "m")}).save(path), "items.*twice"),
    "a number": (lambda _: Saver({"step": 3}), r"items\['step'\].*a layer, a saveable, a variable or an array"),
    "an op": (lambda _: Saver({"rnn": OP}), r"items\['rnn'\].*checkpoint\.save\(path, op, params\)"),
    "a layer alone": (lambda _: Saver(LAYER), r"items.*such as \[layer\]"),
    "one name twice": (lambda _: Saver([LAYER, built(CudnnGRU)]), "items.*'cudnn_gru' twice"),
    "a key of a number": (lambda _: Saver({1: np.zeros(2)}), "items: 1, expecting a string"),
    "a complex dtype": (lambda path: Saver({"a": np.zeros(3, complex)}).save(path), "a dtype"),
    "the format's own name": (lambda path: Saver({"__metadata__": np.zeros(3)}).save(path), "name.*__metadata__"),
    "an op alone": (lambda path: checkpoint.save(path, OP), r"params: None, .*save\(path, op, params\)"),
    "params cut short": (lambda path: checkpoint.save(path, OP, PARAMS[:-1]), "params shape"),
}  # fmt: skip


@pytest.mark.parametrize("what", MANY)
def test_what_cannot_be_saved_is_refused_by_name_and_nothing_is_written(tmp_path, what):
    call, text = MANY[what]
    with pytest.raises(ArgumentError, match=f"^Invalid {text}"):
        call(tmp_path / "m")
    assert names(tmp_path) == []


@pytest.mark.parametrize("save", [lambda layer: Saver([layer]).save("m"), lambda layer: checkpoint.save("m", layer)])
def test_a_layer_that_is_not_built_has_nothing_to_save(folder, save):
    with pytest.raises(StateError, match="not built"):
        save(CudnnLSTM(1, 2))
    assert names(folder) == []


@pytest.mark.parametrize("form", FORMATS)
def test_things_go_by_their_names_or_keys_and_tf_12s_saveable_too(tmp_path, form):
    """Two models under two scopes in one file, and both are read back as themselves."""
    first, second, op = built(seed=1), built(CudnnGRU, name="b"), ops.CudnnGRU(2, 3, 5)
    first.params[...], second.params[...] = 1, 2  # TensorFlow's format has the sums of biases
    scale, params = second.add_weight("scale", (2, 2), initializer="ones"), op.init_params(3)
    old = RNNParamsSaveable(op.params_to_canonical, op.canonical_to_params, params)
    saver = Saver([first, saveable_of(second, "m"), scale, old])
    arrays = first.params, second.params, scale.value, params
    path, before = saver.save(tmp_path / "m", format=form), [array.copy() for array in arrays]
    cell = "rnn/multi_rnn_cell/cell_0/cudnn_compatible_gru_cell/gates/kernel"
    assert {f"m/{cell}", "b/scale"} < set(checkpoint.inspect(path).tensors)
    for array in arrays:
        array[...] = 0
    saver.restore(path)
    assert all(map(np.array_equal, before, arrays))
    items = "'cudnn_lstm': CudnnLSTM, 'm': CudnnGRUSaveable, 'b/scale': Variable, '{}': RNNParamsSaveable"
    assert repr(saver) == f"Saver({{{items.format(old.name)}}}, max_to_keep=5)"


def test_each_model_of_a_file_is_known_by_its_key_whatever_its_scope_is(tmp_path):
    """The first has a scope below its key, where another key has a model of the same shapes."""
    layers = {"a": saveable_of(built(seed=1), "x"), "a/b": built(seed=2), "c/": built(seed=3), "n": np.zeros(1)}
    _, _, models = items.read(Saver(layers).save(tmp_path / "m"))
    assert {key: model and model.scope for key, model in models.items()} == {
        "a": "a/x/", "a/b": "a/b/", "c/": "c/", "n": None,
    }  # fmt: skip
    unclear = {"a": saveable_of(built(seed=1), "y/x"), "a/y": saveable_of(built(seed=2), "z")}
    with pytest.raises(CheckpointError, match="tensors of 'a/y' may be at 'a/y/x/' or 'a/y/z/'"):
        items.read(Saver(unclear).save(tmp_path / "unclear"))


def test_tensorflows_session_is_answered_with_how_the_call_is_here(tmp_path):
    saver, session = Saver({"a": np.zeros(2)}), object()
    calls = {
        Saver: r"missing 1 .*'items'; name what to save: Saver\(\{",
        lambda: saver.save(session, tmp_path / "m.ckpt", global_step=1): r"no session here: save\(path, global_step\)",
        lambda: saver.save(session, tmp_path / "m.ckpt"): "path: .*no session here",
        lambda: saver.restore(session, tmp_path / "m.ckpt"): r"no session here: restore\(path\)",
    }
    for call, text in calls.items():
        with pytest.raises(TypeError, match=text):
            call()
    assert names(tmp_path) == []
