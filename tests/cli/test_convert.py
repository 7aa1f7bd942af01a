"""`pycudnnrnn convert`: files in and out, what it refuses, and how it ends."""

import functools
import importlib.util
import json
import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pycudnnrnn import RNNSpec, convert
from pycudnnrnn.cli.convert import verify
from pycudnnrnn.errors import PycudnnrnnError
from tests.helpers.oracles import KERAS_ARRAYS, equal_dicts, need, random_canonical

need("torch", "keras", "onnx", "onnxruntime", "flax", "h5py")
import onnx  # noqa: E402
import torch  # noqa: E402

pytestmark = KERAS_ARRAYS


@pytest.fixture
def run(run):
    return functools.partial(run, "convert")


@pytest.fixture
def model(tmp_path):
    """A state dict of a model with an LSTM in it, and the LSTM's part of it."""
    torch.manual_seed(1)
    lstm = torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True)
    whole = torch.nn.ModuleDict({"lstm": lstm, "head": torch.nn.Linear(8, 2, dtype=torch.bfloat16)})
    torch.save(dict(whole.named_parameters()), tmp_path / "model.pt")
    return {name: tensor.numpy() for name, tensor in lstm.state_dict().items()}


def test_a_model_goes_through_every_format_verified_on_both_sides(run, model, tmp_path):
    for way in (
        ("model.pt", "one.onnx", "-s", "prefix=lstm"), ("one.onnx", "two.pt"), ("two.pt", "three.weights.h5"),
        ("three.weights.h5", "four.safetensors", "--to", "flax"),
        ("four.safetensors", "five.safetensors", "--from", "flax", "--to", "pytorch", "-t", "prefix=rnn."),
    ):  # fmt: skip
        code, out, err = run(*way, "--verify")
        assert (code, err) == (0, "")
        assert re.findall(r"verify: \w+ \((\w+)\): worst error", out) == ["SRC", "DST"]
    two = torch.load(tmp_path / "two.pt", weights_only=True)
    equal_dicts({name: tensor.numpy() for name, tensor in two.items()}, model)
    five = load_file(tmp_path / "five.safetensors")
    assert all(np.array_equal(five[f"rnn.{name}"], a) for name, a in model.items() if name.startswith("weight"))
    summed = model["bias_ih_l1"] + model["bias_hh_l1"]
    assert np.array_equal(five["rnn.bias_ih_l1"] + five["rnn.bias_hh_l1"], summed)
    assert not any(path.name.startswith(".") for path in tmp_path.iterdir())


@pytest.mark.parametrize("which", [0, 2])
def test_a_result_or_a_state_that_is_wrong_is_not_verified(which, monkeypatch):
    c = random_canonical(RNNSpec("lstm", 1, 4, 3), 1)
    right, packages = verify.RUNNERS["pytorch"]
    inputs = []

    def wrong(*given):
        inputs.append(given[3:])
        results = [np.array(array) for array in right(*given)]
        results[which].flat[-1] += np.nan if which else 1e-3
        return results

    monkeypatch.setitem(verify.RUNNERS, "pytorch", (wrong, packages))
    with pytest.raises(PycudnnrnnError, match="computes other results than the op: worst error"):
        verify.verify(c, {"DST": ("pytorch", convert.pytorch.from_canonical(c))})
    ((hx, cx, lengths),) = inputs
    assert np.all(hx), "zeros hide a wrong order"
    assert np.all(cx), "zeros hide a wrong order"
    assert len({*lengths}) > 1, "equal lengths hide a wrong direction"


def test_arrays_that_are_not_the_modules_are_not_called_verified():
    c = random_canonical(RNNSpec("lstm", 1, 4, 3), 1)
    arrays = convert.pytorch.from_canonical(c) | {"weight_ih_l0": np.zeros((16, 3), "f4")}
    with pytest.raises(PycudnnrnnError, match="these are not the arrays of the module that would be run"):
        verify.verify(c, {"DST": ("pytorch", arrays)})


def test_the_report_lists_what_is_written(run, tmp_path):
    c = random_canonical(RNNSpec("gru", 1, 4, 3), 1)
    save_file(convert.equinox.from_canonical(c), tmp_path / "eqx.safetensors")
    report = json.loads(run("eqx.safetensors", "k.weights.h5", "--from", "equinox", "--json", "--verify")[1])
    arrays = {"kernel": [3, 12], "recurrent_kernel": [4, 12], "bias": [2, 12]}
    assert report["arrays"] == [{"name": f"gru/gru_cell/{name}", "shape": shape} for name, shape in arrays.items()]
    assert [(v["name"], v["error"] < 1e-4, v["not_run"]) for v in report["verify"]] == [
        ("equinox (SRC)", True, None), ("keras (DST)", True, None),
    ]  # fmt: skip
    assert RNNSpec.from_json(json.dumps(report["spec"])) == c.spec
    assert (report["from"], report["to"]) == ("equinox", "keras")


