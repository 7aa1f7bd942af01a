"""Keras's layers and files, against Keras 3 itself; Keras 2's CuDNN layers by recorded conventions."""

import contextlib
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import RNNSpec, convert
from pycudnnrnn.errors import ArgumentError, ConvertError
from pycudnnrnn.testing.strategies import specs
from tests.helpers.examples import examples
from tests.helpers.oracles import (
    check_both_directions,
    equal_dicts,
    equal_models,
    need,
    random_call,
    random_canonical,
    run_ours,
    worst,
)

need("keras", "h5py")
import h5py  # noqa: E402
import keras  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    # keras.Variable.__array__ has not followed NumPy 2; Keras's own saving trips over it
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)

LOOPED = 2e-6
"""Keras on torch loops over time in float32, whatever the dtype, where there is a mask or a SimpleRNN."""


@pytest.fixture(autouse=True, scope="module")
def float64():
    """Make Keras compute in float64; its dtype policy remembers the floatx of the first layer that was ever made."""
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx(before[0])
    keras.config.set_dtype_policy(before[1])


def reading(spec):
    return {"activation": "relu"} if spec.mode == "rnn_relu" else {}


plain = specs(input_modes=["linear_input"], clip=False, projection=False, max_layers=2)


@examples(60)
@given(plain, st.integers(0, 2**31))
def test_any_model_computes_the_same_in_keras_and_comes_back(spec, seed):
    check_both_directions("keras", spec, seed, read=reading(spec), tolerance=LOOPED)


def sequential(*layers):
    """Build a model of Keras's own, with random biases."""
    model = keras.Sequential([keras.Input((None, 3)), *layers])
    rng = np.random.default_rng(3)
    model.set_weights([0.5 * rng.normal(size=w.shape) for w in model.get_weights()])
    return model


def stack(kind, **keywords):
    layers = keras.layers
    one = getattr(layers, kind)(5, return_sequences=True, name="first", **keywords)
    two = getattr(layers, kind)(5, return_sequences=True, name="second", **keywords)
    return layers.Bidirectional(one, name="b_first"), layers.Bidirectional(two, name="a_second")


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN"])
@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("way", ["variables", "weights.h5", "h5"])
def test_a_model_of_kerass_own_is_read_from_memory_and_from_both_of_its_files(kind, use_bias, way, tmp_path):
    model = sequential(*stack(kind, use_bias=use_bias), keras.layers.Dense(2))
    names = ["b_first", "a_second"]
    if way == "variables":
        arrays = {w.path: w.numpy() for w in model.weights}
    elif way == "h5":
        model.save(tmp_path / "model.h5")
        arrays = convert.keras.read_h5(tmp_path / "model.h5")
    else:
        model.save_weights(tmp_path / "model.weights.h5")
        arrays = convert.keras.read_h5(tmp_path / "model.weights.h5")
        names = ["bidirectional", "bidirectional_1"]
    if way == "variables":  # the groups of a .weights.h5 are numbered, and a whole model's file says the order
        with pytest.raises(ConvertError, match="the names do not say the order of these layers: give `layers`"):
            convert.keras.to_canonical(arrays)
    c = convert.keras.to_canonical(arrays, layers=names)
    assert (c.spec.num_layers, c.spec.num_dirs, c.spec.num_units, c.spec.input_size) == (2, 2, 5, 3)
    assert c.spec.bias_mode == (("double" if kind == "GRU" else "single_input") if use_bias else "none")
    x = random_call(c.spec, 1)[0]
    zeros = np.zeros((4, x.shape[1], 5))
    inner = keras.Model(model.inputs, model.layers[-2].output)
    theirs = keras.ops.convert_to_numpy(inner(keras.ops.convert_to_tensor(x.swapaxes(0, 1)))).swapaxes(0, 1)
    if way == "weights.h5":
        equal_models(convert.keras.to_canonical(arrays), c)
    ours = run_ours(c, x, zeros, zeros, [len(x)] * x.shape[1])[0]
    assert np.abs(ours - theirs).max() <= (LOOPED if kind == "SimpleRNN" else 1e-12)


