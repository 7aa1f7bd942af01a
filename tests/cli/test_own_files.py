"""`pycudnnrnn convert` on what this package wrote itself: a checkpoint says what it holds, and so does a conversion."""

import json
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pycudnnrnn import Saver, checkpoint, convert
from pycudnnrnn.convert import Canonical
from tests.helpers.layers import ALL, CudnnGRU, built
from tests.helpers.oracles import equal_dicts, need, random_canonical

need("torch")
import torch  # noqa: E402

LAYERS = {
    **{kind.__name__: lambda kind=kind: built(kind) for kind in ALL},
    "projection": lambda: built(num_proj=2),
    "one bias, the recurrent": lambda: built(CudnnGRU, bias_mode="single_recurrent", direction="bidirectional"),
}


def written_of(layer):
    return convert.pytorch.from_canonical(Canonical(layer.spec, *layer.op.params_to_canonical(layer.params)))


def arrays_in(path):
    return {name: tensor.numpy() for name, tensor in torch.load(path, weights_only=True).items()}


@pytest.mark.parametrize(
    ("what", "name"),
    [*((what, "own.safetensors") for what in LAYERS), ("projection", "own"), ("projection", "own.ckpt")],
)
def test_a_savers_file_of_one_model_converts_without_an_option(run, tmp_path, what, name):
    layer = LAYERS[what]()
    Saver({"a": layer, "step": np.array(3)}).save(tmp_path / name)
    code, out, err = run("convert", name, "own.pt", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    equal_dicts(arrays_in(tmp_path / "own.pt"), written_of(layer))
    assert (report["from"], report["spec"]) == ("pycudnnrnn", json.loads(layer.spec.to_json()))
    assert report["notes"] == ["left out, since one model is converted at a time: 'step'"]


def test_of_several_models_the_error_says_which_there_are_and_prefix_takes_one(run, tmp_path):
    things = {"encoder": built(), "decoder": built(CudnnGRU, seed=2), "step": np.array(1)}
    Saver(things).save(tmp_path / "own.safetensors")
    for options, why in (([], "one is converted at a time"), (["-s", "prefix=step"], "none is called 'step'")):
        code, _, err = run("convert", "own.safetensors", "own.pt", *options)
        assert (code, len(err.splitlines())) == (1, 1)
        assert f"the models of this file are 'decoder', 'encoder': {why}, so give -s prefix=" in err
    for prefix in ("decoder", "decoder/"):
        code, out, _ = run("convert", "own.safetensors", "own.pt", "--force", "-s", f"prefix={prefix}")
        assert (code, "note: left out, since one model is converted at a time: 'encoder', 'step'" in out) == (0, True)
        equal_dicts(arrays_in(tmp_path / "own.pt"), written_of(things["decoder"]))
    Saver({"step": np.array(1)}).save(tmp_path / "step.safetensors")
    assert "1 tensor, 1 element (0 not finite), 8 bytes\n" in run("inspect", "step.safetensors")[1]
    code, _, err = run("convert", "step.safetensors", "own.pt", "--force")
    assert (code, "there is no RNN in this file, only 'step'" in err) == (1, True)


def test_a_checkpoint_with_a_wrong_hash_is_not_converted(run, tmp_path):
    path = Saver({"a": built()}).save(tmp_path / "own.safetensors")
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    for options in ([], ["--from", "tensorflow", "-s", "prefix=a"]):
        code, _, err = run("convert", "own.safetensors", "own.pt", *options)
        assert (code, "SHA-256 differs" in err) == (1, True)


def test_a_checkpoint_is_verified_against_the_other_side_alone(run, tmp_path):
    Saver({"a": built(dtype="float32")}).save(tmp_path / "own.safetensors")
    code, out, _ = run("convert", "own.safetensors", "own.pt", "--verify")
    assert (code, "verify: pytorch (DST): worst error" in out, "(SRC)" in out) == (0, True, False)


def test_a_file_that_was_converted_says_whose_arrays_it_holds(run, tmp_path):
    layer = built(CudnnGRU)
    checkpoint.save(tmp_path / "own.safetensors", layer)
    assert run("convert", "own.safetensors", "flax.safetensors", "--to", "flax")[0] == 0
    assert run("convert", "flax.safetensors", "own.pt")[0] == 0
    arrays = convert.pytorch.from_canonical(random_canonical(layer.spec, 1))
    assert load_file(tmp_path / "flax.safetensors").keys() != arrays.keys()
    for metadata in ({}, {"format": "pt"}, {"framework": "pycudnnrnn"}, {"framework": "theano"}):
        save_file(arrays, tmp_path / "theirs.safetensors", metadata)
        code, _, err = run("convert", "theirs.safetensors", "own.pt", "--force")
        assert (code, "the framework of its arrays: pass --from (pytorch, by its names)" in err) == (2, True)
        assert run("convert", "theirs.safetensors", "own.pt", "--force", "--from", "pytorch")[0] == 0


def test_a_format_whose_package_is_missing_is_refused_before_anything_is_printed(run, tmp_path, monkeypatch):
    checkpoint.save(tmp_path / "own.safetensors", built(CudnnGRU))
    monkeypatch.setitem(sys.modules, "torch", None)
    code, out, err = run("convert", "own.safetensors", "own.pt")
    assert (code, out) == (1, "")
    assert "writing a .pt file needs torch, which is not installed" in err
