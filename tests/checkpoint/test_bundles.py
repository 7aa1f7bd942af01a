"""TensorFlow's checkpoints without TensorFlow: each thing finds its own, and damaged files are refused."""

import os
import re
import sys
import threading

import numpy as np
import pytest

from pycudnnrnn import CudnnLSTM, Saver, checkpoint, convert
from pycudnnrnn.checkpoint import bundle
from pycudnnrnn.checkpoint.bundle import table
from pycudnnrnn.checkpoint.bundle import write as write_bundle
from pycudnnrnn.checkpoint.bundle.table import Entry, field, slice_key
from pycudnnrnn.errors import ArgumentError, CheckpointError, MissingDependencyError
from pycudnnrnn.saveable import CudnnLSTMSaveable, RNNParamsSaveable
from pycudnnrnn.spec import RNNSpec
from tests.helpers.layers import OF_MODE, built
from tests.helpers.oracles import random_canonical

SPEC = RNNSpec("lstm", 2, 3, 5, dtype="float64")


def variables(scope, seed=0, spec=SPEC, **keywords):
    """Return what TensorFlow has for an RNN, with what a training leaves beside it."""
    arrays = convert.tensorflow.from_canonical(random_canonical(spec, seed), prefix=scope, keep_biases_apart=False)
    slots = {f"{name}/{slot}": array for name, array in arrays.items() for slot in ("Adam", "ExponentialMovingAverage")}
    return arrays | slots | {f"{scope}opaque_kernel": np.zeros(7)} | keywords


def written(folder, *parts):
    write_bundle(folder / "model.ckpt-7", {name: array for part in parts for name, array in part.items()})
    return folder / "model.ckpt-7"


def is_of(layer, seed):
    """Say whether a layer has the weights that `variables` made from a seed, up to the sums of its biases."""
    (weights, biases), c = layer.op.params_to_canonical(layer.params), random_canonical(SPEC, seed)
    pairs = [biases[i] + biases[i + 4] for p in range(2) for i in range(8 * p, 8 * p + 4)]
    sums = [c.biases[i] + c.biases[i + 4] for p in range(2) for i in range(8 * p, 8 * p + 4)]
    return all(map(np.array_equal, weights, c.weights)) and all(map(np.allclose, pairs, sums))


def refused(things, path):
    """Return why a restore is refused, after checking that nothing changed."""
    before = {key: np.copy(getattr(thing, "params", thing)) for key, thing in things.items()}
    with pytest.raises(CheckpointError) as raised:
        Saver(things).restore(path)
    for key, thing in things.items():
        assert np.array_equal(before[key], getattr(thing, "params", thing)), key
    return f"{raised.value.reason}: {raised.value.detail}"


# --- whose tensors are they? ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["encoder/", "deep/down/"])
def test_an_rnn_that_nobody_named_is_found_under_any_scope_and_a_warning_says_under_which(tmp_path, scope):
    path = written(tmp_path, variables(scope, 3))
    for things in (lambda layer: {"": layer}, lambda layer: [layer], lambda layer: [layer.saveable]):
        layer = built()
        with pytest.warns(UserWarning, match=f"takes the only .* that is left: {scope.rstrip('/')!r}$") as said:
            Saver(things(layer)).restore(path)
        assert said[0].filename == __file__
        assert is_of(layer, 3)


@pytest.mark.parametrize(
    "scopes",
    [["encoder/", "encoder/cudnn_lstm/", "cudnn_lstm/", ""], ["encoder/cudnn_lstm/", "cudnn_lstm/", ""], ["encoder/"]],
)
def test_a_layer_is_the_one_that_its_key_names(tmp_path, scopes):
    path = written(tmp_path, *(variables(s, seed) for seed, s in enumerate(scopes)))
    for key in ("encoder", "encoder/"):
        layer = built()
        Saver({key: layer}).restore(path)
        assert is_of(layer, 0)


