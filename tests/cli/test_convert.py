"""`pycudnnrnn convert`: files in and out, what it refuses, and how it ends."""

import errno
import functools
import importlib.util
import json
import os
import pickle
import struct

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pycudnnrnn import RNNSpec, convert
from pycudnnrnn.cli.convert import verify
from pycudnnrnn.errors import PycudnnrnnError
from tests.helpers.oracles import equal_dicts, need, random_canonical

need("torch", "keras", "onnx", "onnxruntime", "flax", "h5py")
import h5py  # noqa: E402
import keras  # noqa: E402
import onnx  # noqa: E402
import torch  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    # keras.Variable.__array__ has not followed NumPy 2
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)


@pytest.fixture
def run(run):
    return functools.partial(run, "convert")


@pytest.fixture
def model(tmp_path):
    """A state dict of a model with an LSTM in it, and the LSTM's part of it."""
    torch.manual_seed(1)
    lstm = torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True)
    whole = torch.nn.ModuleDict({"lstm": lstm, "head": torch.nn.Linear(8, 2)})
    torch.save(whole.state_dict(), tmp_path / "model.pt")
    return {name: tensor.numpy() for name, tensor in lstm.state_dict().items()}


def test_a_part_of_an_onnx_model_is_taken_by_the_names_of_its_nodes(run, tmp_path):
    c = random_canonical(RNNSpec("gru", 2, 4, 4), 1)
    onnx.save(convert.onnx.to_model(c), tmp_path / "whole.onnx")
    for nodes, layers in (("layer_1", 1), ("layer_0,layer_1", 2)):
        code, out, err = run("whole.onnx", "part.pt", "-s", f"nodes={nodes}", "--verify", "--force")
        assert (code, err) == (0, "")
        assert f"RNNSpec('gru', {layers}, 4, 4)" in out
        assert "verify: onnx (SRC): worst error" in out
    code, _, err = run("whole.onnx", "part.pt", "-s", "nodes=layer_2", "--force")
    assert code == 1
    assert "nodes 'layer_2': no such RNN node among ['layer_0', 'layer_1']" in err
    code, _, err = run("part.pt", "part.onnx", "-s", "nodes=layer_1")
    assert code == 2
    assert "a key of prefix, nonlinearity" in err


def test_a_model_goes_through_every_format_verified_on_both_sides(run, model, tmp_path):
    code, out, err = run("model.pt", "one.onnx", "-s", "prefix=lstm", "--verify")
    assert (code, err) == (0, "")
    assert "verify: pytorch (SRC): worst error" in out
    assert "verify: onnx (DST): worst error" in out
    assert "0/W" in out
    assert run("one.onnx", "two.pt")[0] == 0
    two = torch.load(tmp_path / "two.pt", weights_only=True)
    equal_dicts({name: tensor.numpy() for name, tensor in two.items()}, model)
    code, out, _ = run("two.pt", "three.weights.h5", "--verify")
    assert code == 0
    assert "verify: keras (DST): worst error" in out
    code, out, _ = run("three.weights.h5", "four.safetensors", "--to", "flax", "--verify")
    assert code == 0
    assert "verify: keras (SRC): worst error" in out
    assert "verify: flax (DST): worst error" in out
    assert run("four.safetensors", "five.safetensors", "--from", "flax", "--to", "pytorch", "-t", "prefix=rnn.")[0] == 0
    five = load_file(tmp_path / "five.safetensors")
    for name, array in model.items():
        if name.startswith("weight"):
            assert np.array_equal(five["rnn." + name], array), name
    summed = model["bias_ih_l1"] + model["bias_hh_l1"]
    assert np.array_equal(five["rnn.bias_ih_l1"] + five["rnn.bias_hh_l1"], summed)
    assert not any(path.name.startswith(".") for path in tmp_path.iterdir())


@pytest.mark.parametrize("which", [0, 2])
def test_a_result_or_a_state_that_is_wrong_is_not_verified(which, monkeypatch):
    c = random_canonical(RNNSpec("lstm", 1, 4, 3), 1)
    right, packages = verify.RUNNERS["pytorch"]

    def wrong(*given):
        results = [np.array(array) for array in right(*given)]
        results[which].flat[-1] = np.nan if which else 1e9
        return results

    monkeypatch.setitem(verify.RUNNERS, "pytorch", (wrong, packages))
    with pytest.raises(PycudnnrnnError, match="computes other results than the op: worst error"):
        verify.verify(c, {"DST": ("pytorch", convert.pytorch.from_canonical(c))})


