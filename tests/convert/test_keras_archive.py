"""Keras's `.keras` files, written by Keras itself, and such as it would never write."""

import contextlib
import io
import json
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import convert
from pycudnnrnn.errors import ConvertError
from tests.helpers.examples import examples
from tests.helpers.oracles import need, random_call, run_ours

need("keras", "h5py")
import keras  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    # keras.Variable.__array__ has not followed NumPy 2; Keras's own saving trips over it
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)
layers = keras.layers
TOLERANCE = 5e-6  # Keras computes in float32


def saved(path, model, *, seed=3):
    """Give a model of Keras's own random weights, and let Keras write it."""
    rng = np.random.default_rng(seed)
    model.set_weights([0.5 * rng.normal(size=w.shape) for w in model.get_weights()])
    model.save(path)
    return model


def rnn_of(path, **keywords):
    """Read a file as the command does: with what it says of its layers, in the order that it says."""
    settings = convert.keras.read_settings(path)
    (one,) = {json.dumps(value, sort_keys=True) for value in settings.values()}
    named = json.loads(one) | {"layers": list(settings)} | keywords
    return convert.keras.to_canonical(convert.keras.read_keras(path), **named)


def check_against_keras(c, before, after):
    """Compare our op with the part of a Keras model from a tensor to another."""
    x = random_call(c.spec, 1)[0].astype(np.float32)
    theirs = keras.ops.convert_to_numpy(keras.Model(before, after)(keras.ops.convert_to_tensor(x.swapaxes(0, 1))))
    zeros = np.zeros((c.spec.num_pseudo_layers, x.shape[1], c.spec.num_units), np.float32)
    ours = run_ours(c, x, zeros, zeros, [len(x)] * x.shape[1])[0]
    assert np.abs(ours - theirs.swapaxes(0, 1)).max() <= TOLERANCE


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_stack_beside_other_layers_is_read_in_the_models_order(kind, bidirectional, tmp_path):
    wrap = layers.Bidirectional if bidirectional else lambda layer, name: layer
    names = ["z_first", "a_second", "m_third"]
    stack = [
        wrap(getattr(layers, kind)(5, return_sequences=True, name=name if not bidirectional else None), name=name)
        for name in names
    ]
    first, last = layers.Dense(3, name="before"), layers.Dense(2, name="after")
    model = saved(tmp_path / "m.keras", keras.Sequential([keras.Input((None, 4)), first, *stack, last]))
    assert list(convert.keras.read_settings(tmp_path / "m.keras")) == names
    c = rnn_of(tmp_path / "m.keras")
    spec = c.spec
    assert (spec.num_layers, spec.num_dirs, spec.num_units, spec.input_size) == (3, 1 + bidirectional, 5, 3)
    check_against_keras(c, stack[0].input, stack[-1].output)
    arrays = convert.keras.read_keras(tmp_path / "m.keras")
    np.testing.assert_array_equal(arrays["after/vars/0"], model.layers[-1].kernel.numpy())


def test_one_recurrent_layer_beside_others_needs_no_name(tmp_path):
    rnn = layers.GRU(5, return_sequences=True)
    saved(tmp_path / "m.keras", keras.Sequential([keras.Input((None,)), layers.Embedding(9, 3), rnn, layers.Dense(2)]))
    c = convert.keras.to_canonical(convert.keras.read_keras(tmp_path / "m.keras"))
    check_against_keras(c, rnn.input, rnn.output)


def test_a_trained_functional_model_with_models_in_it_and_the_same_classes_twice(tmp_path):
    """Groups in the file are called by class and number; here the numbers and the order of names disagree."""
    inputs = keras.Input((None, 4))
    inner_rnn = layers.LSTM(5, return_sequences=True, name="inside")
    inner = keras.Sequential([keras.Input((None, 4)), inner_rnn], name="part")
    cell = layers.RNN(layers.LSTMCell(5), return_sequences=True, name="over_a_cell")
    both = layers.Bidirectional(layers.LSTM(5, return_sequences=True), name="both")
    middle = cell(inner(inputs))
    end = layers.LSTM(6, dropout=0.5, return_sequences=True, name="a_last")
    model = keras.Model(inputs, layers.Dense(1)(end(both(layers.Dense(5)(middle)))))
    model.compile("adam", "mse")
    model.fit(np.ones((2, 3, 4)), np.ones((2, 3, 1)), verbose=0)
    saved(tmp_path / "m.keras", model)
    assert list(convert.keras.read_settings(tmp_path / "m.keras")) == ["inside", "over_a_cell", "both", "a_last"]
    check_against_keras(rnn_of(tmp_path / "m.keras", layers=["inside", "over_a_cell"]), inputs, middle)
    check_against_keras(rnn_of(tmp_path / "m.keras", layers=["both"]), both.input, both.output)
    check_against_keras(rnn_of(tmp_path / "m.keras", layers=["a_last"]), end.input, end.output)


