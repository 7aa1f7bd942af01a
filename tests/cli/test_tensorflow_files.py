"""Checkpoints of TensorFlow's in `pycudnnrnn inspect` and `pycudnnrnn convert`."""

import json

import numpy as np
import pytest

from pycudnnrnn import checkpoint, convert, ops
from pycudnnrnn.checkpoint.bundle import write as write_bundle
from pycudnnrnn.spec import RNNSpec
from tests.helpers.oracles import equal_dicts, random_canonical

SPEC = RNNSpec("rnn_relu", 2, 3, 5, direction="bidirectional", dtype="float32", bias_mode="single_input")


@pytest.fixture
def arrays(tmp_path):
    """The variables of two RNNs, with what a training leaves, in model.ckpt-7 of the folder."""
    variables = convert.tensorflow.from_canonical(random_canonical(SPEC, 1), prefix="net/cudnn_rnn_relu")
    first = min(variables)
    more = {f"{first}/Adam": variables[first], f"{first}/ema/biased": variables[first], "global_step": np.array(7)}
    gru = random_canonical(RNNSpec("gru", 11, 4, 2, dtype="float32"), 2)
    others = convert.tensorflow.from_canonical(gru, prefix="b", keep_biases_apart=False)
    write_bundle(tmp_path / "model.ckpt-7", variables | more | others)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/gone/model.ckpt-7"\n')
    return variables


@pytest.mark.parametrize("given", ["model.ckpt-7", "model.ckpt-7.index", "."])
def test_inspect_lists_the_tensors_and_the_rnns(run, arrays, given):
    code, out, err = run("inspect", given, "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert (report["verified"], report["tensors"]["global_step"]["most"]) == (True, 7)
    assert arrays.keys() < report["tensors"].keys()
    assert report["items"]["net/cudnn_rnn_relu/"] == {
        "scope": "net/cudnn_rnn_relu/", "cell": "basic_rnn_cell", "num_layers": 2, "num_dirs": 2, "num_units": 3,
    }  # fmt: skip
    assert [report["items"]["b/"][size] for size in ("num_layers", "num_units")] == [11, 4]
    out = run("inspect", given)[1]
    assert "checksum: CRC-32C is right" in out
    assert "net/cudnn_rnn_relu/: scope net/cudnn_rnn_relu/, cell basic_rnn_cell, num_layers 2, num_dirs 2" in out


def test_a_cell_of_any_name_needs_no_prefix_if_it_is_the_only_one_and_is_written_for_tfs_own_cells(run, tmp_path):
    c = random_canonical(RNNSpec("lstm", 1, 3, 5, dtype="float32", bias_mode="single_input"), 0)
    arrays = convert.tensorflow.from_canonical(c, cell="lstm_cell")
    cell = "rnn/multi_rnn_cell/cell_0/lstm_cell/"
    named = {name.replace(cell, "lstm_fused_cell/"): array for name, array in arrays.items()}
    write_bundle(tmp_path / "m", named | {"h1": np.ones(3, "f4"), "dense/kernel": np.ones((64, 16), "f4")})
    code, out, _ = run("convert", "m", "n.index", "-t", "cell=lstm_cell", "-t", "forget_bias=0", "-s", "forget_bias=0")
    assert (code, "note: read with -s prefix=lstm_fused_cell/: the only RNN that was found" in out) == (0, True)
    equal_dicts(checkpoint.read_tensorflow(tmp_path / "n"), dict(sorted(arrays.items())))
    assert run("convert", "m", "o.index", "-s", "layers=lstm_fused_cell", "-t", "cell=lstm")[0] == 1


@pytest.mark.parametrize(("target", "more"), [("out.ckpt-3.index", ()), ("out.ckpt-3", ("--to", "tensorflow"))])
def test_convert_writes_a_checkpoint(run, arrays, tmp_path, target, more):
    options = ("-s", "prefix=net/cudnn_rnn_relu", "-s", "activation=relu", "-t", "prefix=x", *more)
    assert run("convert", "model.ckpt-7", target, *options)[0] == 0
    c = convert.tensorflow.to_canonical(arrays, prefix="net/cudnn_rnn_relu", activation="relu")
    expected = convert.tensorflow.from_canonical(c, prefix="x")
    equal_dicts(checkpoint.read_tensorflow(tmp_path / "out.ckpt-3"), dict(sorted(expected.items())))
    (tmp_path / "out.ckpt-3.index").unlink()
    code, _, err = run("convert", "model.ckpt-7", target, *options)
    assert (code, "exists: --force overwrites it" in err) == (2, True)


def test_a_checkpoint_of_kerass_variables_is_read_as_keras(run, tmp_path):
    """tf.keras in TF 1's graphs, and the object-based checkpoints of TF 2."""
    c = random_canonical(RNNSpec("gru", 1, 3, 5, dtype="float32"), 0)
    arrays = {name.rpartition("/")[2]: array for name, array in convert.keras.from_canonical(c).items()}
    for path in ("gru/{}", "layer_with_weights-0/cell/{}/.ATTRIBUTES/VARIABLE_VALUE"):
        write_bundle(tmp_path / "m", {path.format(name): array for name, array in arrays.items()})
        code, out, _ = run("convert", "m", "n.safetensors", "--from", "keras", "--to", "keras", "--force")
        assert (code, "note: the arrays do not contain how their layers were made" in out) == (0, True)
        code, _, err = run("convert", "m.index", "n.pt", "--force")
        assert code == 1
        assert "these are Keras's names, which convert.keras reads (--from keras on the command" in err


def test_a_checkpoint_is_of_no_other_framework(run, arrays):
    assert run("convert", "model.ckpt-7", "m.pt", "--from", "pytorch")[0] == 2
    assert run("convert", "model.ckpt-7.index", "m.index", "--to", "keras")[0] == 2


def test_convert_writes_no_second_checkpoint_of_a_name(run, tmp_path):
    """Neither with --force: nobody could read the two by their name."""
    op = ops.CudnnGRU(1, 3, 2)
    checkpoint.save(tmp_path / "a.safetensors", op, op.init_params(seed=1))
    (tmp_path / "b.safetensors.index").touch()
    before = sorted(tmp_path.iterdir())
    for target in ("a.safetensors.index", "b.safetensors"):
        status, _, error = run("convert", "a.safetensors", target, "--to", "tensorflow", "--force")
        assert (status, "one name is one checkpoint" in error) == (2, True)
        assert sorted(tmp_path.iterdir()) == before


def test_what_is_no_file_to_read_is_answered_with_the_file_that_is(run, tmp_path):
    (tmp_path / "saved").mkdir()
    (tmp_path / "model.json").write_text("{}")
    assert "of a SavedModel variables/variables.index" in run("convert", "saved", "m.pt")[2]
    assert "tensorflowjs_converter makes a .h5 of a model.json" in run("convert", "model.json", "m.pt")[2]