def test_what_has_a_name_takes_nobody_elses_weights(tmp_path):
    encoder, decoder, gru = built(), built(name="b"), built(OF_MODE["gru"])
    path = written(tmp_path, variables("x/", 1), variables("decoder/", 2), variables("g/", 2, SPEC.replace(mode="gru")))
    with pytest.warns(UserWarning, match="left: '(x|g)'$") as said:
        Saver({"": encoder, "decoder": decoder, "cudnn_gru": gru}).restore(path)
    assert len(said) == 2
    assert is_of(encoder, 1)
    assert is_of(decoder, 2)
    text = refused({"encoder": built()}, path)
    assert "none is under that name: give its scope as key" in text
    for scope in ("x/", "decoder/"):
        assert f"'{scope}': cudnn_compatible_lstm_cell, 2 x 3 units, unidirectional" in text
    assert "none is under that name" in refused({"encoder": built()}, written(tmp_path, variables("x/")))
    raw = written(tmp_path, {"m/opaque_kernel": np.zeros(2)})
    assert "a saveable's restore_opaque reads a raw buffer; the file has no RNN" in refused({"m": built()}, raw)


def test_two_things_never_read_the_same_variables(tmp_path):
    path = written(tmp_path, variables("a/b/"), variables("x/"))
    message = refused({"a": built(name="b"), "a/b": built(seed=2)}, path)
    assert "'a' and 'a/b' would both read 'a/b/rnn/multi_rnn_cell/cell_0/" in message
    assert "give them the scopes of the file as keys" in message
    array = next(iter(variables("x/")))
    twice = refused({"x": built(), array: np.zeros((8, 12))}, written(tmp_path, variables("x/")))
    assert f"would both read {array!r}" in twice
    path = written(tmp_path, {"step": np.array(7), "steps": np.array(8)})
    text = refused({"step": np.array(0), "stop": np.array(0)}, path)
    assert "'stop' is not there, for 'stop'; the file has 'step', 'steps'" in text


def of_layers(count):
    layer = CudnnLSTM(count, 3, dtype="float64")
    layer.build((None, None, 5))
    return layer


MISFITS = [
    (lambda: built(OF_MODE["gru"]), "needs a rnn/multi_rnn_cell/cell_0/cudnn_compatible_gru_cell"),
    (lambda: built(dtype="float32"), "is float64 [8, 12], expecting float32 [8, 12]"),
    (lambda: of_layers(1), "bias' is a part of that RNN, for which 'cudnn_lstm' has no"),
    (lambda: of_layers(3), "cell_2/cudnn_compatible_lstm_cell/kernel' is not there"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "text"), MISFITS, ids=[text for *_, text in MISFITS])
def test_an_rnn_that_is_another_is_refused_before_anything_changes(tmp_path, make, text):
    path = written(tmp_path, variables("cudnn_lstm/"), {"a": np.array(7.0)})
    message = refused({"a": np.array(0.0), "cudnn_lstm": make()}, path)
    assert message.startswith("mismatch: ")
    assert text in message
    projected = written(tmp_path, variables("cudnn_lstm/", spec=SPEC.replace(num_proj=2, input_size=6)))
    assert "projection/kernel' is a part of that RNN" in refused({"cudnn_lstm": built()}, projected)


def test_arrays_and_saveables_of_a_training_are_restored_with_or_without_their_key(tmp_path):
    params, scale, step = np.zeros_like(built().params), np.zeros(2), np.array(0)
    op = built(seed=8).op
    old = RNNParamsSaveable(op.params_to_canonical, op.canonical_to_params, op.init_params(8), name="")
    tensors = {name: array.copy() for name, array in old.tensors().items()}
    path = written(tmp_path, variables("m1/", 1), {"step": np.array(9), "m/scale": np.ones(2)}, tensors)
    things = {"": CudnnLSTMSaveable(params, 2, 3, 5, scope="m1"), "step": step, "m/scale": scale, "rnn": old}
    Saver(things).restore(path)
    assert (step, scale.tolist()) == (9, [1, 1])
    layer = built()
    layer.params[...] = params
    assert is_of(layer, 1)


PAIR = "bias_cudnn_"