def test_layers_of_one_name_in_two_models_of_a_model_are_told_apart_by_the_models(tmp_path):
    parts = {
        name: keras.Sequential([keras.Input((None, 4)), layers.GRU(4, return_sequences=True, name="inside")], name=name)
        for name in ("left", "right")
    }
    saved(tmp_path / "m.keras", keras.Sequential([keras.Input((None, 4)), *parts.values()]))
    arrays = convert.keras.read_keras(tmp_path / "m.keras")
    for name, part in parts.items():
        c = convert.keras.to_canonical(arrays, layers=[f"{name}/inside"])
        check_against_keras(c, part.layers[0].input, part.layers[0].output)


def test_a_wrong_name_is_answered_with_the_names_of_the_file(tmp_path):
    inner = keras.Sequential([keras.Input((None, 5)), layers.GRU(5, return_sequences=True, name="inside")])
    both = layers.Bidirectional(layers.LSTM(5, return_sequences=True), name="both")
    one = layers.LSTM(5, return_sequences=True, name="one")
    model = keras.Sequential([keras.Input((None, 3)), one, inner, both, layers.Dense(2, name="dense")])
    saved(tmp_path / "m.keras", model)
    model.save(tmp_path / "m.h5")
    model.save_weights(tmp_path / "m.weights.h5")
    of_layers, of_groups = ["both", "inside", "one"], ["bidirectional", "gru", "lstm"]
    for arrays, names in [
        (convert.keras.read_keras(tmp_path / "m.keras"), of_layers),
        (convert.keras.read_h5(tmp_path / "m.h5"), of_layers),
        ({w.path: w.numpy() for w in model.weights}, of_layers),
        (convert.keras.read_h5(tmp_path / "m.weights.h5"), of_groups),
    ]:
        with pytest.raises(ConvertError) as caught:
            convert.keras.to_canonical(arrays, layers=["rnn_9"])
        found, _, listed = str(caught.value).partition("; the names here are ")
        assert found == "keras: layers: 'rnn_9': no recurrent cell is under this name"
        assert sorted(name.strip("'") for name in listed.split(", ")) == names
        for name in names:
            assert convert.keras.to_canonical(arrays, layers=[name]).spec.num_layers == 1


def test_layers_whose_names_end_alike_are_called_by_their_paths():
    cell = {"kernel": np.ones((3, 16)), "recurrent_kernel": np.ones((4, 16)), "bias": np.ones(16)}
    arrays = {f"{path}/lstm/lstm_cell/{name}": array for path in ("left", "right") for name, array in cell.items()}
    with pytest.raises(ConvertError, match="the names here are 'left/lstm', 'right/lstm'"):
        convert.keras.to_canonical(arrays, layers=["rnn"])
    with pytest.raises(ConvertError, match="'left/lstm': its cells are under a name before it, too"):
        convert.keras.to_canonical(arrays, layers=["left", "left/lstm"])
    assert convert.keras.to_canonical(arrays, layers=["right/lstm"]).spec.num_layers == 1


def test_what_a_file_does_not_tell_apart_is_left_over_and_named():
    """Before TensorFlow 2 there is no cell in a path: a Dense, or an RNN that lost its recurrent kernel."""
    cell = {"kernel": np.ones((3, 16)), "recurrent_kernel": np.ones((4, 16)), "bias": np.ones(16)}
    arrays = {f"lstm/{name}": array for name, array in cell.items()} | {"other/kernel": np.ones((4, 16))}
    with pytest.raises(ConvertError, match="'lstm', 'other': the names do not say the order of these layers"):
        convert.keras.to_canonical(arrays)
    with pytest.raises(ConvertError, match="'lstm_cell_1/recurrent_kernel': missing"):
        convert.keras.to_canonical(
            {f"lstm_cell/{k}": v for k, v in cell.items()} | {"lstm_cell_1/kernel": np.ones((4, 16))}
        )


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("keras") / "good.keras"
    saved(path, keras.Sequential([keras.Input((None, 3)), layers.GRU(4, name="gru"), layers.Dense(2)]))
    return {name: zipfile.ZipFile(path).read(name) for name in ("config.json", "model.weights.h5")}


def zipped(members, compression=zipfile.ZIP_STORED):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return data.getvalue()


