"""Keras's whole models through `pycudnnrnn convert`: every layer runs as the file says, or is refused."""

import functools
import json

import numpy as np
import pytest

from tests.helpers.oracles import need

need("torch", "keras", "h5py")
import h5py  # noqa: E402
import keras  # noqa: E402
import torch  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    # keras.Variable.__array__ has not followed NumPy 2
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)
layers = keras.layers
TOLERANCE = 5e-6  # Keras computes in float32


@pytest.fixture
def run(run):
    return functools.partial(run, "convert")


def rnn(activation, name="rnn", **keywords):
    return layers.SimpleRNN(4, activation=activation, return_sequences=True, name=name, **keywords)


def part(name, *inside):
    return keras.Sequential([keras.Input((None, 4)), *inside], name=name)


def saved(path, *inside):
    model = part("whole", *inside)
    rng = np.random.default_rng(1)
    model.set_weights([rng.normal(size=w.shape) for w in model.get_weights()])
    model.save(path)
    return model


def in_torch(path, nonlinearity, num_layers):
    module = torch.nn.RNN(4, 4, num_layers, nonlinearity=nonlinearity, batch_first=True)
    module.load_state_dict(torch.load(path, weights_only=True))
    return module


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_layers_of_one_name_that_differ_are_told_apart(run, tmp_path, suffix):
    saved(tmp_path / f"m{suffix}", part("enc", rnn("relu")), part("dec", rnn("tanh")), rnn("gelu"))
    for name, mode in {"enc/rnn": "rnn_relu", "enc": "rnn_relu", "dec/rnn": "rnn_tanh", "dec": "rnn_tanh"}.items():
        code, out, err = run(f"m{suffix}", "new.pt", "--force", "-s", f"layers={name}")
        assert (code, mode in out) == (0, True), err
    for given in ([], ["-s", "layers=enc/rnn,dec"]):
        code, _, err = run(f"m{suffix}", "no.pt", *given)
        assert (code, "differ in more than their weights: enc/rnn, dec/rnn" in err) == (1, True), err


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_a_layer_of_which_the_file_says_nothing_is_refused_and_never_guessed(run, tmp_path, suffix):
    each = layers.TimeDistributed(rnn("relu", "inside"), name="each")
    model = keras.Sequential([keras.Input((2, 3, 4)), each, layers.Reshape((6, 4)), rnn("relu", "last")])
    model.save(tmp_path / f"m{suffix}")
    for given in ([], ["-s", "layers=each"], ["-s", "layers=last,each"]):
        code, _, err = run(f"m{suffix}", "no.pt", *given)
        text = "the configuration does not say what this recurrent layer was made with; it does of: 'last'"
        assert (code, text in err, "each/" in err) == (1, True, True), err
    code, out, _ = run(f"m{suffix}", "new.pt", "-s", "layers=last")
    assert (code, "rnn_relu" in out) == (0, True)
    model.save_weights(tmp_path / "m.weights.h5")
    assert run("m.weights.h5", "own.pt", "-s", "layers=time_distributed", "-s", "activation=relu")[0] == 0


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_a_model_with_a_dense_between_its_layers_is_refused_and_what_the_error_offers_works(run, tmp_path, suffix):
    one = rnn("relu", "one")
    model = saved(tmp_path / f"m{suffix}", one, layers.Dense(4, name="dense"), rnn("relu", "two"))
    code, _, err = run(f"m{suffix}", "no.pt", "--verify")
    assert (code, "has 2 recurrent layers: name those of one stack" in err) == (1, True), err
    assert not (tmp_path / "no.pt").exists()
    offered = err.partition("layers=['one', 'two'], or ")[2].split()[:2]
    assert offered == ["-s", "layers=one,two"]
    assert run(f"m{suffix}", "both.pt", *offered)[0] == 0
    assert run(f"m{suffix}", "two.pt", "--verify", "-s", "layers=two")[0] == 0
    x = np.random.default_rng(2).normal(size=(2, 5, 4)).astype("f4")
    before = keras.Model(model.inputs[0], model.get_layer("dense").output)
    ours = in_torch(tmp_path / "two.pt", "relu", 1)(torch.tensor(keras.ops.convert_to_numpy(before(x))))[0]
    assert np.abs(ours.detach().numpy() - keras.ops.convert_to_numpy(model(x))).max() <= TOLERANCE


def test_a_name_from_which_keras_loads_no_weights_is_refused_before_anything_is_read(run, tmp_path):
    torch.save(torch.nn.LSTM(4, 4).state_dict(), tmp_path / "sd.pt")
    code, out, err = run("sd.pt", "o.h5")
    assert (code, out) == (2, "")
    assert "'o.h5', expecting a name that ends in '.weights.h5': Keras loads no weights from others" in err
    assert run("no.pt", "o.hdf5")[0] == 2
    assert run("sd.pt", "o.weights.h5")[0] == 0
    model = keras.Sequential([keras.Input((None, 4)), layers.LSTM(4)])
    model.load_weights(tmp_path / "o.weights.h5")
    assert [path.name for path in tmp_path.iterdir()] == ["sd.pt", "o.weights.h5"]


def write_keras_2(path, config, kernels):
    """Write a file as Keras 2 did: below the outermost layer there are the innermost ones alone."""
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(config)
        for layer in kernels:
            for name in ("kernel", "recurrent_kernel"):
                file[f"model_weights/{layer}/simple_rnn_cell/{name}:0"] = np.ones((4, 4), "f4")


def layer_of(kind, name, **own):
    return {"class_name": kind, "config": {"name": name} | own}


def old_rnn(activation):
    return layer_of("SimpleRNN", "rnn", activation=activation, recurrent_initializer={}, go_backwards=False)


def model_of(name, *inside):
    return layer_of("Sequential", name, layers=list(inside))


def test_keras_2_leaves_models_in_models_out_of_its_names(run, tmp_path):
    deep = model_of("enc", model_of("sub", old_rnn("relu")))
    write_keras_2(tmp_path / "m.h5", model_of("whole", deep, model_of("dec", old_rnn("tanh"))), ["enc/rnn", "dec/rnn"])
    for name, mode in {"enc/sub/rnn": "rnn_relu", "enc": "rnn_relu", "dec": "rnn_tanh"}.items():
        code, out, err = run("m.h5", "new.pt", "--force", "-s", f"layers={name}")
        assert (code, mode in out) == (0, True), err


def test_a_sequential_model_that_is_a_list_says_its_settings_too(run, tmp_path):
    """Keras before 2.2.3."""
    config = {"class_name": "Sequential", "config": [old_rnn("relu")]}
    write_keras_2(tmp_path / "m.h5", config, ["rnn/rnn"])
    code, out, err = run("m.h5", "new.pt")
    assert (code, "rnn_relu" in out) == (0, True), err


def test_a_layer_outside_the_configuration_has_not_the_settings_of_its_namesake(run, tmp_path):
    config = model_of("whole", layer_of("Encoder", "enc"), model_of("dec", old_rnn("relu")), old_rnn("relu"))
    write_keras_2(tmp_path / "m.h5", config, ["enc/rnn", "dec/rnn", "rnn/rnn", "dec/own/rnn"])
    for name in ("enc", "dec/own"):
        code, _, err = run("m.h5", "no.pt", "-s", f"layers={name}")
        assert (code, f"'model_weights/{name}/rnn/" in err, "it does of: 'dec/rnn', 'rnn'" in err) == (1, True, True)
    assert run("m.h5", "new.pt", "-s", "layers=dec/rnn")[0] == 0