def test_arrays_that_are_not_the_modules_are_not_called_verified():
    c = random_canonical(RNNSpec("lstm", 1, 4, 3), 1)
    arrays = convert.pytorch.from_canonical(c) | {"weight_ih_l0": np.zeros((16, 3), "f4")}
    with pytest.raises(PycudnnrnnError, match="these are not the arrays of the module that would be run"):
        verify.verify(c, {"DST": ("pytorch", arrays)})


def test_numbers_that_are_none_are_verified_by_nobody(run, model, tmp_path):
    model["weight_ih_l0"][0, 0] = np.nan
    torch.save({name: torch.from_numpy(array) for name, array in model.items()}, tmp_path / "odd.pt")
    code, _, err = run("odd.pt", "odd.onnx", "--verify")
    assert code == 1
    assert "computes other results than the op: worst error nan" in err
    assert not (tmp_path / "odd.onnx").exists()
    assert run("odd.pt", "odd.onnx")[0] == 0


def test_the_report_lists_what_is_written(run, tmp_path):
    c = random_canonical(RNNSpec("gru", 1, 4, 3), 1)
    save_file(convert.equinox.from_canonical(c), tmp_path / "eqx.safetensors")
    code, out, _ = run("eqx.safetensors", "k.weights.h5", "--from", "equinox", "--json", "--verify")
    assert code == 0
    found = json.loads(out)
    assert found["arrays"] == [
        {"name": "gru/gru_cell/kernel", "shape": [3, 12]},
        {"name": "gru/gru_cell/recurrent_kernel", "shape": [4, 12]},
        {"name": "gru/gru_cell/bias", "shape": [2, 12]},
    ]
    assert [(v["name"], v["error"] < 1e-4, v["not_run"]) for v in found["verify"]] == [
        ("equinox (SRC)", True, None), ("keras (DST)", True, None),
    ]  # fmt: skip
    assert RNNSpec.from_json(json.dumps(found["spec"])) == c.spec
    assert (found["from"], found["to"]) == ("equinox", "keras")
    _, out, _ = run("eqx.safetensors", "k.weights.h5", "--from", "equinox", "--force")
    rows = [line.split("  ") for line in out.splitlines() if "gru_cell" in line]
    assert [[part.strip() for part in row if part.strip()] for row in rows] == [
        ["gru/gru_cell/kernel", "[3, 12]"],
        ["gru/gru_cell/recurrent_kernel", "[4, 12]"],
        ["gru/gru_cell/bias", "[2, 12]"],
    ]


def test_what_cannot_be_run_is_said_and_not_called_verified(run, model, tmp_path, monkeypatch):
    code, out, _ = run("model.pt", "m.safetensors", "-s", "prefix=lstm", "--to", "gluon", "--verify")
    assert code == 0
    assert "verify: gluon (DST): not run" in out
    found = importlib.util.find_spec
    monkeypatch.setattr(verify.importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else found(name))
    code, out, _ = run("model.pt", "m.onnx", "-s", "prefix=lstm", "--verify")
    assert code == 0
    assert "verify: onnx (DST): not run, onnxruntime is not installed" in out
    assert "verify: pytorch (SRC): worst error" in out


def test_where_no_side_could_run_nothing_is_written(run, model, tmp_path):
    c = random_canonical(RNNSpec("gru", 1, 4, 3), 1)
    save_file(convert.gluon.from_canonical(c), tmp_path / "g.safetensors")
    code, out, err = run("g.safetensors", "c.safetensors", "--from", "gluon", "--to", "chainer", "--verify")
    assert (code, out) == (1, "")
    assert (
        "nothing was verified and nothing is written: gluon (SRC): not run, it is not installed; chainer (DST)" in err
    )
    assert "Leave out --verify to write it" in err
    assert not (tmp_path / "c.safetensors").exists()
    assert run("g.safetensors", "c.safetensors", "--from", "gluon", "--to", "chainer")[0] == 0


