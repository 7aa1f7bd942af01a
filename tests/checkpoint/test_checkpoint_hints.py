"""What a refusal says of the file that came: what it is instead, whose things it holds, and what reads it."""

import zipfile

import numpy as np
import pytest
from safetensors.numpy import save_file

from pycudnnrnn import CudnnGRU, CudnnLSTM, Saver, checkpoint, convert, ops, saveable
from pycudnnrnn.checkpoint import _bundle, _file, _similar_names, _tensorflow
from pycudnnrnn.convert.keras.files import h5_image
from pycudnnrnn.errors import ArgumentTypeError, CheckpointError
from pycudnnrnn.spec import RNNSpec
from tests.helpers.layers import built
from tests.helpers.oracles import need, random_canonical

need("torch", "h5py", "onnx")


def refusal(call, *arguments):
    with pytest.raises(CheckpointError) as raised:
        call(*arguments)
    return raised.value.reason, raised.value.detail


def readers(path):
    """Every call that reads a file of ours, and one for any safetensors file."""
    saver = Saver({"a": np.zeros(1 << 20)})
    return {
        "restore": lambda: saver.restore(path),
        "load": lambda: checkpoint.load(path),
        "inspect": lambda: checkpoint.inspect(path),
        "foreign": lambda: checkpoint.inspect(path, foreign=True),
        "convert": lambda: _file.read_foreign(path),
    }


def torch_file(path):
    import torch

    torch.save({"w": torch.ones(3)}, path)


def keras_file(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "{}")


def h5_file(path):
    path.write_bytes(h5_image({"gru/gru_cell/kernel": np.ones((2, 3))}))


def onnx_file(path):
    model = convert.onnx.to_model(random_canonical(RNNSpec("lstm", 1, 4, 3), 1))
    path.write_bytes(model.SerializeToString())


def v1_file(path):
    path.write_bytes(b"\0\7tensors" * 8 + (0xDB4775248B80FB57).to_bytes(8, "little"))


