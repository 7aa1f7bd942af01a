"""Checkpoints under TensorFlow's names, without TensorFlow: each thing finds its own, and all of it or nothing."""

import errno
import json
import os
import re
import threading

import numpy as np
import pytest

from pycudnnrnn import CudnnLSTM, Saver, checkpoint, convert
from pycudnnrnn.checkpoint import _bundle
from pycudnnrnn.checkpoint._bundle import table
from pycudnnrnn.checkpoint._bundle.entries import Entry, slice_key
from pycudnnrnn.checkpoint._bundle.wire import field
from pycudnnrnn.errors import ArgumentError, CheckpointError
from pycudnnrnn.saveable import CudnnLSTMSaveable, RNNParamsSaveable
from pycudnnrnn.spec import RNNSpec
from tests.helpers.bundles import write_bundle
from tests.helpers.faults import each
from tests.helpers.faults import refused as refused_call
from tests.helpers.layers import OF_MODE, built
from tests.helpers.oracles import random_canonical
from tests.helpers.together import together

TWO_BIASES = pytest.mark.filterwarnings("ignore:TensorFlow's cells have one bias per gate")

SPEC = RNNSpec("lstm", 2, 3, 5, dtype="float64")


def variables(scope, seed=0, spec=SPEC, **keywords):
    """Return what TensorFlow has for an RNN, with what a training leaves beside it."""
    found = convert.tensorflow.from_canonical(random_canonical(spec, seed), prefix=scope, keep_biases_apart=False)
    slots = {f"{name}/{slot}": array for name, array in found.items() for slot in ("Adam", "ExponentialMovingAverage")}
    return found | slots | {f"{scope}opaque_kernel": np.zeros(7)} | keywords


def names(folder):
    return {path.name for path in folder.iterdir() if path.suffix != ".lock"}


def written(folder, *parts):
    write_bundle(folder / "model.ckpt-7", {name: array for part in parts for name, array in part.items()})
    return folder / "model.ckpt-7"


def is_of(layer, seed):
    """Say whether a layer has the weights that `variables` made from a seed, up to the sums of its biases."""
    (weights, biases), c = layer.op.params_to_canonical(layer.params), random_canonical(SPEC, seed)
    pairs = [biases[i] + biases[i + 4] for p in range(2) for i in range(8 * p, 8 * p + 4)]
    sums = [c.biases[i] + c.biases[i + 4] for p in range(2) for i in range(8 * p, 8 * p + 4)]
    return all(map(np.array_equal, weights, c.weights)) and all(map(np.allclose, pairs, sums))


@pytest.mark.parametrize("scope", ["", "encoder/", "cudnn_lstm/", "deep/down/"])
@pytest.mark.parametrize("things", [lambda layer: {"": layer}, lambda layer: [layer], lambda layer: [layer.saveable]])
def test_an_rnn_that_nobody_named_is_found_under_any_scope_and_a_warning_says_under_which(tmp_path, scope, things):
    layer = built()
    path = written(tmp_path, variables(scope, 3))
    if scope == "cudnn_lstm/" or (scope == "" and things(layer) == {"": layer}):  # its own, or what its key says
        Saver(things(layer)).restore(path)
    else:
        with pytest.warns(UserWarning, match=f"takes the only .* that is left: {scope.rstrip('/')!r}$") as said:
            Saver(things(layer)).restore(path)
        assert said[0].filename == __file__
    assert is_of(layer, 3)


@pytest.mark.parametrize(
    "scopes",
    [["encoder/", "encoder/cudnn_lstm/", "cudnn_lstm/", ""], ["encoder/cudnn_lstm/", "cudnn_lstm/", ""], ["encoder/"]],
)
def test_a_layer_is_the_one_that_its_key_names(tmp_path, scopes):
    layer = built()
    parts = [variables(scope, seed) for seed, scope in enumerate(scopes)]
    Saver({"encoder": layer}).restore(written(tmp_path, *parts))
    assert is_of(layer, 0)


