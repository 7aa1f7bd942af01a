"""`pycudnnrnn inspect`: what a checkpoint contains, and each RNN of any other file with the options that choose it."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from pycudnnrnn import CudnnLSTM, Saver, convert
from pycudnnrnn.checkpoint.bundle import write as write_bundle
from pycudnnrnn.spec import RNNSpec
from tests.helpers.oracles import KERAS_ARRAYS, need, random_canonical

need("torch", "keras", "onnx", "h5py")
import keras  # noqa: E402
import onnx  # noqa: E402
import torch  # noqa: E402

pytestmark = KERAS_ARRAYS
L = keras.layers


def torch_file(path):
    parts = {
        "enc": torch.nn.LSTM(3, 4, 2, bidirectional=True),
        "cells": torch.nn.ModuleList([torch.nn.GRUCell(3, 4), torch.nn.GRUCell(4, 4)]),
    }
    model = torch.nn.ModuleDict(parts | {"out": torch.nn.LSTMCell(5, 6), "head": torch.nn.Linear(8, 2)})
    torch.save({"state_dict": model.state_dict() | {"short.weight_hh": torch.ones(16, 4)}, "epoch": 3}, path)


def keras_file(path):
    both = L.Bidirectional(L.GRU(4, return_sequences=True), name="both")
    stacked = L.RNN(L.StackedRNNCells([L.LSTMCell(5), L.LSTMCell(5)]), name="stacked")
    model = keras.Sequential([keras.Input((None, 3)), both, L.Dense(2, name="head"), stacked])
    (model.save_weights if path.name.endswith(".weights.h5") else model.save)(path)


def onnx_file(path):
    onnx.save(convert.onnx.to_model(random_canonical(RNNSpec("gru", 2, 4, 3, direction="bidirectional"), 1)), path)


def plain_file(path):
    state = torch.nn.ModuleDict({"enc": torch.nn.LSTM(3, 4)}).state_dict()
    arrays = {name: tensor.numpy() for name, tensor in state.items()} | {"x": np.ones(3, "f4")}
    save_file(arrays, path) if path.suffix == ".safetensors" else np.savez(path, **arrays)


def checkpoint_files(path):
    c = random_canonical(RNNSpec("lstm", 2, 4, 3, dtype="float32"), 1)
    arrays = convert.tensorflow.from_canonical(c, prefix="net", cell="lstm_cell")
    write_bundle(path.with_suffix(""), arrays | {"lstm_fused_cell/kernel": np.ones((9, 16), "f4"), "step": np.array(7)})


def gru(inputs):
    return f"RNNSpec('gru', 1, 4, {inputs}, direction='bidirectional')"


STACKED = "RNNSpec('lstm', 2, 5, 2, bias_mode='single_input')"
LSTM = "RNNSpec('lstm', 1, 4, 3)"
TORCHS = {
    "-s prefix=enc.": "RNNSpec('lstm', 2, 4, 3, direction='bidirectional')",
    "-s prefix=cells.": "RNNSpec('gru', 2, 4, 3)",
    "-s prefix=out.": "RNNSpec('lstm', 1, 6, 5)",
    "-s prefix=short.": "not read: pytorch: 'short.weight_ih': missing",
}
TENSORFLOWS = {
    "-s prefix=lstm_fused_cell/": "RNNSpec('lstm', 1, 4, 5, bias_mode='none')",
    "-s prefix=net/": "RNNSpec('lstm', 2, 4, 3, bias_mode='single_input')",
}
FILES = {
    "m.ckpt": (torch_file, TORCHS, 2),
    "m.keras": (keras_file, {"-s layers=both": gru(3), "-s layers=stacked": STACKED}, 2),
    "m.h5": (keras_file, {"-s layers=both": gru(3), "-s layers=stacked": STACKED}, 2),
    "m.weights.h5": (keras_file, {"-s layers=bidirectional": gru(3), "-s layers=cells": STACKED}, 2),
    "m.onnx": (onnx_file, {"-s nodes=layer_0": gru(3), "-s nodes=layer_1": gru(8)}, None),
    "m.safetensors": (plain_file, {"--from pytorch -s prefix=enc.": LSTM}, None),
    "m.npz": (plain_file, {"--from pytorch -s prefix=enc.": LSTM}, 1),
    "m.index": (checkpoint_files, TENSORFLOWS, None),
}


@pytest.mark.filterwarnings("ignore:the arrays do not contain how", "ignore:read as one stack", "ignore:lstm_")
@pytest.mark.parametrize("name", FILES)
def test_each_rnn_is_listed_with_the_options_that_choose_it(run, name, tmp_path):
    write, rnns, others = FILES[name]
    write(tmp_path / name)
    code, out, err = run("inspect", name)
    assert (code, err) == (0, "")
    for option, text in rnns.items():
        assert f"  {option}: {text}\n" in out
    report = json.loads(run("inspect", name, "--json")[1])
    assert len(report["rnns"]) == len(rnns)
    for rnn, (option, text) in zip(report["rnns"], rnns.items(), strict=True):
        assert (rnn["options"], rnn["rnn"]) == (option, text)
        code, _, err = run("convert", name, "x.safetensors", "--to", "pytorch", "--force", *option.split())
        assert (code, err) == (0, "") or text.removeprefix("not read: ") in err, "it is to be pasted"
    if others is not None:
        assert report["others"] == others
        assert f"{len(rnns)} RNN{'s' * (len(rnns) != 1)}, {others} other array" in out


def test_of_a_checkpoint_whose_data_are_lost_the_index_is_listed(run, tmp_path):
    checkpoint_files(tmp_path / "m.index")
    (tmp_path / "m.data-00000-of-00001").unlink()
    for given in ("m", "m.index"):
        code, out, err = run("inspect", given)
        assert (code, err, "m" in out.splitlines()[0], "tensorflow, the index alone" in out) == (0, "", True, True)
        assert f"  -s prefix=net/: {TENSORFLOWS['-s prefix=net/']}\n" in out
        assert "2 RNNs, 1 other array\n" in out
    (tmp_path / "m.index").write_bytes(b"damaged")
    assert run("inspect", "m")[0] == 1


def test_a_checkpoint_of_tf_2_lists_kerass_layers(run, tmp_path):
    cell = convert.keras.from_canonical(random_canonical(RNNSpec("lstm", 1, 4, 3, bias_mode="single_input"), 1))
    write_bundle(tmp_path / "m", {f"{name}/.ATTRIBUTES/VARIABLE_VALUE": array for name, array in cell.items()})
    rnn = "  --from keras -s layers=lstm: RNNSpec('lstm', 1, 4, 3, bias_mode='single_input')\n"
    assert rnn in run("inspect", "m")[1]


@pytest.fixture
def saved(tmp_path):
    """A layer with a NaN and two infinities in its kernel, and a step, in a file."""
    layer = CudnnLSTM(1, 5, name="encoder", seed=3)
    layer.build((None, None, 4))
    layer.params[[0, 7]] = np.inf, -np.inf
    layer.params[3] = np.nan
    Saver({"m": layer, "step": np.array([4, -2])}).save(tmp_path / "m.safetensors")
    return layer


def test_it_says_what_each_tensor_holds(run, saved):
    code, out, err = run("inspect", "m.safetensors", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["verified"] is True
    assert RNNSpec.from_json(json.dumps(report["items"]["m"]["spec"])) == saved.op.spec
    assert report["items"]["m"]["name"] == "encoder"
    assert report["tensors"]["step"] == {
        "shape": [2], "dtype": "int64", "nbytes": 16, "size": 2, "least": -2, "most": 4, "mean": 1,
        "nan": 0, "infinite": 0,
    }  # fmt: skip
    kernel = report["tensors"]["m/rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/kernel"]
    assert (kernel["shape"], kernel["nan"], kernel["infinite"]) == ([9, 20], 1, 2)
    finite = np.concatenate([w.ravel() for w in saved.op.params_to_canonical(saved.params)[0]]).astype("f8")
    finite = finite[np.isfinite(finite)]
    assert (kernel["least"], kernel["most"]) == (finite.min(), finite.max())
    assert kernel["mean"] == pytest.approx(finite.mean())


def test_as_text_it_says_the_same(run, saved):
    code, out, err = run("inspect", "m.safetensors")
    assert (code, err) == (0, "")
    assert all(text in out for text in ("SHA-256 is right", "RNNSpec('lstm', 1, 5, 4", "[9, 20]", "(3 not finite)"))
    (step,) = (line.split() for line in out.splitlines() if line.split()[:1] == ["step"])
    assert step == ["step", "[2]", "int64", "-2", "4", "1"]


def test_another_programs_file_is_read_and_said_to_have_no_hash(run, tmp_path):
    arrays = {"a": np.array([[1.0, 3.0]]), "b": np.array([np.inf]), "none": np.zeros((0, 3), "f4")}
    save_file(arrays, tmp_path / "a.safetensors", {"by": "them"})
    report = json.loads(run("inspect", "a.safetensors", "--json")[1])
    assert (report["verified"], report["metadata"]) == (False, {"by": "them"})
    assert (report["tensors"]["a"]["mean"], report["tensors"]["none"]["mean"]) == (2, None)
    out = run("inspect", "a.safetensors")[1]
    assert all(text in out for text in ("checksum: none", " NaN", " inf", "(1 not finite)"))
    np.savez(tmp_path / "none.npz")
    assert run("inspect", "none.npz") == (1, "", "pycudnnrnn: pytorch: arrays: empty\n")


def test_a_damaged_file_ends_in_one_line(run, saved, tmp_path):
    data = (tmp_path / "m.safetensors").read_bytes()
    (tmp_path / "hash").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    (tmp_path / "short").write_bytes(data[:-9])
    for name, text in (("hash", "SHA-256 differs"), ("short", "format: not a safetensors file")):
        for more in ([], ["--json"]):
            code, out, err = run("inspect", name, *more)
            assert (code, out, len(err.splitlines())) == (1, "", 1)
            assert err.startswith(f"pycudnnrnn: {name}: ")
            assert text in err