@pytest.mark.parametrize(
    ("mode", "ours", "of_1_3"),
    [
        ("lstm", PAIR, PAIR),
        ("lstm", PAIR, "bias_cudnn "),
        ("gru", PAIR, "bias_cudnn "),
        ("gru", f"gates/{PAIR}", "bias_cudnn "),
    ],
)
def test_the_two_biases_of_tensorflow_1_3_come_back_bit_for_bit(tmp_path, mode, ours, of_1_3):
    c, layer = random_canonical(SPEC.replace(mode=mode), 4), built(OF_MODE[mode])
    arrays = convert.tensorflow.from_canonical(c, prefix="rnn_scope/")
    path = written(tmp_path, {name.replace(ours, of_1_3): array for name, array in arrays.items()})
    Saver({"rnn_scope": layer}).restore(path)
    assert all(map(np.array_equal, layer.op.params_to_canonical(layer.params)[1], c.biases))


# --- damaged files ----------------------------------------------------------------------------------------------------


def test_a_changed_byte_is_seen_however_small_the_tensor_and_in_the_index(tmp_path):
    path = written(tmp_path, {"a": np.ones(3, bool), "b": np.ones((), "f2"), "c": np.ones(2, "c16")})
    for file in sorted(tmp_path.glob("model*")):
        whole = file.read_bytes()
        for at in range(len(whole)):
            for data in (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], whole[:at]):
                file.write_bytes(data)
                with pytest.raises(CheckpointError) as raised:
                    checkpoint.read_tensorflow(path)
                assert raised.value.reason in {"hash", "format"}
        file.write_bytes(whole)


def written_in_parts(folder, shape, parts, more=b""):
    """Write a variable in parts, each an array at a place: its start and length in every dimension."""
    prefix = folder / "model.ckpt-7"
    (shard, data), (index, index_data) = bundle.images(
        prefix, *bundle.encoded({str(i): array for i, (_, array) in enumerate(parts)}), 1
    )
    entries = dict(table.read(index_data))
    slices = (b"".join(field(1, field(1, at) + field(2, n)) for at, n in place) for place, _ in parts)
    whole = Entry(1, shape, 0, 0, 0, 0).written() + b"".join(field(7, extents) for extents in slices)
    keys = {slice_key("v", place): entries[str(i).encode()] + more for i, (place, _) in enumerate(parts)}
    index.write_bytes(table.written({b"": entries[b""], b"v": whole} | keys))
    shard.write_bytes(data)
    return prefix


def ones(*place, kind="f4"):
    return place, np.ones([n for _, n in place], kind)


IN_PARTS = field(7, field(1, field(2, 3)))


@pytest.mark.parametrize(
    ("shape", "parts", "more", "text"),
    [
        ((6,), [ones((0, 3)), ones((2, 3))], b"", "parts overlap, or leave a hole"),
        ((6,), [ones((0, 4)), ones((3, 3))], b"", "parts overlap, or leave a hole"),
        ((6,), [ones((0, 3)), ones((4, 3))], b"", r"a part at \[\(4, 3\)\] of a tensor of \[6\]"),
        ((6,), [ones((0, 3)), ones((3, 3), kind="f2")], b"", r"part at \[\(3, 3\)\] is .* of another shape or dtype"),
        ((3,), [ones((0, 3))], IN_PARTS, "of another shape or dtype"),  # whose bytes nobody looked at
    ],
)  # fmt: skip
def test_parts_that_do_not_make_the_variable_are_refused(tmp_path, shape, parts, more, text):
    message = refused({"v": np.zeros(shape, "f4")}, written_in_parts(tmp_path, shape, parts, more))
    assert re.match(f"format: 'v': .*{text}", message)


class Twice(dict):
    """Every key is written twice."""

    def __iter__(self):
        yield from sorted([*self.keys()] * 2)


def of_t(like="t", **changes):
    """Return a change of the second tensor, to what the first or itself has with some of it changed."""
    return lambda e: e | {b"t": Entry.read(e[like.encode()])._replace(**changes).written()}