@pytest.mark.parametrize("scope", ["discriminator/", "cudnn_lstm/", ""])
@pytest.mark.parametrize(
    "things",
    [lambda layer: {"model/generator": layer}, lambda layer: [layer], lambda layer: [layer.saveable]],
)
def test_a_name_that_the_file_has_not_takes_nobody_elses_weights(tmp_path, scope, things):
    layer = built(name="generator")
    own, before, path = things(layer), layer.params.copy(), written(tmp_path, variables(scope))
    with pytest.raises(CheckpointError, match="none is under that name: give its scope as key") as raised:
        Saver(own).restore(path)
    assert raised.value.reason == "missing tensor"
    assert np.array_equal(layer.params, before)


def test_what_another_thing_is_named_by_is_not_taken(tmp_path):
    encoder, decoder = built(), built(name="b")
    path = written(tmp_path, variables("x/", 1), variables("decoder/", 2))
    with pytest.warns(UserWarning, match="left: 'x'$"):
        Saver({"": encoder, "decoder": decoder}).restore(path)
    assert is_of(encoder, 1)
    assert is_of(decoder, 2)


def test_kinds_that_differ_are_no_choice(tmp_path):
    lstm, gru = built(), built(OF_MODE["gru"])
    other = variables("two/", 2, SPEC.replace(mode="gru"))
    path = written(tmp_path, variables("one/", 1), other)
    with pytest.warns(UserWarning, match=r"left: '(one|two)'$") as said:
        Saver([lstm, gru]).restore(path)
    assert len(said) == 2
    assert is_of(lstm, 1)
    sums = checkpoint.read_tensorflow(tmp_path / "model.ckpt-7")[
        "two/rnn/multi_rnn_cell/cell_0/cudnn_compatible_gru_cell/gates/bias"
    ]
    bR, bU = (layer_bias(gru, 0, gate) for gate in ("reset", "update"))
    assert np.allclose(np.concatenate([bR, bU]), sums)


def layer_bias(layer, pseudo_layer, gate):
    own = [layer.op.layout().region(pseudo_layer=pseudo_layer, gate=gate, kind="bias", side=side)
           for side in ("input", "recurrent")]  # fmt: skip
    return sum(layer.params[r.offset : r.offset + r.shape[0]] for r in own)


def refused(things, path, *, require_finite=False):
    """Return why a restore is refused, after checking that nothing changed."""
    before = {key: np.copy(getattr(thing, "params", thing)) for key, thing in things.items()}
    with pytest.raises(CheckpointError) as raised:
        Saver(things).restore(path, require_finite=require_finite)
    for key, thing in things.items():
        assert np.array_equal(before[key], getattr(thing, "params", thing)), key
    return f"{raised.value.reason}: {raised.value}"


def test_where_no_name_says_which_rnn_it_is_the_error_lists_those_that_are_there(tmp_path):
    path = written(tmp_path, variables("one/"), variables("two/"))
    for key in ("encoder", ""):
        text = refused({key: built()}, path)
        assert text.startswith("missing tensor: ")
        assert "none is under that name: give its scope as key" in text
    for scope in ("one/", "two/"):
        assert f"'{scope}': cudnn_compatible_lstm_cell, 2 x 3 units, unidirectional" in text


def test_two_things_never_read_the_same_variables(tmp_path):
    path = written(tmp_path, variables("a/b/"), variables("x/"))
    found = refused({"a": built(name="b"), "a/b": built(seed=2)}, path)
    assert "'a' and 'a/b' would both read 'a/b/rnn/multi_rnn_cell/cell_0/" in found
    assert "give them the scopes of the file as keys" in found
    array = next(iter(variables("x/")))
    twice = refused({"x": built(), array: np.zeros((8, 12))}, written(tmp_path, variables("x/")))
    assert f"would both read {array!r}" in twice


def test_two_arrays_that_a_file_has_once_are_two_errors_and_no_copy(tmp_path):
    path = written(tmp_path, {"step": np.array(7), "steps": np.array(8)})
    assert "'stop' is not there, for 'stop'; the file has 'step'" in refused(
        {"step": np.array(0), "stop": np.array(0)}, path
    )