def test_layers_with_numbered_names_need_no_list_of_them():
    lstm = random_canonical(RNNSpec("lstm", 12, 4, 3, bias_mode="single_input", dtype="float64"), 1)
    arrays = convert.keras.from_canonical(lstm)
    mixed = dict(sorted(arrays.items()))
    assert list(mixed) != list(arrays), "lstm_10 sorts before lstm_2 as text"
    equal_models(convert.keras.to_canonical(mixed), lstm)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN"])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_file_that_we_write_is_loaded_by_keras(kind, bidirectional, tmp_path):
    layers = [getattr(keras.layers, kind)(5, return_sequences=True) for _ in range(2)]
    model = sequential(*(keras.layers.Bidirectional(layer) if bidirectional else layer for layer in layers))
    mode = {"LSTM": "lstm", "GRU": "gru", "SimpleRNN": "rnn_tanh"}[kind]
    direction = "bidirectional" if bidirectional else "unidirectional"
    c = random_canonical(RNNSpec(mode, 2, 5, 3, direction=direction, dtype="float64"), 4)
    arrays = convert.keras.from_canonical(c)
    convert.keras.write_h5(tmp_path / "ours.weights.h5", arrays)
    model.load_weights(tmp_path / "ours.weights.h5")
    for theirs, name in zip(model.get_weights(), arrays, strict=True):
        assert np.array_equal(theirs, arrays[name]), name
    read = convert.keras.read_h5(tmp_path / "ours.weights.h5")
    equal_dicts(convert.keras.from_canonical(convert.keras.to_canonical(read)), arrays)


@pytest.mark.parametrize("name", ["o.h5", "o.hdf5", "o.keras", "o", "weights.h5"])
def test_a_name_from_which_keras_loads_no_weights_is_refused(name, tmp_path):
    arrays = convert.keras.from_canonical(random_canonical(RNNSpec("lstm", 1, 5, 3, dtype="float64"), 1))
    model = sequential(keras.layers.LSTM(5))
    convert.keras.write_h5(tmp_path / "o.weights.h5", arrays)
    model.load_weights(tmp_path / "o.weights.h5")
    (tmp_path / "o.weights.h5").rename(tmp_path / name)
    with pytest.raises((ValueError, OSError, zipfile.BadZipFile)):
        model.load_weights(tmp_path / name)
    (tmp_path / name).unlink()
    with pytest.raises(ArgumentError, match=r"Invalid path: .*, expecting a name that ends in '.weights.h5'"):
        convert.keras.write_h5(tmp_path / name, arrays)
    assert not list(tmp_path.iterdir())


def test_bfloat16_is_written_and_read_as_keras_does_it(tmp_path):
    """HDF5 has no such type: two bytes, and an attribute that names them."""
    options = {"return_sequences": True, "dtype": "bfloat16", "recurrent_initializer": "zeros"}  # torch has no QR of it
    layers = [keras.layers.GRU(5, **options) for _ in range(2)]
    model = sequential(*layers)
    c = random_canonical(RNNSpec("gru", 2, 5, 3, dtype="bfloat16"), 4)
    arrays = convert.keras.from_canonical(c)
    convert.keras.write_h5(tmp_path / "ours.weights.h5", arrays)
    model.load_weights(tmp_path / "ours.weights.h5")
    for theirs, name in zip(layers[0].weights + layers[1].weights, arrays, strict=True):
        assert np.array_equal(theirs.value.detach().float().numpy(), arrays[name].astype("f4")), name
    model.save_weights(tmp_path / "theirs.weights.h5")
    for name in ("ours", "theirs"):
        read = convert.keras.to_canonical(convert.keras.read_h5(tmp_path / f"{name}.weights.h5"))
        assert read.spec.dtype == "bfloat16"
        equal_dicts(convert.keras.from_canonical(read), arrays)


