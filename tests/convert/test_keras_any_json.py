"""A Keras file's configuration is anybody's JSON: it is read, or it is a `ConvertError`."""

import contextlib
import copy
import io
import json
import zipfile

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pycudnnrnn import convert
from pycudnnrnn.errors import ConvertError
from tests.helpers.examples import examples
from tests.helpers.oracles import need

need("h5py")
import h5py  # noqa: E402

KERNELS = ["one", "two", "part/inside", "both/forward_layer", "both/backward_layer", "over"]


def layer(kind, name, **own):
    return {"class_name": kind, "config": {"name": name} | own}


def rnn(name, **own):
    own = {"units": 2, "recurrent_initializer": {}, "return_sequences": True, "activation": "tanh"} | own
    return layer("LSTM", name, **own)


def tensor(name, index=0):
    return {"class_name": "__keras_tensor__", "config": {"keras_history": [name, 0, index]}}


def called(entry, *read, **keywords):
    """Give a layer a call, in Keras 3's spelling."""
    return entry | {"name": entry["config"]["name"], "inbound_nodes": [{"args": [*read], "kwargs": keywords}]}


def model_of(name, *layers, first="x", last="two"):
    own = {"name": name, "layers": list(layers), "input_layers": [["x", 0, 0]], "output_layers": [[last, 0, 0]]}
    return {"class_name": "Functional", "module": "keras", "config": own}


X = layer("InputLayer", "x") | {"inbound_nodes": []}
PART = model_of("part", X, called(rnn("inside"), tensor("x")), last="inside")
BOTH = layer("Bidirectional", "both", layer=rnn("f"), backward_layer=rnn("b", go_backwards=True), merge_mode="concat")
CONFIGS = [
    model_of(
        "m", X, called(rnn("one"), tensor("x"), training=False, mask=tensor("x")), called(PART, tensor("one")),
        called(layer("Dropout", "drop"), tensor("part"), training=False),
        called(rnn("two"), tensor("drop"), initial_state=[tensor("x"), tensor("x")]),
    ),
    model_of("m", X, rnn("one") | {"inbound_nodes": [[["x", 0, 0, {"mask": ["x", 0, 0]}]]]},
             rnn("two") | {"inbound_nodes": [[["one", 0, 0, {}], ["x", 0, 0, {"training": False}]]]}),
    layer("Sequential", "m", layers=[BOTH, layer("Activation", "linear", activation="linear"), rnn("one")]),
    layer("Sequential", "m", layers=[layer("RNN", "over", cell=layer("GRUCell", "c", recurrent_initializer={}))]),
    {"class_name": "Sequential", "config": [rnn("one"), rnn("two")]},
]  # fmt: skip

WORDS = ["one", "two", "x", "drop", "part", "both", "LSTM", "Sequential", "Dropout", "Bidirectional", "RNN", "a/b", ""]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from([*WORDS, "\ud800"]) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*WORDS, "config", "class_name", "args", "kwargs", "name"]), inner)
        | st.tuples(st.sampled_from(WORDS), st.integers(-2, 3), inner).map(list)
    ),
    max_leaves=8,
)


def places(value, path=()):
    """Return the path of every value in JSON."""
    found = [path]
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        found += places(item, (*path, key))
    return found


def replaced(config, path, value):
    if not path:
        return value
    config = copy.deepcopy(config)
    at = config
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return config


@st.composite
def configs(draw):
    """Draw a configuration with up to three values of it replaced by anything."""
    config = draw(st.sampled_from(CONFIGS))
    for _ in range(draw(st.integers(1, 3))):
        config = replaced(config, draw(st.sampled_from(places(config))), draw(ANYTHING))
    return config


def weights_of(keys):
    data = io.BytesIO()
    with h5py.File(data, "w") as file:
        for key in keys:
            for k, shape in enumerate([(2, 8), (2, 8), (8,)]):
                file[f"{key}/cell/vars/{k}"] = np.ones(shape, "f4")
    return data.getvalue()


GROUPS = [
    "lstm",
    "lstm_1",
    "functional/layers/lstm",
    "bidirectional/forward_layer",
    "bidirectional/backward_layer",
    "rnn",
]
WEIGHTS = weights_of([*KERNELS, *(f"layers/{group}" for group in GROUPS)])


def check(folder, text):
    with zipfile.ZipFile(folder / "m.keras", "w") as archive:
        archive.writestr("config.json", text)
        archive.writestr("model.weights.h5", WEIGHTS)
    with h5py.File(io.BytesIO(WEIGHTS), "r") as weights, h5py.File(folder / "m.h5", "w") as file:
        for name in weights:
            weights.copy(name, file)
        file.attrs["model_config"] = text
    for name, read in (("m.keras", convert.keras.read_keras), ("m.h5", convert.keras.read_h5)):
        with contextlib.suppress(ConvertError):
            convert.keras.read_settings(folder / name)
        with contextlib.suppress(ConvertError):
            arrays = read(folder / name)
            for layers in (None, ["one"], ["one", "two"], ["part", "two"], ["both", "one"], ["inside"], ["over"]):
                with contextlib.suppress(ConvertError):
                    convert.keras.to_canonical(arrays, layers=layers)


@examples(150)
@given(configs())
@example([])
@example({"class_name": ["LSTM"], "config": CONFIGS[0]["config"]})
@example({"class_name": "Sequential", "config": [rnn("one") | {"class_name": ["GRU"]}]})
@example(replaced(CONFIGS[0], ("config", "layers", 1, "inbound_nodes"), 5))
@example(replaced(CONFIGS[0], ("config", "layers", 1, "config", "name"), ["one"]))
def test_any_json_is_read_or_is_a_convert_error(tmp_path_factory, config):
    check(tmp_path_factory.getbasetemp(), json.dumps(config))


@pytest.mark.parametrize("depth", [200, 300, 900, 990, 5_000])
@pytest.mark.parametrize("at", [("config", "activation"), ("inbound_nodes",), ("config", "name")])
def test_json_without_a_bottom_is_read_or_is_a_convert_error(tmp_path, depth, at):
    text = json.dumps(replaced(CONFIGS[0], ("config", "layers", 1, *at), "HERE")).replace(
        '"HERE"', "[" * depth + "]" * depth
    )
    check(tmp_path, text)
    if depth == 200:
        assert convert.keras.read_settings(tmp_path / "m.h5")
    else:
        with pytest.raises(ConvertError, match="its configuration cannot be read"):
            convert.keras.read_settings(tmp_path / "m.keras")


@pytest.mark.parametrize("text", ["1" * 5_000, '{"class_name": NaN}', "\ud800", '"' + "x" * 10_000 + '"', "", "null"])
def test_text_that_is_hardly_json_is_read_or_is_a_convert_error(tmp_path, text):
    with contextlib.suppress(UnicodeEncodeError):
        check(tmp_path, text)