@pytest.mark.parametrize("kind", ["bool", "uint8", "float16", "int16", "int32", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_a_changed_byte_is_seen_however_small_the_tensor(tmp_path, kind, shape):
    path = written(tmp_path, {"a": np.ones(shape, kind)})
    shard = tmp_path / "model.ckpt-7.data-00000-of-00001"
    whole = shard.read_bytes()
    for place in range(len(whole)):
        shard.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert refused({"a": np.zeros(shape, kind)}, path).startswith("hash: ")


def written_in_parts(folder, shape, parts):
    """Write a float32 variable in parts, each an array at a place: its start and length in every dimension."""
    prefix = folder / "model.ckpt-7"
    (shard, data), (index, own) = _bundle.images(prefix, {str(i): array for i, (_, array) in enumerate(parts)})
    entries = dict(table.read(own))
    slices = (b"".join(field(1, field(1, at) + field(2, n)) for at, n in place) for place, _ in parts)
    whole = Entry(1, shape, 0, 0, 0, 0).written() + b"".join(field(7, extents) for extents in slices)
    keys = {slice_key("v", place): entries[str(i).encode()] for i, (place, _) in enumerate(parts)}
    index.write_bytes(table.written({b"": entries[b""], b"v": whole} | keys))
    shard.write_bytes(data)
    return prefix


def ones(*place, kind="f4"):
    return place, np.ones([n for _, n in place], kind)


def test_a_variable_in_parts_comes_together(tmp_path):
    whole = np.arange(600, dtype="f4").reshape(6, 100)
    places = [((0, 6), (0, 64)), ((0, 2), (64, 36)), ((2, 4), (64, 36))]
    parts = [(p, np.ascontiguousarray(whole[tuple(slice(at, at + n) for at, n in p)])) for p in places]
    found = np.zeros_like(whole)
    Saver({"v": found}).restore(written_in_parts(tmp_path, whole.shape, parts))
    assert np.array_equal(found, whole)


@pytest.mark.parametrize(
    ("shape", "parts", "text"),
    [
        ((6,), [ones((0, 3)), ones((2, 3))], "offsets: .* overlap, or leave a hole"),
        ((2, 2), [ones((0, 2), (0, 1)), ones((0, 1), (0, 2))], "offsets: .* overlap, or leave a hole"),
        ((6,), [ones((0, 3)), ones((4, 2))], "offsets: .* overlap, or leave a hole"),
        ((6,), [ones((0, 3)), ones((4, 3))], r"shape: .* a part at \[4:7\]"),
        ((6,), [ones((0, 3)), ones((3, 3), kind="f2")], r"shape: .* the part at \[3:6\] is float16"),
    ],
    ids=["overlap in one dimension", "overlap in two", "a hole", "beyond the end", "of another dtype"],
)
def test_parts_that_do_not_make_the_variable_are_refused(tmp_path, shape, parts, text):
    found = np.zeros(shape, "f4")
    assert re.match(text, refused({"v": found}, written_in_parts(tmp_path, shape, parts)))


HEADERS = [
    (field(1, 1) + field(2, 1) + field(3, field(1, 1)), "metadata: .* written on a big-endian machine"),
    (field(1, 1) + field(3, field(1, 2) + field(2, 2)), "metadata: .* needs a reader of version 2"),
    (field(3, field(1, 1)), "metadata: .* 0 shards"),
    (field(1, 4097) + field(3, field(1, 1)), "metadata: .* 4097 shards"),
]


@pytest.mark.parametrize(("header", "text"), HEADERS, ids=["big-endian", "newer", "no shard", "many shards"])
def test_a_header_of_what_is_not_read_is_refused(tmp_path, header, text):
    path = written(tmp_path, {"a": np.ones(2)})
    index = tmp_path / "model.ckpt-7.index"
    entries = dict(table.read(index.read_bytes()))
    index.write_bytes(table.written(entries | {b"": field(1, 1) + field(3, field(1, 2) + field(2, 1))}))
    Saver({"a": np.zeros(2)}).restore(path)  # written by a newer one, for ours as well
    index.write_bytes(table.written(entries | {b"": header}))
    assert re.match(text, refused({"a": np.zeros(2)}, path))


def test_a_truth_value_that_is_neither_0_nor_1_is_refused(tmp_path):
    path = written(tmp_path, {"a": np.array([1, 2], "u1")})
    index = tmp_path / "model.ckpt-7.index"
    entries = dict(table.read(index.read_bytes()))
    truth = Entry.read(entries[b"a"])._replace(kind=10)  # DT_BOOL, with the checksum of these bytes
    index.write_bytes(table.written(entries | {b"a": truth.written()}))
    assert refused({"a": np.zeros(2, bool)}, path).startswith("dtype: ")


@pytest.mark.parametrize("by", [0, 4])
def test_tensors_that_share_bytes_are_refused(tmp_path, by):
    """Many names for the same bytes would take more memory than there are files."""
    path = written(tmp_path, {"a": np.ones(2, "f4"), "z": np.ones(2, "f4")})
    index = tmp_path / "model.ckpt-7.index"
    entries = dict(table.read(index.read_bytes()))
    alias = Entry.read(entries[b"a"])._replace(offset=by)
    index.write_bytes(table.written(entries | {b"b": alias.written()}))
    text = refused({"a": np.zeros(2, "f4")}, path)
    assert text.startswith("offsets: ")
    assert "lies over another one" in text


def test_a_name_that_an_index_has_twice_is_refused(tmp_path):
    class Twice(dict):
        def __iter__(self):
            yield from (b"", b"a", b"a")

    path = written(tmp_path, {"a": np.ones(2)})
    index = tmp_path / "model.ckpt-7.index"
    index.write_bytes(table.written(Twice(table.read(index.read_bytes()))))
    assert "header form: " in (text := refused({"a": np.zeros(2)}, path))
    assert "key 3 is not after the one before it" in text


MISFITS = [
    (lambda: built(OF_MODE["gru"]), "missing tensor", "needs a rnn/multi_rnn_cell/cell_0/cudnn_compatible_gru_cell"),
    (lambda: built(direction="bidirectional"), "missing tensor", "needs a stack_bidirectional_rnn/cell_0/"),
    (lambda: built(dtype="float32"), "dtype", "is float64, expecting float32, as 'cudnn_lstm' has it"),
    (lambda: built(input_size=4), "shape", "is [8, 12], expecting [7, 12] for 'cudnn_lstm'"),
    (lambda: of_layers(1), "spec", "bias' is a part of that RNN, for which 'cudnn_lstm' has no"),
    (lambda: of_layers(3), "missing tensor", "cell_2/cudnn_compatible_lstm_cell/kernel' is not there"),
    (lambda: built(bias_mode="none"), "spec", "cudnn_compatible_lstm_cell/bias' is a part of that RNN"),
]  # fmt: skip


def of_layers(count):
    layer = CudnnLSTM(count, 3, dtype="float64")
    layer.build((None, None, 5))
    return layer


@pytest.mark.parametrize(("make", "reason", "text"), MISFITS, ids=[text for *_, text in MISFITS])
def test_an_rnn_that_is_another_is_refused_before_anything_changes(tmp_path, make, reason, text):
    path = written(tmp_path, variables("cudnn_lstm/"), {"a": np.array(7.0)})
    found = refused({"a": np.array(0.0), "cudnn_lstm": make()}, path)
    assert found.startswith(f"{reason}: ")
    assert text in found


def test_a_projection_in_the_file_alone_is_refused(tmp_path):
    path = written(tmp_path, variables("cudnn_lstm/", spec=SPEC.replace(num_proj=2, input_size=6)))
    assert "projection/kernel' is a part of that RNN" in refused({"cudnn_lstm": built()}, path)


def test_a_file_without_an_rnn_says_what_it_has(tmp_path):
    text = refused({"m": built()}, written(tmp_path, {"dense/kernel": np.zeros(2)}))
    assert "none of these is one; the file has 'dense/kernel'" in text


def test_arrays_variables_and_saveables_are_restored_beside_layers(tmp_path):
    buffer, step = np.zeros_like(built().params), np.array(0, np.int64)
    layer = built()
    layer.add_weight("scale", (2,))
    parts = variables("m1/", 1), variables("cudnn_lstm/", 2), {"step": np.array(9), "cudnn_lstm/scale": np.ones(2)}
    saveable = CudnnLSTMSaveable(buffer, 2, 3, 5, scope="m1")
    Saver({"": saveable, "cudnn_lstm": layer, "step": step}).restore(written(tmp_path, *parts))
    assert step == 9
    assert is_of(layer, 2)
    assert np.array_equal(layer.get_weights()[1], [1, 1])
    layer.params[...] = buffer
    assert is_of(layer, 1)


def test_cudnns_own_lists_are_found_by_the_names_of_tensorflow_1_2(tmp_path):
    layer = built()
    op, params = layer.op, layer.params
    own = RNNParamsSaveable(op.params_to_canonical, op.canonical_to_params, params, name="")
    before = params.copy()
    path = written(tmp_path, own.tensors())
    params[...] = 0
    Saver({"rnn": own}).restore(path)
    assert np.array_equal(params, before)


@pytest.mark.parametrize("spaced", [False, True])
def test_biases_that_tensorflow_1_3_kept_apart_come_back_bit_for_bit(tmp_path, spaced):
    c = random_canonical(SPEC, 4)
    arrays = convert.tensorflow.from_canonical(c, prefix="rnn_scope/")
    path = written(tmp_path, {n.replace("_cudnn_", "_cudnn ") if spaced else n: a for n, a in arrays.items()})
    layer = built()
    Saver({"rnn_scope": layer}).restore(path)
    assert all(map(np.array_equal, layer.op.params_to_canonical(layer.params)[1], c.biases))


def test_what_is_not_finite_is_refused_where_that_is_asked_for(tmp_path):
    arrays = variables("m/")
    next(iter(arrays.values()))[0, 0] = np.nan
    layer, path = built(), written(tmp_path, arrays)
    assert "not finite: " in refused({"m": layer}, path, require_finite=True)
    Saver({"m": layer}).restore(path)
    assert np.isnan(layer.params).any()


@pytest.mark.parametrize("given", ["model.ckpt-7", "model.ckpt-7.index", "."])
def test_a_checkpoint_is_named_by_its_prefix_its_index_or_its_folder(tmp_path, given):
    a = np.array(1.0)
    Saver({"a": a}).save(tmp_path / "model.ckpt", 7, format="tensorflow")
    found = np.array(0.0)
    Saver({"a": found}).restore(tmp_path / given)
    assert found == a


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("model.ckpt-7.data-00000-of-00001", "it is a part of a checkpoint: give 'model.ckpt-7', its prefix"),
        ("model.ckpt-7.meta", "it is a part of a checkpoint: give 'model.ckpt-7', its prefix"),
        ("empty", "checkpoint"),
        ("x" * 300, "File name too long"),
        ("a\0b", "null"),
    ],
)
def test_what_is_a_part_of_a_checkpoint_or_none_is_said(tmp_path, name, text):
    written(tmp_path, {"a": np.array(1.0)})
    (tmp_path / "empty").mkdir()
    assert text in refused({"a": np.array(0.0)}, tmp_path / name)