def test_what_cannot_be_run_is_said_and_not_called_verified(run, model, tmp_path, monkeypatch):
    torch.save(torch.nn.GRU(3, 4, dtype=torch.float64).state_dict(), tmp_path / "double.pt")
    real = importlib.util.find_spec
    for way, text in (
        (("model.pt", "m.safetensors", "--to", "gluon"), "gluon (DST): not run"),
        (("double.pt", "double.onnx"), "onnx (DST): not run, "),  # onnxruntime has no GRU in float64
        (("model.pt", "m.onnx"), "onnx (DST): not run, onnxruntime is not installed"),
    ):
        if text.endswith("installed"):
            monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else real(name))
        code, out, _ = run(*way, "--verify")
        assert (code, f"verify: {text}" in out, "verify: pytorch (SRC): worst error" in out) == (0, True, True)
        assert (tmp_path / way[1]).exists()


def test_where_no_side_could_run_nothing_is_written(run, tmp_path):
    save_file(convert.gluon.from_canonical(random_canonical(RNNSpec("gru", 1, 4, 3), 1)), tmp_path / "g.safetensors")
    way = ("g.safetensors", "c.safetensors", "--from", "gluon", "--to", "chainer")
    code, out, err = run(*way, "--verify")
    assert (code, out, (tmp_path / "c.safetensors").exists()) == (1, "", False)
    assert "nothing was verified and nothing is written: gluon (SRC): not run, nothing here runs it; chainer" in err
    assert "Leave out --verify to write it" in err
    assert run(*way)[0] == 0


def test_an_existing_file_stays_unless_forced_and_a_link_stays_anyway(run, model, tmp_path):
    (tmp_path / "old.onnx").write_bytes(b"precious")
    (tmp_path / "link.onnx").symlink_to(tmp_path / "old.onnx")
    for target, force, text in (("old.onnx", [], "--force"), ("link.onnx", ["--force"], "symbolic link")):
        code, _, err = run("model.pt", target, "-s", "prefix=lstm", *force)
        assert (code, text in err) == (2, True)
        assert (tmp_path / "old.onnx").read_bytes() == b"precious"
    assert run("model.pt", "old.onnx", "-s", "prefix=lstm", "--force")[0] == 0
    onnx.checker.check_model(onnx.load(tmp_path / "old.onnx"))


def test_where_nothing_can_be_written_nothing_is_read(run, tmp_path):
    (tmp_path / "model.pt").write_bytes(b"no model")
    os.mkfifo(tmp_path / "fifo.pt")
    code, out, err = run("model.pt", "fifo.pt", "--force")
    assert (code, out, "a pipe" in err) == (2, "", True)


class Evil:
    """Unpickled, it makes a folder."""

    def __reduce__(self):
        return os.mkdir, ("evil-was-here",)


def test_the_only_rnn_of_a_file_needs_no_prefix_and_one_of_two_does(run, model, tmp_path):
    code, out, err = run("model.pt", "m.safetensors", "--to", "pytorch")
    assert (code, err) == (0, "")
    assert "note: read with -s prefix=lstm.: the only RNN that was found" in out
    equal_dicts(dict(sorted(load_file(tmp_path / "m.safetensors").items())), dict(sorted(model.items())))
    two = {f"{name}.{key}": torch.from_numpy(array) for name in "ab" for key, array in model.items()}
    torch.save(two, tmp_path / "two.pt")
    code, _, err = run("two.pt", "n.onnx")
    listed = "prefix='{}.'"
    assert (code, f"choose one: {listed.format('a')}, {listed.format('b')}" in err) == (1, True)
    assert run("model.pt", "n.onnx", "-s", "prefix=decoder")[0] == 1, "a prefix that was given is not replaced"
    assert not (tmp_path / "n.onnx").exists()


def test_an_onnx_model_has_the_axes_and_the_inputs_that_are_asked_for(run, model, tmp_path):
    options = ("-t", "batch_first=true", "-t", "states=true", "-t", "sequence_lens=true")
    code, out, _ = run("model.pt", "m.onnx", *options)
    axes = "input [B, T, 3] (batch first), output [B, T, 8]; optional inputs: initial_h, initial_c, sequence_lens\n"
    assert (code, axes in out) == (0, True)
    inputs = {value.name: value for value in onnx.load(tmp_path / "m.onnx").graph.input}
    assert list(inputs) == ["input", "initial_h", "initial_c", "sequence_lens"]
    assert [axis.dim_param for axis in inputs["input"].type.tensor_type.shape.dim[:2]] == ["B", "T"]
    assert run("m.onnx", "back.pt", "--verify")[0] == 0
    assert run("model.pt", "n.onnx", "-t", "layout=1")[0] == 2