def test_a_framework_that_cannot_run_the_model_is_told_and_the_file_written(run, tmp_path):
    """Onnxruntime has no GRU in float64."""
    module = torch.nn.GRU(3, 4, dtype=torch.float64)
    torch.save(module.state_dict(), tmp_path / "double.pt")
    code, out, _ = run("double.pt", "double.onnx", "--verify")
    assert code == 0
    assert "verify: pytorch (SRC): worst error" in out
    assert "verify: onnx (DST): not run, " in out
    assert "double" in out.partition("verify: onnx (DST): not run, ")[2].splitlines()[0]
    assert (tmp_path / "double.onnx").exists()


def test_a_side_that_computes_something_else_fails_and_writes_nothing(run, model, tmp_path, monkeypatch):
    runner, packages = verify.RUNNERS["onnx"]

    def wrong(*arguments):
        y, hy, cy = runner(*arguments)
        return y + 0.01, hy, cy

    monkeypatch.setitem(verify.RUNNERS, "onnx", (wrong, packages))
    code, _, err = run("model.pt", "m.onnx", "-s", "prefix=lstm", "--verify")
    assert code == 1
    assert "onnx (DST) computes other results than the op: worst error 1.0e-02" in err
    assert not (tmp_path / "m.onnx").exists()


def test_an_existing_file_stays_unless_forced_and_a_link_stays_anyway(run, model, tmp_path):
    (tmp_path / "old.onnx").write_bytes(b"precious")
    (tmp_path / "link.onnx").symlink_to(tmp_path / "old.onnx")
    for target, force, text in (("old.onnx", [], "--force"), ("link.onnx", ["--force"], "symbolic link")):
        code, _, err = run("model.pt", target, "-s", "prefix=lstm", *force)
        assert code == 2
        assert text in err
        assert (tmp_path / "old.onnx").read_bytes() == b"precious"
    assert run("model.pt", "old.onnx", "-s", "prefix=lstm", "--force")[0] == 0
    onnx.checker.check_model(onnx.load(tmp_path / "old.onnx"))


@pytest.mark.parametrize("name", ["old.safetensors", "old.onnx"])
def test_a_disk_that_is_full_leaves_the_old_file_and_is_one_line(run, model, name, tmp_path, monkeypatch):
    (tmp_path / name).write_bytes(b"precious")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    to = ["--to", "gluon"] if name.endswith("safetensors") else []
    monkeypatch.setattr(os, "write", full)
    code, _, err = run("model.pt", name, "-s", "prefix=lstm", "--force", *to)
    assert code == 1
    assert err == f"pycudnnrnn: cannot write {name}: No space left on device\n"
    assert (tmp_path / name).read_bytes() == b"precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.pt", name]


def test_where_nothing_can_be_written_nothing_is_read(run, tmp_path):
    (tmp_path / "model.pt").write_bytes(b"no model")
    (tmp_path / "folder.pt").mkdir()
    os.mkfifo(tmp_path / "fifo.pt")
    for target, text in (("fifo.pt", "a FIFO"), ("nowhere/m.pt", "No such file")):
        code, out, err = run("model.pt", target, "--force")
        assert (code, out) == (2, "")
        assert text in err


@pytest.mark.parametrize("name", ["m.safetensors", "m.weights.h5"])
def test_bfloat16_goes_through_every_format_that_has_it(run, name, tmp_path):
    tensors = {key: t.bfloat16() for key, t in torch.nn.GRU(3, 4, 2).state_dict().items()}
    torch.save(tensors, tmp_path / "source.pt")
    to = ["--to", "pytorch"] if name.endswith("safetensors") else []
    back = ["--from", "pytorch"] if name.endswith("safetensors") else []
    assert run("source.pt", name, *to)[0] == 0
    assert run(name, "back.pt", *back)[0] == 0
    found = torch.load(tmp_path / "back.pt", weights_only=True)
    assert found.keys() == tensors.keys()
    for key, tensor in tensors.items():
        assert found[key].dtype is torch.bfloat16
        assert torch.equal(found[key], tensor), key