def test_a_file_that_has_the_name_itself_is_what_is_meant(tmp_path):
    Saver({"a": np.array(1.0)}).save(tmp_path / "m")
    Saver({"a": np.array(2.0)}).save(tmp_path / "m", format="tensorflow")
    found = np.array(0.0)
    for name, value in (("m", 1), ("m.index", 2)):
        Saver({"a": found}).restore(tmp_path / name)
        assert found == value


def test_two_formats_under_one_name_are_two_checkpoints(tmp_path):
    saver = Saver({"a": np.array(1.0)}, max_to_keep=2)
    for form in ("safetensors", "tensorflow", "tensorflow"):
        saver.save(tmp_path / "m", format=form)
    assert saver.last_checkpoints == [tmp_path / "m", tmp_path / "m"]
    tensors = {"m.index", "m.data-00000-of-00002", "m.data-00001-of-00002"}
    assert names(tmp_path) == {"checkpoint", "checkpoint.json", "m", *tensors}
    assert checkpoint.latest_checkpoint(tmp_path) == tmp_path / "m.index", "m is the other one"
    saver.save(tmp_path / "n")
    assert names(tmp_path) == {"checkpoint", "checkpoint.json", "n", *tensors}
    (tmp_path / "n").unlink()


# --- writing ----------------------------------------------------------------------------------------------------------