BAD_INDEXES = [
    (lambda e: e | {b"": field(1, 1) + field(2, 1) + field(3, field(1, 1))}, "on a big-endian machine"),
    (lambda e: e | {b"": field(1, 1) + field(3, field(1, 2) + field(2, 2))}, "needs a reader of version 2"),
    (lambda e: e | {b"": field(3, field(1, 1))}, "0 shards"),
    (lambda e: {b"\xff" if k == b"z" else k: v for k, v in e.items()}, "a name in the index is damaged"),
    (lambda e: e | {b"cut": e[b"a"][:-1]}, "the index is damaged"),
    (Twice, "is not after the one before it"),
    (of_t(kind=10), "a truth value other than 0 and 1"),
    (of_t("a"), "lies over another one"),
    (of_t(offset=7, size=1), "lies over another one"),
    (
        lambda e: of_t(shape=(0,), size=0, offset=4)(e) | {b"z": Entry.read(e[b"z"])._replace(offset=6).written()},
        "lies over another one",
    ),
    (of_t(offset=100), "shard 0, which is cut short"),
    (of_t(shape=(3,)), "2 bytes where"),
    (of_t(shape=(-1,)), "an unknown or negative number"),
    (of_t(shape=(0, 2**40, 2**20), size=0), "is more than"),
]


@pytest.mark.parametrize(("change", "text"), BAD_INDEXES, ids=[text for _, text in BAD_INDEXES])
def test_an_index_that_cannot_be_right_is_refused(tmp_path, change, text):
    path = written(tmp_path, {"a": np.ones(2, "f4"), "t": np.array([1, 2], "u1"), "z": np.ones(2, "f4")})
    index = tmp_path / "model.ckpt-7.index"
    entries = dict(table.read(index.read_bytes())) | {b"": field(1, 1) + field(3, field(1, 2) + field(2, 1))}
    index.write_bytes(table.written(entries))
    checkpoint.read_tensorflow(path)  # written by a newer one, for ours as well
    index.write_bytes(table.written(change(entries)))
    with pytest.raises(CheckpointError, match=text) as raised:
        checkpoint.read_tensorflow(path)
    assert raised.value.reason == "format"


def test_a_bundle_is_named_by_its_prefix_or_index(tmp_path):
    saver, path = Saver({"a": np.array(2.0)}), tmp_path / "m"
    saver.save(path, format="tensorflow")
    saver.restore(tmp_path / "m.index")
    for name in ("m.data-00000-of-00001", "m.meta", "empty/x"):
        with pytest.raises(CheckpointError, match=r"(give its prefix|No such file)"):
            saver.restore(tmp_path / name)
    (tmp_path / "m.data-00000-of-00001").unlink()
    with pytest.raises(CheckpointError, match="data-00000-of-00001"):
        saver.restore(path)


def test_without_google_crc32c_the_error_says_how_to_install_it_and_nothing_is_written(tmp_path, monkeypatch):
    path = written(tmp_path, {"a": np.ones(3)})
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    saver = Saver({"a": np.zeros(3)})
    for call in (lambda: saver.restore(path), lambda: saver.save(tmp_path / "n", format="tensorflow")):
        with pytest.raises(MissingDependencyError, match=r"needs google-crc32c, .*pip install google-crc32c.*\[tf\]'"):
            call()
    assert not list(tmp_path.glob("n*"))


# --- writing ----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:TensorFlow's cells have one bias per gate")
@pytest.mark.parametrize("mode", OF_MODE)
def test_what_is_saved_as_tensorflow_does_comes_back_whole(tmp_path, mode):
    layer, step = built(OF_MODE[mode], direction="bidirectional", dropout=0.5), np.array(7)
    layer.add_weight("scale", (2,), initializer="ones")
    layer(np.zeros((1, 1, 5)))
    sums = Saver({"m": layer})
    sums.save(tmp_path / "first", format="tensorflow")
    sums.restore(tmp_path / "first")  # halves
    before = [np.copy(array) for array in layer.get_weights()]
    path = Saver({"m": layer, "step": step}).save(tmp_path / "second", format="tensorflow")
    layer.set_weights([np.zeros_like(array) for array in before])
    step[...] = 0
    Saver({"m": layer, "step": step}).restore(path)
    assert all(map(np.array_equal, before, layer.get_weights()))
    assert step == 7
    assert not any("_cudnn_" in name or "dropout" in name for name in checkpoint.read_tensorflow(path))


