"""`pycudnnrnn inspect`: what it says of a checkpoint, what it refuses, and that it holds little of it."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from pycudnnrnn import CudnnLSTM, Saver
from pycudnnrnn.spec import RNNSpec


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


def test_what_nobody_reads_is_named(run, tmp_path):
    for name, text in (
        ("m.onnx", "is not a readable ONNX model"),
        ("m.h5", "cannot be read"),
        ("m.pt", "is not a file"),
    ):
        (tmp_path / name).write_bytes(b"anything")
        code, out, err = run("inspect", name)
        assert (code, out, text in err, err.count("\n")) == (1, "", True, 1)
    assert "'.' is a folder without TensorFlow's file 'checkpoint': name a file in it" in run("inspect", ".")[2]
    assert run("inspect", "nowhere")[0] == 2
    Saver({"a": np.ones(2)}).save(tmp_path / "m")
    (tmp_path / "m").rename(tmp_path / "m.pt")  # any name will do
    assert run("inspect", "m.pt")[0] == 0