@TWO_BIASES
@pytest.mark.parametrize("mode", OF_MODE)
@pytest.mark.parametrize("direction", ["unidirectional", "bidirectional"])
def test_what_is_saved_as_tensorflow_does_comes_back_whole(tmp_path, mode, direction):
    layer, step = built(OF_MODE[mode], direction=direction), np.array(7)
    layer.add_weight("scale", (2,), initializer="ones")
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


@TWO_BIASES
def test_the_names_are_those_of_tensorflows_cells_and_no_others(tmp_path):
    for layer in (built(dropout=0.5), built(num_proj=2)):
        layer(np.zeros((1, 1, 5)))
        path = Saver({"m": layer}).save(tmp_path / "m", format="tensorflow")
        cells = [f"m/rnn/multi_rnn_cell/cell_{i}/cudnn_compatible_lstm_cell/" for i in range(2)]
        leaves = ["kernel", "bias", *(["projection/kernel"] if layer.spec.num_proj else [])]
        assert checkpoint.read_tensorflow(path).keys() == {cell + leaf for cell in cells for leaf in leaves}


def test_a_warning_says_where_two_biases_become_one_and_only_there(tmp_path, recwarn):
    things = {"halves": built(), "apart": built()}
    Saver({"halves": things["halves"]}).restore(written(tmp_path, variables("halves/")))
    Saver({"halves": things["halves"]}).save(tmp_path / "a", format="tensorflow")
    assert not recwarn
    with pytest.warns(UserWarning, match="one bias per gate.* in 'apart'$") as said:
        Saver(things).save(tmp_path / "b", format="tensorflow")
    assert said[0].filename == __file__


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (lambda: built(input_size=3, input_mode="skip_input"), "input_mode='skip_input', which none has"),
        (lambda: built(bias_mode="none"), "bias_mode='none', which none has"),
        (lambda: built(OF_MODE["gru"], bias_mode="single_input"), "bias_mode='single_input', which none has"),
    ],
)
def test_an_rnn_that_tensorflow_has_no_cell_for_is_refused(tmp_path, layer, text):
    with pytest.raises(ArgumentError, match=text) as raised:
        Saver({"m": layer()}).save(tmp_path / "m", format="tensorflow")
    assert raised.value.argument == "items['m']"
    assert not list(tmp_path.iterdir())