class Evil:
    """Unpickled, it makes a folder."""

    def __reduce__(self):
        return os.mkdir, ("evil-was-here",)


def header(text):
    return struct.pack("<Q", len(text)) + text


TENSOR = b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'


def hostile_files(folder):
    torch.save({"weight_ih_l0": Evil()}, folder / "evil.pt")
    (folder / "pickle.pt").write_bytes(pickle.dumps(Evil()))
    torch.save([torch.ones(2)], folder / "list.pt")
    (folder / "text.h5").write_text("no HDF5")
    (folder / "text.keras").write_text("no zip")
    (folder / "text.onnx").write_text("no protobuf")
    (folder / "text.safetensors").write_text("no header at all")
    (folder / "pickle.safetensors").write_bytes(pickle.dumps(Evil()))
    (folder / "tail.safetensors").write_bytes(header(b"{" + TENSOR + b"}") + b"\0" * 5)
    (folder / "huge.safetensors").write_bytes(struct.pack("<Q", 2**62) + b"{}")
    (folder / "deep.safetensors").write_bytes(header(b"[" * 100_000))
    with h5py.File(folder / "link.h5", "w") as file:
        file["layers"] = h5py.ExternalLink("/etc/hostname", "/")
    m = convert.onnx.to_model(random_canonical(RNNSpec("lstm", 1, 4, 3), 1))
    onnx.save(m, folder / "outside.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    outside = (folder / "outside.onnx").read_bytes()
    assert b"weights.bin" in outside
    (folder / "outside.onnx").write_bytes(outside.replace(b"weights.bin", b"/etc/passwd"))
    (folder / "nothing.pt").write_bytes(b"")


def test_the_only_rnn_of_a_file_needs_no_prefix_and_one_of_two_does(run, model, tmp_path):
    code, out, err = run("model.pt", "m.safetensors", "--to", "pytorch")
    assert (code, err) == (0, "")
    assert "note: read with -s prefix=lstm.: it is the only RNN in the file" in out
    equal_dicts(dict(sorted(load_file(tmp_path / "m.safetensors").items())), dict(sorted(model.items())))
    two = {f"{name}.{key}": torch.from_numpy(array) for name in "ab" for key, array in model.items()}
    torch.save(two, tmp_path / "two.pt")
    code, _, err = run("two.pt", "n.onnx")
    assert (code, "there is an RNN under the prefix 'a.', 'b.'" in err) == (1, True)
    assert run("model.pt", "n.onnx", "-s", "prefix=decoder")[0] == 1, "a prefix that was given is not replaced"
    assert not (tmp_path / "n.onnx").exists()


def test_a_dry_run_prints_the_table_verifies_and_writes_nothing(run, model, tmp_path):
    code, out, _ = run("model.pt", "m.onnx", "--dry-run", "--verify")
    assert (code, "verify: onnx (DST): worst error" in out, "0/W" in out) == (0, True, True)
    assert out.endswith("not written: m.onnx (onnx), 6 arrays\n")
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]


def test_a_whole_pickled_module_is_refused_with_what_writes_its_weights(run, tmp_path):
    torch.save(torch.nn.LSTM(3, 4), tmp_path / "whole.pt")
    code, _, err = run("whole.pt", "out.safetensors", "--to", "pytorch")
    assert code == 1
    assert "torch.nn.modules.rnn.LSTM is in it, too; torch.save(model.state_dict(), path) writes one" in err
    torch.save(torch.nn.LSTM(3, 4).state_dict(), tmp_path / "whole.pt")
    assert run("whole.pt", "out.safetensors", "--to", "pytorch")[0] == 0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("evil.pt", "is not a file of weights only"),
        ("pickle.pt", "is not a file of weights only"),
        ("nothing.pt", "is not a file of weights only"),
        ("list.pt", "holds a list, not a dict of tensors"),
        ("text.h5", "cannot be read as HDF5"),
        ("text.keras", "cannot be read as a .keras file"),
        ("link.h5", "is a link to elsewhere"),
        ("text.onnx", "is not a readable ONNX model"),
        ("outside.onnx", "keeps its data in another file"),
        ("text.safetensors", "text.safetensors: format"),
        ("pickle.safetensors", "pickle.safetensors: format"),
        ("tail.safetensors", "tail.safetensors: format: not a safetensors file"),
        ("huge.safetensors", "huge.safetensors: format: not a safetensors file"),
        ("deep.safetensors", "deep.safetensors: format: not a safetensors file"),
    ],
)
def test_a_hostile_file_ends_in_one_line_and_runs_nothing(run, name, text, tmp_path):
    (tmp_path / "sub").mkdir()
    hostile_files(tmp_path / "sub")
    source = ["--from", "pytorch"] if name.endswith("safetensors") else []
    code, _, err = run(f"sub/{name}", "out.safetensors", "--to", "pytorch", *source)
    assert code == 1
    assert text in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "evil-was-here").exists()
    assert not (tmp_path / "out.safetensors").exists()