def renamed_in(config, **names):
    model = json.loads(config)
    for layer, name in zip(model["config"]["layers"][-2:], names.values(), strict=True):
        layer["config"]["name"] = name
    return json.dumps(model)


def encrypted(good):
    data = bytearray(zipped([*good.items()]))
    for signature, flags in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        at = -1
        while (at := data.find(signature, at + 1)) >= 0:
            data[at + flags] |= 1
    return bytes(data)


def declares_less(good):
    data = bytearray(zipped([*good.items()], zipfile.ZIP_DEFLATED))
    at = data.rfind(b"PK\x01\x02")
    struct.pack_into("<I", data, at + 24, 100)
    return bytes(data)


def damaged_lzma(good):
    data = bytearray(zipped([*good.items()], zipfile.ZIP_LZMA))
    data[60:90] = bytes(30)
    return bytes(data)


HOSTILE = {
    "text": (lambda good: b"no zip", "File is not a zip file"),
    "nothing": (lambda good: b"", "File is not a zip file"),
    "no configuration": (lambda good: zipped([("model.weights.h5", b"")]), "no item named 'config.json'"),
    "no weights": (lambda good: zipped([("config.json", good["config.json"])]), "no item named 'model.weights.h5'"),
    "a way out": (
        lambda good: zipped([("config.json", "{}"), ("../model.weights.h5", good["model.weights.h5"])]),
        "no item named 'model.weights.h5'",
    ),
    "a bomb of weights": (
        lambda good: zipped([("config.json", "{}"), ("model.weights.h5", bytes(10**7))], zipfile.ZIP_DEFLATED),
        "it unpacks to more than 100 times its own size",
    ),
    "a bomb of configuration": (
        lambda good: zipped([*(good | {"config.json": bytes(10**7)}).items()], zipfile.ZIP_DEFLATED),
        "it unpacks to more than 100 times its own size",
    ),
    "less than there is": (declares_less, "Bad CRC-32 for file 'model.weights.h5'"),
    "a damaged stream": (damaged_lzma, "cannot be read as a .keras file: "),
    "encryption": (encrypted, "is encrypted"),
    "no JSON": (lambda good: zipped([*(good | {"config.json": b"{"}).items()]), "its configuration cannot be read"),
    "JSON without a bottom": (
        lambda good: zipped([*(good | {"config.json": b"[" * 100_000}).items()]),
        "its configuration cannot be read",
    ),
    "no HDF5": (lambda good: zipped([*(good | {"model.weights.h5": b"no"}).items()]), "cannot be read as HDF5"),
    "two layers of one name": (
        lambda good: zipped([*(good | {"config.json": renamed_in(good["config.json"], a="x", b="x/cell")}).items()]),
        "is the name of two layers",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_refused_before_it_does_harm(what, good, tmp_path):
    make, text = HOSTILE[what]
    (tmp_path / "evil.keras").write_bytes(make(good))
    with pytest.raises(ConvertError) as caught:
        convert.keras.read_keras(tmp_path / "evil.keras")
    assert text in str(caught.value)
    assert what == "two layers of one name" or str(tmp_path / "evil.keras") in str(caught.value)
    assert [file.name for file in tmp_path.iterdir()] == ["evil.keras"], "and nothing was unpacked"


def test_a_configuration_of_anything_is_read_or_refused(good, tmp_path):
    path = tmp_path / "m.keras"
    anything = st.recursive(
        st.none() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["config", "layers", "class_name", "name", "layer", "cell"]), inner)
        ),
    )

    @examples(200)
    @given(anything)
    def check(config):
        path.write_bytes(zipped([*(good | {"config.json": json.dumps(config)}).items()]))
        with contextlib.suppress(ConvertError):
            convert.keras.read_settings(path)
        with contextlib.suppress(ConvertError):
            convert.keras.read_keras(path)

    check()


def test_a_damaged_file_is_a_convert_error(good, tmp_path):
    whole = zipped([*good.items()], zipfile.ZIP_DEFLATED)
    path = tmp_path / "damaged.keras"

    @examples(300)
    @given(st.binary(min_size=1, max_size=16), st.integers(0, 2**31), st.booleans())
    def check(noise, seed, cut):
        rng = np.random.default_rng(seed)
        data = bytearray(whole)
        for byte in noise:
            data[int(rng.integers(len(data)))] = byte
        path.write_bytes(bytes(data[: int(rng.integers(len(data)))] if cut else data))
        with contextlib.suppress(ConvertError):
            convert.keras.to_canonical(convert.keras.read_keras(path), layers=[*convert.keras.read_settings(path)])

    check()