ZIP = "not a safetensors file: it begins as a zip archive, which is what torch's .pt and Keras' .keras files are: "
OTHERS = {
    "torch": (torch_file, f"{ZIP}`pycudnnrnn convert` reads those by their suffix ("),
    "keras": (keras_file, f"{ZIP}`pycudnnrnn convert` reads those by their suffix ("),
    "HDF5": (
        h5_file,
        "not a safetensors file: it begins as an HDF5 file, which is what Keras' .h5 files are: `pycudnn",
    ),
    "onnx": (onnx_file, "not a safetensors file, or cut short ("),
    "V1": (v1_file, "not a safetensors file: a checkpoint of format V1, from before TensorFlow 0.12: save it anew "),
    "nothing": (lambda path: path.write_bytes(b""), "not a safetensors file, or cut short (0 bytes have no room for a"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_kind_of_file_is_named_where_its_marks_tell_it(tmp_path, what):
    write, begins = OTHERS[what]
    write(tmp_path / "model")
    for name, read in readers(tmp_path / "model").items():
        reason, detail = refusal(read)
        assert reason == "header length", name
        assert detail.startswith(begins), name
        assert what == "nothing" or f" bytes of header in a file of {(tmp_path / 'model').stat().st_size}; " in detail


def test_another_kind_of_file_is_named_where_it_is_too_large_as_well(tmp_path):
    (tmp_path / "model").write_bytes(b"PK\3\4" + bytes(2 << 20))
    reason, detail = refusal(Saver({"a": np.zeros(3)}).restore, tmp_path / "model")
    assert (reason, detail.startswith(ZIP)) == ("size", True)
    (tmp_path / "model").write_bytes(bytes(2 << 20))
    assert refusal(Saver({"a": np.zeros(3)}).restore, tmp_path / "model")[1].startswith("2097152 bytes where")


def test_a_header_that_is_only_too_long_is_of_a_safetensors_file(tmp_path):
    save_file({"a": np.zeros(3)}, tmp_path / "model", {"much": "x" * (1 << 21)})
    reason, detail = refusal(checkpoint.inspect, tmp_path / "model")
    assert (reason, "not a safetensors file" in detail) == ("header length", False)


def test_a_saver_says_which_side_has_what_the_other_lacks(tmp_path):
    layer, step = built(CudnnGRU), np.array(1)
    a = Saver({"a": layer, "step": step}).save(tmp_path / "a")
    for things, sides in (
        ({"b": layer, "step": step}, "only the file has 'a', only this saver has 'b'"),
        ({"a": layer}, "only the file has 'step'"),
        ({"a": layer, "step": step, "c": np.zeros(3)}, "only this saver has 'c'"),
    ):
        said = refusal(Saver(things).restore, a)
        assert said == ("metadata", f"does not hold the same things as this saver: {sides}")
    one = checkpoint.save(tmp_path / "one", layer)
    _, detail = refusal(Saver({"b": layer}).restore, one)
    assert detail.endswith("only the file has 'model', only this saver has 'b'; what checkpoint.save wrote, "
                           "checkpoint.load reads")  # fmt: skip
    many = Saver({f"{'x' * 100}\n{i:02d}": np.zeros(1) for i in range(20)}).save(tmp_path / "many")
    _, detail = refusal(Saver({"a": layer}).restore, many)
    assert (detail.count("xxx..."), "and 12 more, only this saver has 'a'" in detail, "\n" in detail) == (
        8,
        True,
        False,
    )


def test_load_says_whose_file_it_is_and_that_way_restores_it(tmp_path):
    layer = built(CudnnGRU)
    path = Saver({"a": layer}).save(tmp_path / "a")
    said = refusal(checkpoint.load, path)
    how = "build the layer and restore it with Saver({'a': layer})"
    assert said == ("metadata", f"not one model of checkpoint.save's, but of a Saver, under 'a': {how}")
    other = built(CudnnGRU, seed=2)
    Saver({"a": other}).restore(path)
    assert np.array_equal(other.params, layer.params)
    alone = saveable.CudnnOpaqueParamsSaveable.of(layer.params, layer.spec, None, "a")
    path = Saver({"a": alone}).save(tmp_path / "alone")
    how = "build the saveable and restore it with Saver({'a': saveable})"
    assert refusal(checkpoint.load_op, path)[1].endswith(f"under 'a': {how}")
    Saver({"a": alone}).restore(path)
    both = Saver({"a": layer, "b": other}).save(tmp_path / "both")
    _, detail = refusal(checkpoint.load, both)
    assert detail.endswith("under 'a', 'b': build what it held, and restore it with a Saver of the same keys")
    assert refusal(checkpoint.load, Saver({}).save(tmp_path / "none"))[1] == "written by a Saver that held nothing"


def test_a_tensor_that_is_there_under_a_longer_name_is_named(tmp_path):
    path = Saver({"model": built(CudnnGRU)}).save(tmp_path / "m")
    reason, detail = refusal(checkpoint.load, path)
    first = "rnn/multi_rnn_cell/cell_0/cudnn_compatible_gru_cell/gates/kernel"
    assert (reason, detail) == ("missing tensor", f"'{first}' is not there, 'model/{first}' is")


@pytest.mark.parametrize("name", ["m.ckpt", "m.ckpt.index", "."])
def test_load_of_a_tensorflow_checkpoint_names_what_restores_it(tmp_path, name):
    layer, twin = (built(CudnnLSTM, seed=seed, bias_mode="single_input") for seed in (1, 2))
    Saver({"scope": layer}).save(tmp_path / "m.ckpt", format="tensorflow")
    reason, detail = refusal(checkpoint.load, tmp_path / name)
    assert reason == "metadata"
    assert detail.startswith("a checkpoint of TensorFlow's describes no layer: build it, and restore it with Saver(")
    assert detail.endswith("; inspect(path).items has the scopes")
    (scope,) = checkpoint.inspect(tmp_path / name).items
    Saver({scope: twin}).restore(tmp_path / name)
    weights = [item.op.params_to_canonical(item.params)[0] for item in (layer, twin)]
    assert all(map(np.array_equal, *weights))


def test_swapped_arguments_of_save_are_answered_with_their_order(tmp_path):
    with pytest.raises(ArgumentTypeError, match=r"an op with its params: save\(path, layer\)$"):
        checkpoint.save(built(CudnnGRU), tmp_path / "m")
    op = ops.CudnnGRU(1, 2, 2)
    for wrong in ((op, tmp_path / "m", op.init_params()), (tmp_path / "m", op.init_params(), op)):
        with pytest.raises(ArgumentTypeError, match=r"^Invalid layer: .*op with its params: save\(path, op, params\)$"):
            checkpoint.save(*wrong)
    with pytest.raises(ArgumentTypeError, match=r"expecting a layer, or an op with its params$"):
        checkpoint.save(tmp_path / "m", "m")


def test_a_hint_compares_few_names_however_many_there_are_and_finds_the_one_that_was_meant(monkeypatch):
    compared = []
    own = _similar_names.difflib.get_close_matches
    monkeypatch.setattr(
        _similar_names.difflib, "get_close_matches", lambda name, of, n: compared.append([*of]) or own(name, of, n)
    )
    names = [f"model/encoder/layer_{k}/cell_{k % 7}/{kind}" for k in range(5000) for kind in ("kernel", "bias")]
    for missing, meant in {
        "model/encoder/layer_4321/cell_2/kernle": "model/encoder/layer_4321/cell_2/kernel",
        "mode/encoder/layer_17/cell_3/bias": "model/encoder/layer_17/cell_3/bias",
        "model/encoder/layer_99/cell1/bias": "model/encoder/layer_99/cell_1/bias",
    }.items():
        assert meant in _similar_names.nearest(missing, names, 3)
    assert _similar_names.nearest("zzz", names, 2) == sorted(names)[:2]
    assert max(map(len, compared)) == _similar_names.COMPARED_AT_MOST
    compared.clear()
    long = "x" * 10_000
    assert _similar_names.nearest(long, [long + "a", *names], 1) == [min(names)]
    assert _similar_names.nearest("x" * 200, [long], 1) == [long]
    assert all(len(name) <= _similar_names.LENGTH_MAX for names in compared for name in names)


def test_a_missing_tensor_of_tensorflows_names_those_that_are_most_like_it(tmp_path, monkeypatch):
    asked = []
    own = _similar_names.nearest
    for module in (_bundle, _tensorflow):
        monkeypatch.setattr(module, "nearest", lambda name, *more: asked.append(name) or own(name, *more))
    Saver({f"weights_{k}": np.zeros(2) for k in range(40)}).save(tmp_path / "m", format="tensorflow")
    for call in (
        lambda: checkpoint.read_tensorflow(tmp_path / "m", names=["weight_17"]),
        lambda: Saver({"weight_17": np.zeros(2)}).restore(tmp_path / "m"),
    ):
        assert "'weights_17'" in refusal(call)[1]
    assert asked == ["weight_17"] * 2


def test_of_complex_numbers_the_absolute_values_are_said(tmp_path):
    numbers = np.array([3 + 4j, -6j, complex(np.nan, 1), complex(0, np.inf)], "c16")
    Saver({"z": numbers, "narrow": numbers[:2].astype("c8")}).save(tmp_path / "m", format="tensorflow")
    found = checkpoint.inspect(tmp_path / "m").summaries
    assert found["z"] == checkpoint.Summary(4, 5.0, 6.0, 5.5, 1, 1)
    assert found["narrow"] == checkpoint.Summary(2, 5.0, 6.0, 5.5, 0, 0)