def test_a_warning_says_where_two_biases_become_one_and_only_there(tmp_path, recwarn):
    things = {"halves": built(), "apart": built()}
    Saver({"halves": things["halves"]}).restore(written(tmp_path, variables("halves/")))
    Saver({"halves": things["halves"]}).save(tmp_path / "a", format="tensorflow")
    assert not recwarn
    with pytest.warns(UserWarning, match="one bias per gate.* in 'apart'$") as said:
        Saver(things).save(tmp_path / "b", format="tensorflow")
    assert said[0].filename == __file__


def test_what_tensorflow_has_no_cell_for_and_what_no_bundle_can_hold_is_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    bad = [built(OF_MODE["gru"], bias_mode=mode) for mode in ("none", "single_input", "single_recurrent")]
    for layer in (built(input_size=3, input_mode="skip_input"), built(bias_mode="none"), *bad):
        with pytest.raises(ArgumentError, match=f"bias_mode='{layer.spec.bias_mode}', which none has") as raised:
            Saver({"m": layer}).save(tmp_path / "m", format="tensorflow")
        assert raised.value.argument == "items['m']"
    for name in ("a\0", "", "x" * 4097):
        with pytest.raises(ArgumentError, match=r"Invalid name"):
            Saver({name: np.zeros(2)}).save(tmp_path / "m", format="tensorflow")
    with pytest.raises(ArgumentError, match=r"Invalid x dtype"):
        write_bundle(tmp_path / "m", {"x": np.zeros(2, ">f4")})
    with pytest.raises(ArgumentError, match=r"^Invalid path: .*where 'folder' exists"):
        Saver({"a": np.zeros(2)}).save(tmp_path / "folder", format="tensorflow")
    with pytest.raises(OSError, match="too long"):
        write_bundle(tmp_path / ("m" * 250), {"x": np.zeros(2)})
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_of_two_that_save_under_one_name_at_once_one_comes_after_the_other(tmp_path, monkeypatch):
    """The second comes after the first renaming of the first, and has to wait."""
    real, second, renamed = os.replace, [], []

    def save(value):
        Saver({"a": np.full(3, value)}).save(tmp_path / "m", format="tensorflow")

    def replace(*arguments, **keywords):
        real(*arguments, **keywords)
        renamed.append(arguments[1].name)
        if not second:
            second.append(threading.Thread(target=save, args=[2.0]))
            second[0].start()
            second[0].join(0.5)

    save(0.0)
    monkeypatch.setattr(os, "replace", replace)
    save(1.0)
    second[0].join()
    restored = np.zeros(3)
    Saver({"a": restored}).restore(tmp_path / "m")
    assert restored.tolist() == [2, 2, 2]
    first = ["m.data-00000-of-00002", "m.data-00001-of-00002", "m.index", "checkpoint"]
    assert renamed == [*first, "m.data-00000-of-00001", *first[2:]], "what names others comes after them"


def test_a_save_leaves_no_shard_of_what_was_there(tmp_path):
    """Of three, as several machines write them, or of two whose index is damaged."""
    for count, damage in ((3, b""), (2, b"damaged")):
        for path, data in bundle.images(tmp_path / "m", *bundle.encoded({"a": np.ones(3)}), count):
            path.write_bytes(data + damage)
        path = Saver({"a": np.zeros(3)}).save(tmp_path / "m", format="tensorflow")
        assert [path.name for path in sorted(tmp_path.glob("m.*"))] == ["m.data-00000-of-00001", "m.index"]
        assert not checkpoint.read_tensorflow(path)["a"].any()