def test_files_may_be_written_side_by_side(tmp_path, monkeypatch):
    """They are made in memory, where HDF5 knows a file by its name alone."""
    arrays = [{"gru/gru_cell/kernel": np.full(3, float(n))} for n in range(2)]
    real = h5py.File.flush

    def flush(file):
        monkeypatch.setattr(h5py.File, "flush", real)
        convert.keras.write_h5(tmp_path / "other.weights.h5", arrays[1])
        real(file)

    monkeypatch.setattr(h5py.File, "flush", flush)
    convert.keras.write_h5(tmp_path / "one.weights.h5", arrays[0])
    for name, array in zip(("one", "other"), arrays, strict=True):
        equal_dicts(
            {"gru/gru_cell/kernel": convert.keras.read_h5(tmp_path / f"{name}.weights.h5")["layers/gru/cell/vars/0"]},
            array,
        )


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"gru/gru_cell/kernel": np.array(["x"], object)}, "expecting a floating dtype"),
        ({"gru/gru_cell/kernel": np.ones(3), "gru/gru_cell/bias": [1.0]}, "expecting an array, got list"),
        ({"gru/gru_cell/kernel": np.ones(3), "mine": np.ones(3)}, "has no place"),
        ({"./gru_cell/kernel": np.ones(3)}, "has no place"),
        ({"g\0/gru_cell/kernel": np.ones(3)}, "has no place"),
        ({"\ud800/gru_cell/kernel": np.ones(3)}, "cannot be written as HDF5"),
        ({f"g/forward_{n}/gru_cell/kernel": np.ones(3) for n in "ab"}, "name already exists"),
        ({}, "empty"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_leaves_the_old_file(arrays, text, tmp_path):
    path = tmp_path / "m.weights.h5"
    path.write_bytes(b"precious")
    with pytest.raises(ConvertError, match=text):
        convert.keras.write_h5(path, arrays)
    assert path.read_bytes() == b"precious"
    assert list(tmp_path.iterdir()) == [path]


def keras2_hdf5_rule(weights, gates):
    """What Keras 2 does to a CuDNN layer's weights when it loads them into LSTM or GRU(reset_after=True).

    Recorded from keras/saving/hdf5_format.py, `_convert_rnn_weights` (2.15): the input block of a gate is transposed
    and reshaped in column-major order, the recurrent one transposed; LSTM sums its two biases, GRU stacks them.
    """
    kernel, recurrent, bias = weights
    blocks = [block.T.reshape(block.shape, order="F") for block in np.hsplit(kernel, gates)]
    turned = [block.T for block in np.hsplit(recurrent, gates)]
    halves = bias.reshape(2, -1)
    return np.hstack(blocks), np.hstack(turned), halves.sum(axis=0) if gates == 4 else halves


@pytest.mark.parametrize(("mode", "gates"), [("lstm", 4), ("gru", 3)])
@pytest.mark.parametrize("direction", ["unidirectional", "bidirectional"])
def test_cudnn_layers_of_keras_2_follow_its_recorded_rule(mode, gates, direction):
    """Recorded conventions: no Keras that runs today has these layers."""
    c = random_canonical(RNNSpec(mode, 2, 4, 3, direction=direction, dtype="float64"), 5)
    arrays = convert.keras.from_canonical(c, cudnn=True)
    equal_models(convert.keras.to_canonical(arrays), c)
    plain = list(convert.keras.from_canonical(c).values())
    values = list(arrays.values())
    for k in range(0, len(values), 3):
        for ours, ruled in zip(plain[k : k + 3], keras2_hdf5_rule(values[k : k + 3], gates), strict=True):
            np.testing.assert_array_equal(ours, ruled)
    call = random_call(c.spec, 2)
    assert worst(run_ours(convert.keras.to_canonical(arrays), *call), run_ours(c, *call)) == 0


def hostile(file, what):
    if what == "a link out of the file":
        file["layers"] = h5py.ExternalLink("/etc/hostname", "/")
    elif what == "a soft link":
        file["layers"] = h5py.SoftLink("/elsewhere")
    elif what == "an array kept in another file":
        file.create_dataset("kernel", (4,), "f4", external=[("/etc/hostname", 0, 16)])
    elif what == "an array seen in another file":
        view = h5py.VirtualLayout((4,), "f4")
        view[:] = h5py.VirtualSource("/elsewhere.h5", "kernel", (4,))
        file.create_virtual_dataset("kernel", view)
    elif what == "an array larger than the file":
        file.create_dataset("kernel", (10**13,), "f4", chunks=(1024,))


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("a link out of the file", "is a link to elsewhere"),
        ("a soft link", "is a link to elsewhere"),
        ("an array kept in another file", "keeps its data in another file"),
        ("an array seen in another file", "keeps its data in another file"),
        ("an array larger than the file", "declares more than 100 times the bytes of the file"),
    ],
)
def test_a_hostile_file_is_refused_before_it_does_harm(what, text, tmp_path):
    with h5py.File(tmp_path / "evil.h5", "w") as file:
        hostile(file, what)
    with pytest.raises(ConvertError, match=text):
        convert.keras.read_h5(tmp_path / "evil.h5")