def test_the_evil_file_is_evil(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hostile_files(tmp_path)
    pickle.loads((tmp_path / "pickle.pt").read_bytes())
    assert (tmp_path / "evil-was-here").exists()


def test_a_torch_that_a_file_can_make_run_code_is_refused(run, model, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.9.1")
    code, _, err = run("model.pt", "m.onnx", "-s", "prefix=lstm")
    assert (code, "torch 2.10 is needed" in err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["model.pt", "m.onnx", "-s", "prefix=decoder"], 1, "there is no key under the prefix 'decoder.'"),
        (["model.pt", "nowhere/m.onnx", "-s", "prefix=lstm"], 2, "cannot write nowhere/m.onnx: No such file"),
        (["model.pt", "m.safetensors", "--to", "equinox", "-s", "prefix=lstm", "-s", "nonlinearity=gelu"], 1, "'gelu'"),
        (["nowhere.pt", "m.onnx"], 2, "does not exist"),
        ([".", "m.onnx"], 2, "'.' is a folder without TensorFlow's file 'checkpoint': name a file in it"),
        (["model.pt", "m.npz"], 2, "DST has to end in"),
        (["model.pt", "m.safetensors"], 2, "pass --to"),
        (["model.pt", "m.onnx", "--from", "keras"], 2, "a .pt file is pytorch's"),
        (["model.pt", "m.onnx", "-s", "direction=both"], 2, "a key of prefix, nonlinearity"),
        (["model.pt", "m.onnx", "-t", "prefix"], 2, "KEY=VALUE"),
        (["model.pt", "m.onnx", "--to", "theano"], 2, "theano"),
        (["--help"], 0, "Nothing in a file is run"),
    ],
)
def test_it_ends_with_an_exit_code_and_one_line(run, model, arguments, code, text):
    found, out, err = run(*arguments)
    assert found == code
    assert text in " ".join((out + err).split())
    if code == 1:
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_a_model_with_a_dense_between_its_layers_is_refused_and_what_the_error_offers_works(run, tmp_path, suffix):
    one, two = (keras.layers.SimpleRNN(4, "relu", return_sequences=True, name=name) for name in ("one", "two"))
    model = keras.Sequential([keras.Input((None, 4)), one, keras.layers.Dense(4, name="dense"), two])
    model.save(tmp_path / f"m{suffix}")
    code, _, err = run(f"m{suffix}", "no.pt", "--verify")
    assert (code, "has 2 recurrent layers: name those of one stack" in err) == (1, True), err
    assert not (tmp_path / "no.pt").exists()
    offered = err.partition("layers=['one', 'two'], or ")[2].split()[:2]
    assert offered == ["-s", "layers=one,two"]
    assert run(f"m{suffix}", "both.pt", *offered)[0] == 0
    assert run(f"m{suffix}", "two.pt", "--verify", "-s", "layers=two")[0] == 0
    x = np.random.default_rng(2).normal(size=(2, 5, 4)).astype("f4")
    before = keras.Model(model.inputs[0], model.get_layer("dense").output)
    module = torch.nn.RNN(4, 4, nonlinearity="relu", batch_first=True)
    module.load_state_dict(torch.load(tmp_path / "two.pt", weights_only=True))
    ours = module(torch.tensor(keras.ops.convert_to_numpy(before(x))))[0].detach().numpy()
    np.testing.assert_allclose(ours, keras.ops.convert_to_numpy(model(x)), atol=5e-6)