def test_an_unknown_format_is_refused_with_those_that_are_known(tmp_path):
    for given in ("hdf5", None, ["tensorflow"]):
        with pytest.raises(ArgumentError, match="'safetensors' or 'tensorflow'") as raised:
            Saver({"a": np.zeros(2)}).save(tmp_path / "m", format=given)
        assert raised.value.argument == "format"
    assert not list(tmp_path.iterdir())


def test_the_step_goes_where_tensorflow_puts_it(tmp_path):
    saver = Saver({"a": np.zeros(2)})
    assert saver.save(tmp_path / "model.ckpt", 100, format="tensorflow") == tmp_path / "model.ckpt-100"
    expected = {"checkpoint", "checkpoint.json", "model.ckpt-100.data-00000-of-00001", "model.ckpt-100.index"}
    assert names(tmp_path) == expected


def test_the_oldest_are_deleted_with_all_their_files_and_each_format_has_its_book(tmp_path):
    saver = Saver({"a": np.zeros(2)}, max_to_keep=2)
    saver.save(tmp_path / "m", 1, format="tensorflow")
    saver.save(tmp_path / "m", 2, format="tensorflow")
    assert saver.last_checkpoints == [tmp_path / "m-1", tmp_path / "m-2"]
    saver.save(tmp_path / "m", 3)
    assert saver.last_checkpoints == [tmp_path / "m-2", tmp_path / "m-3"]
    assert checkpoint.latest_checkpoint(tmp_path) == tmp_path / "m-3"
    assert not list(tmp_path.glob("m-1*"))
    saver.save(tmp_path / "m", 4, format="tensorflow")
    lines = ['model_checkpoint_path: "m-4"', 'all_model_checkpoint_paths: "m-4"']
    assert (tmp_path / "checkpoint").read_text().splitlines() == lines
    assert json.loads((tmp_path / "checkpoint.json").read_text())["all"] == ["m-3", "m-4.index"]
    (tmp_path / "m-4.index").unlink()
    assert saver.last_checkpoints == [tmp_path / "m-3"]