@pytest.fixture(scope="module")
def good_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("h5") / "good.weights.h5"
    convert.keras.write_h5(path, convert.keras.from_canonical(random_canonical(RNNSpec("gru", 1, 4, 3), 1)))
    return path


def test_a_damaged_file_is_a_convert_error(good_file):
    @examples(1000)
    @given(st.binary(min_size=1, max_size=64), st.integers(0, 2**31), st.booleans())
    def check(noise, seed, cut):
        rng = np.random.default_rng(seed)
        data = bytearray(good_file.read_bytes())
        for byte in noise:
            data[int(rng.integers(len(data)))] = byte
        damaged = good_file.with_name("damaged.h5")
        damaged.write_bytes(bytes(data[: int(rng.integers(len(data)))] if cut else data))
        with contextlib.suppress(ConvertError):
            convert.keras.to_canonical(convert.keras.read_h5(damaged))

    check()


def test_a_whole_models_file_says_what_its_layers_were_made_with(tmp_path):
    rnn = keras.layers.SimpleRNN(4, activation="relu", return_sequences=True)
    inner = keras.Sequential([keras.Input((None, 3)), keras.layers.GRU(4, reset_after=False, return_sequences=True)])
    model = keras.Sequential([inner, keras.layers.Bidirectional(rnn, name="both"), keras.layers.Dense(2)])
    model.save(tmp_path / "m.h5")
    found = convert.keras.read_settings(tmp_path / "m.h5")
    assert found.pop("both") == {"activation": "relu", "go_backwards": False}
    (gru,) = found.values()
    assert gru == {
        "activation": "tanh", "recurrent_activation": "sigmoid", "reset_after": False, "go_backwards": False
    }  # fmt: skip
    model.save_weights(tmp_path / "m.weights.h5")
    assert convert.keras.read_settings(tmp_path / "m.weights.h5") == {}


def test_what_an_optimizer_keeps_is_not_read(tmp_path):
    model = keras.Sequential([keras.Input((None, 3)), keras.layers.LSTM(4)])
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    model.save(tmp_path / "m.h5")
    model.save(tmp_path / "m.keras")
    for read in (
        lambda: convert.keras.read_h5(tmp_path / "m.h5"),
        lambda: convert.keras.read_keras(tmp_path / "m.keras"),
    ):
        assert len(read()) == 3


@pytest.mark.parametrize("merge_mode", ["sum", "mul", "ave", None])
def test_a_bidirectional_layer_that_does_not_concatenate_is_refused(tmp_path, merge_mode):
    both = keras.layers.Bidirectional(keras.layers.LSTM(4), merge_mode=merge_mode)
    keras.Sequential([keras.Input((None, 3)), both]).save(tmp_path / "m.h5")
    with pytest.raises(ConvertError, match="does not concatenate"):
        convert.keras.read_settings(tmp_path / "m.h5")


@pytest.mark.parametrize(
    "text", ["{", "[" * 100_000, "3", '{"config": {"layers": 3}}', '{"config": {"layers": [3, {}]}}']
)
def test_a_damaged_configuration_is_a_convert_error_or_says_nothing(text, tmp_path):
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.attrs["model_config"] = text[:60_000]
    if (text[0] == "{" and text.endswith("}")) or text == "3":
        assert convert.keras.read_settings(tmp_path / "m.h5") == {}
    else:
        with pytest.raises(ConvertError, match="its configuration cannot be read"):
            convert.keras.read_settings(tmp_path / "m.h5")