def test_a_dry_run_prints_the_table_verifies_and_writes_nothing(run, model, tmp_path):
    code, out, _ = run("model.pt", "m.onnx", "--dry-run", "--verify")
    assert (code, "verify: onnx (DST): worst error" in out, "0/W" in out) == (0, True, True)
    axes = "input [T, B, 3] (time first; -t batch_first=true changes it), output [T, B, 8]"
    assert out.endswith(f"not written: m.onnx (onnx), 6 arrays\n{axes}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]


def test_a_whole_pickled_module_is_refused_with_what_writes_its_weights(run, tmp_path):
    torch.save(torch.nn.LSTM(3, 4), tmp_path / "whole.pt")
    code, _, err = run("whole.pt", "out.safetensors", "--to", "pytorch")
    assert code == 1
    assert "torch.nn.modules.rnn.LSTM is in it, too; torch.save(model.state_dict(), path) writes one" in err


@pytest.mark.parametrize("name", ["last.ckpt", "pytorch_model.bin", "old"])
def test_a_file_of_torchs_is_known_by_its_content(run, model, tmp_path, name):
    """Lightning writes .ckpt, with the state dict in another dict. Hugging Face writes .bin."""
    saved = {"state_dict": torch.load(tmp_path / "model.pt"), "epoch": 1}
    torch.save(saved, tmp_path / name, _use_new_zipfile_serialization=name != "old")
    code, out, err = run(name, "m.pt", "--verify")
    assert (code, err, "note: read with -s prefix=lstm.: the only RNN that was found" in out) == (0, "", True)
    tensors = torch.load(tmp_path / "m.pt")
    equal_dicts({key: tensor.numpy() for key, tensor in tensors.items()}, model)
    (tmp_path / "no.bin").write_bytes(b"anything at all")
    assert run("no.bin", "n.pt")[0] == 2


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_torchscript_archive_is_refused_with_the_line_that_writes_its_weights(run, tmp_path):
    torch.jit.save(torch.jit.script(torch.nn.LSTM(3, 4)), tmp_path / "script.pt")
    code, _, err = run("script.pt", "m.pt")
    line = "torch.save(torch.jit.load('script.pt').state_dict(), path)"
    assert (code, f"it is a TorchScript archive; {line} writes one" in err) == (1, True)
    eval(line, {"torch": torch, "path": "plain.pt"})
    assert run("plain.pt", "m.pt")[0] == 0


def test_arrays_in_an_npz_are_of_the_framework_that_is_named_and_pickles_are_refused(run, tmp_path):
    c = random_canonical(RNNSpec("gru", 1, 4, 3), 1)
    np.savez(tmp_path / "chainer.npz", **convert.chainer.from_canonical(c, prefix="rnn"))
    (tmp_path / "chainer.npz").rename(tmp_path / "any name")
    code, out, _ = run("any name", "m.safetensors", "--from", "chainer", "--to", "chainer")
    assert (code, "note: read with -s prefix=rnn/: the only RNN that was found" in out) == (0, True)
    equal_dicts(load_file(tmp_path / "m.safetensors"), dict(sorted(convert.chainer.from_canonical(c).items())))
    assert "pass --from" in run("any name", "n.pt")[2]
    np.savez(tmp_path / "evil.npz", weight_ih_l0=np.array([Evil()], object))
    code, _, err = run("evil.npz", "n.pt", "--from", "pytorch")
    assert (code, "is not a readable .npz file of arrays" in err, err.count("\n")) == (1, True, 1)
    assert not (tmp_path / "evil-was-here").exists()


def test_cells_are_ordered_by_the_option_layers(run, tmp_path):
    cells = torch.nn.ModuleDict({"one": torch.nn.LSTMCell(3, 4), "back": torch.nn.LSTMCell(3, 4)})
    torch.save(cells.state_dict(), tmp_path / "cells.pt")
    code, _, err = run("cells.pt", "m.pt")
    assert (code, "choose one: prefix='one.', prefix='back.'" in err) == (1, True)
    assert run("cells.pt", "m.pt", "-s", "layers=one+back", "--verify")[0] == 0
    two = torch.load(tmp_path / "m.pt")
    assert torch.equal(two["weight_hh_l0_reverse"], cells.back.weight_hh)


def test_a_refused_pt_file_runs_nothing_and_is_never_advised_to_be_run(run, tmp_path, recwarn):
    torch.save({"weight_ih_l0": Evil()}, tmp_path / "code.pt")
    (tmp_path / "pickle.pt").write_bytes(pickle.dumps(Evil()))
    torch.save({"weight_ih_l0": torch.zeros(3)}, tmp_path / "short.pt")
    os.truncate(tmp_path / "short.pt", 900)
    (tmp_path / "protocol.pt").write_bytes(pickle.dumps({"a": 1}, protocol=5))  # torch warns of it
    for name in ("code", "pickle", "short", "protocol"):
        code, out, err = run(f"{name}.pt", "x.onnx")
        assert (code, out, len(err.splitlines())) == (1, "", 1)
        assert "is not a file of weights only" in err
        assert not {"weights_only", "False", "trust", "torch.load", "allowlist"} & set(err.replace("=", " ").split())
    assert not [warning for warning in recwarn if "pickle protocol" in str(warning.message)]
    assert "posix.mkdir" in run("code.pt", "x.onnx")[2]
    assert not (tmp_path / "evil-was-here").exists()


def test_values_of_settings_are_read_by_kind(run, tmp_path):
    c = random_canonical(RNNSpec("lstm", 2, 4, 3), 0)
    save_file(convert.keras.from_canonical(c, layers=["1", "none"]), tmp_path / "m.safetensors")
    to_jax = ["--from", "keras", "-s", "layers=1,none", "--to", "jax_rnn"]
    assert run("m.safetensors", "n.safetensors", *to_jax)[0] == 0
    assert "-s has to give input_size, hidden_size" in run("n.safetensors", "m.pt")[2]
    sizes = [f"-s{key}" for key in ("input_size=3", "hidden_size=4", "num_layers=2", "bidirectional=false")]
    assert run("n.safetensors", "m.pt", "--from", "jax_rnn", *sizes)[0] == 0
    for wrong in ("num_layers=true", "num_layers=2.0", "num_layers=٢", "bidirectional=1"):
        assert run("n.safetensors", "o.pt", "--from", "jax_rnn", *sizes, f"-s{wrong}")[0] == 1


def test_a_verification_of_what_was_assumed_says_so(run, tmp_path):
    torch.save(torch.nn.RNN(3, 4, nonlinearity="relu").state_dict(), tmp_path / "rnn.pt")
    code, out, _ = run("rnn.pt", "a.onnx", "--verify")
    assert (code, "note: the arrays do not contain the nonlinearity of a plain cell" in out) == (0, True)
    (line,) = [line for line in out.splitlines() if line.startswith("verify: pytorch (SRC): worst error")]
    assert line.endswith("; rebuilt from what the notes assume")
    assert json.loads(run("rnn.pt", "b.onnx", "--json")[1])["notes"][0].endswith("nonlinearity='tanh', its default")
    assert "assume" not in run("rnn.pt", "c.onnx", "--verify", "-s", "nonlinearity=relu")[1]


def test_a_torch_that_a_file_can_make_run_code_is_refused(run, model, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.9.1")
    code, _, err = run("model.pt", "m.onnx", "-s", "prefix=lstm")
    assert (code, "torch 2.10 is needed" in err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["model.pt", "m.onnx", "-s", "prefix=decoder"], 1, "no RNN under 'decoder.'; choose one: prefix='lstm.'"),
        (["model.pt", "nowhere/m.onnx", "-s", "prefix=lstm"], 2, "cannot write nowhere/m.onnx: No such file"),
        (["model.pt", "m.h5"], 2, "a name that ends in '.weights.h5'"),
        (["model.pt", "m.safetensors"], 2, "pass --to"),
        (["model.pt", "m.onnx", "--from", "keras"], 2, "a .pt file is pytorch's"),
        (["model.pt", "m.onnx", "-s", "direction=both"], 2, "a key of prefix, layers, nonlinearity"),
        (["model.pt", "m.onnx", "-t", "prefix"], 2, "KEY=VALUE"),
        (["k.weights.h5", "m.pt", "-s", "prefix=lstm"], 2, "got 'prefix=lstm'; layers=lstm chooses a layer"),
        (["--help"], 0, "Nothing in a file is run"),
        (["--help"], 0, "pytorch: -s prefix, layers, nonlinearity; -t prefix tensorflow: -s prefix, "),
        (["--help"], 0, "onnx: -s nodes; -t batch_first, states, sequence_lens"),
        (["model.pt", "m.safetensors", "--to", "torch"], 2, "did you mean 'pytorch'?"),
        (["model.pt", "m.safetensors", "--from", "tf", "--to", "flax"], 2, "did you mean 'tensorflow'?"),
        (["model.pt", "m.npz", "-s", "prefix=lstm"], 2, "DST has to end in .pt, .pth, .weights.h5, .onnx"),
    ],
)
def test_it_ends_with_an_exit_code_and_one_line(run, model, arguments, code, text):
    Path("k.weights.h5").touch()
    status, out, err = run(*arguments)
    assert status == code
    assert text in " ".join((out + err).split())
    if code == 1:
        assert len(err.splitlines()) == 1