def test_a_save_in_which_any_call_fails_leaves_the_old_checkpoint_or_the_new(tmp_path):
    a, found, outcomes = np.arange(3.0), np.zeros(3), set()
    saver = Saver({"a": a})
    path = saver.save(tmp_path / "m", format="tensorflow")
    for call, error in each(lambda: saver.save(path, format="tensorflow"), refused_call(errno.ENOSPC)):
        assert error is None or isinstance(error, (OSError, CheckpointError)), (call, error)
        try:
            Saver({"a": found}).restore(tmp_path)
        except CheckpointError as refusal:
            outcomes.add(refusal.reason)
        else:
            outcomes.add("new" if np.array_equal(found, a) else "old")
            assert found[1] - found[0] == 1, "never a mix"
        saver.save(path, format="tensorflow")
        shards = [name for name in names(tmp_path) if ".data-" in name]
        assert names(tmp_path) == {"checkpoint", "checkpoint.json", "m.index", *shards}, call
        assert len(shards) == int(shards[0][-1]), "none is left over"
        a += 1
    assert outcomes == {"old", "new"}


@pytest.mark.parametrize("name", ['a"b', "a\\b", "ü ß", "a\nb", "a\udcffb"])
def test_a_folder_finds_its_latest_whatever_its_name(tmp_path, name):
    a = np.array(0)
    Saver({"a": np.array(3)}).save(tmp_path / name, format="tensorflow")
    Saver({"a": a}).restore(tmp_path)
    assert a == 3


@pytest.mark.parametrize("text", [r"\q", r"\777", r"\x", "\\", r"\0", r"\u1234", r"\xg"])
def test_an_escape_that_is_none_is_a_checkpoint_error(tmp_path, text):
    (tmp_path / "checkpoint").write_text(f'model_checkpoint_path: "a{text}"\n')
    for call in (lambda: checkpoint.latest_checkpoint(tmp_path), lambda: checkpoint.read_tensorflow(tmp_path)):
        with pytest.raises(CheckpointError) as raised:
            call()
        assert raised.value.reason == "header text"


def test_every_escape_of_text_format_is_read(tmp_path):
    """As protobuf's own reader has them. Source: google/protobuf/io/tokenizer.cc, ParseString."""
    write_bundle(tmp_path / "a'\"\\\n\tbcü", {"a": np.array(3)})
    (tmp_path / "checkpoint").write_text(r'model_checkpoint_path: "a\'\"\\\n\t\142\x63\303\274"')
    assert checkpoint.read_tensorflow(tmp_path)["a"] == 3


def test_of_two_that_save_under_one_name_at_once_one_comes_after_the_other(tmp_path, monkeypatch):
    """The first stops after its first renaming, until the second is done or has waited for it."""
    path, real, done = tmp_path / "m", os.replace, threading.Event()
    Saver({"a": np.zeros(3)}).save(path, format="tensorflow")
    stopped, first = threading.Event(), []

    def replace(*arguments, **keywords):
        real(*arguments, **keywords)
        if threading.current_thread() in first and not stopped.is_set():
            stopped.set()
            done.wait(0.5)

    monkeypatch.setattr(os, "replace", replace)

    def save(value):
        if value == 1:
            first.append(threading.current_thread())
        else:
            stopped.wait()
        Saver({"a": np.full(3, float(value))}).save(path, format="tensorflow")
        if value == 2:
            done.set()

    together(2, lambda number: save(number + 1))
    found = np.zeros(3)
    Saver({"a": found}).restore(path)
    assert found.tolist() == [2, 2, 2]


def test_a_checkpoint_file_that_is_something_else_is_not_overwritten(tmp_path):
    (tmp_path / "checkpoint").write_text("my notes")
    with pytest.raises(CheckpointError, match="names no model_checkpoint_path, and not overwritten"):
        Saver({"a": np.zeros(2)}).save(tmp_path / "m", format="tensorflow")
    assert names(tmp_path) == {"checkpoint"}


@pytest.mark.parametrize("name", ["\ud800", "a\0", "", "x" * 4097])
def test_a_name_that_no_bundle_can_have_is_refused(tmp_path, name):
    with pytest.raises(ArgumentError, match=r"Invalid (name|items)"):
        Saver({name: np.zeros(2)}).save(tmp_path / "m", format="tensorflow")
