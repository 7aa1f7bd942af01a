"""A Keras file is read without names only where its model is a plain stack: against models of Keras's own."""

import ast
import functools
import json
import zipfile

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import convert
from pycudnnrnn.errors import ConvertError
from tests.helpers.examples import examples
from tests.helpers.oracles import need, run_ours

need("keras", "h5py")
import keras  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    # keras.Variable.__array__ has not followed NumPy 2; Keras's own saving trips over it
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning",
    "ignore:Layer 'mine' looks like it has unbuilt state",
    "ignore:Layer .* was passed an input with a mask attached to it",
)
L = keras.layers
TOLERANCE = 5e-6  # Keras computes in float32
U = 4


def lstm(name, **keywords):
    return L.LSTM(U, name=name, **{"return_sequences": True} | keywords)


def saved(path, model):
    rng = np.random.default_rng(3)
    model.set_weights([0.5 * rng.normal(size=w.shape) for w in model.get_weights()])
    model.save(path)
    return convert.keras.read_keras(path) if path.suffix == ".keras" else convert.keras.read_h5(path)


def functional(build):
    """Make a functional model of what `build` does to an input."""
    x = keras.Input((6, U), name="x")
    return keras.Model(x, build(x))


def sequential(*layers, name=None):
    return keras.Sequential([keras.Input((6, U)), *layers], name=name)


def keras_says(model, x):
    found = keras.ops.convert_to_numpy(model(keras.ops.convert_to_tensor(x.swapaxes(0, 1)), training=False))
    return found.swapaxes(0, 1) if found.ndim == 3 else found


def we_say(c, x):
    zeros = np.zeros((c.spec.num_pseudo_layers, x.shape[1], U), np.float32)
    return run_ours(c, x, zeros, zeros, [len(x)] * x.shape[1])[0]


X = np.random.default_rng(1).normal(size=(6, 3, U)).astype(np.float32)
SUFFIXES = pytest.mark.parametrize("suffix", [".keras", ".h5"])

PASSING = {
    "nothing": list,
    "Dropout": lambda: [L.Dropout(0.5)],
    "SpatialDropout1D": lambda: [L.SpatialDropout1D(0.5)],
    "GaussianNoise": lambda: [L.GaussianNoise(0.5), L.GaussianDropout(0.5), L.AlphaDropout(0.5)],
    "linear": lambda: [L.Activation("linear"), L.ActivityRegularization(0.1), L.Identity()],
    "a model of Dropout": lambda: [sequential(L.Dropout(0.5))],
}


@SUFFIXES
@pytest.mark.parametrize("what", PASSING)
@pytest.mark.parametrize("way", ["sequential", "functional", "in a model", "from model to model"])
def test_a_stack_with_nothing_between_its_layers_that_changes_numbers_is_read(what, way, suffix, tmp_path):
    layers = [lstm("z"), *PASSING[what](), lstm("a"), *PASSING[what](), lstm("m")]
    if way == "in a model":
        layers = [L.Dense(U), sequential(*layers, name="part")]
    elif way == "from model to model":
        layers = [sequential(*layers[:-1], name="one"), sequential(L.Dropout(0.1), layers[-1], name="two")]

    model = functional(chained(layers)) if way == "functional" else sequential(*layers)
    arrays = saved(tmp_path / f"m{suffix}", model)
    names = None
    if way == "functional":
        with pytest.raises(ConvertError, match="has 3 recurrent layers: name those of one stack") as caught:
            convert.keras.to_canonical(arrays)
        names = listed(caught)
        assert names == ["z", "a", "m"]
    x = X if way != "in a model" else keras_says(sequential(model.layers[0]), X)
    assert np.abs(we_say(convert.keras.to_canonical(arrays, layers=names), x) - keras_says(model, X)).max() <= TOLERANCE


def listed(caught):
    """Return the names that an error lists, from both of its spellings."""
    text = str(caught.value).partition("the model's are layers=")[2]
    names = ast.literal_eval(text.partition(", or -s ")[0])
    assert text.partition(", or -s layers=")[2] == f"{','.join(names)} on the command line"
    return names


def chained(layers):
    return lambda x: functools.reduce(lambda value, layer: layer(value), layers, x)


def chain(between):
    return lambda x: lstm("two")(between(lstm("one")(x)))


def decoder(x):
    y, h, c = lstm("one", return_state=True)(x)
    return lstm("two")(y, initial_state=[h, c])


def translator(x):
    _, h, c = lstm("one", return_state=True, return_sequences=False)(x)
    return lstm("two")(x, initial_state=[h, c])


def called_twice(x):
    one = lstm("one")
    return one(one(x))


def called_on_both(x):
    one = lstm("one")
    return L.Concatenate()([one(x), one(L.Dense(U)(x))])


def in_a_model_called_twice(x):
    part = sequential(lstm("one"), name="part")
    return lstm("two")(part(part(x)))


def residual(x):
    y = lstm("one")(x)
    return L.Add()([y, lstm("two")(y)])


def residual_before(x):
    return lstm("two")(L.Add()([x, lstm("one")(x)]))


def masked_between(x):
    y = lstm("one")(x)
    return lstm("two")(y, mask=keras.ops.any(x > 0, axis=-1))


NOT_PLAIN = {
    "Dense": chain(L.Dense(U, name="d")),
    "relu": chain(L.Activation("relu", name="r")),
    "normalisation": chain(L.LayerNormalization(name="n")),
    "an operator": chain(lambda x: x * 2),
    "a part": chain(lambda x: x[:, ::2]),
    "time reversed": chain(lambda x: keras.ops.flip(x, axis=1)),
    "a mask by value": chain(L.Masking(name="m")),
    "Dropout that acts": chain(lambda x: L.Dropout(0.5, name="d")(x, training=True)),
    "a model": chain(sequential(L.Dense(U), name="part")),
    "residual": residual,
    "residual before": residual_before,
    "an output of the model": lambda x: (y := lstm("one")(x), lstm("two")(y)),
    "parallel": lambda x: L.Concatenate()([lstm("one")(x), lstm("two")(x)]),
    "RepeatVector": lambda x: lstm("two")(L.RepeatVector(3, name="r")(lstm("one", return_sequences=False)(x))),
    "another mask": masked_between,
}


@SUFFIXES
@pytest.mark.parametrize("what", NOT_PLAIN)
def test_a_model_that_is_not_plainly_a_stack_is_refused_with_the_names_to_choose_from(what, suffix, tmp_path):
    arrays = saved(tmp_path / f"m{suffix}", functional(NOT_PLAIN[what]))
    with pytest.raises(ConvertError, match=r"keras: model: has 2 recurrent layers: name those of one stack") as caught:
        convert.keras.to_canonical(arrays)
    assert listed(caught) == list(convert.keras.read_settings(tmp_path / f"m{suffix}")) == ["one", "two"]
    for names in (["one"], ["two"], ["one", "two"]):
        assert convert.keras.to_canonical(arrays, layers=names).spec.num_layers == len(names)


STATE = "expecting an initial state that is an input of the model, got"
CALLS = {
    "a constant state": (
        lambda x: lstm("one")(x, initial_state=[keras.ops.ones((1, U))] * 2),
        "one",
        f"'one': {STATE} a constant",
    ),
    "states": (decoder, "two", f"'two': {STATE} what LSTM 'one' computes"),
    "a translator": (translator, "two", f"'two': {STATE} what LSTM 'one' computes"),
    "a computed state": (
        lambda x: lstm("one")(x, initial_state=[L.Dense(U, name="d")(x[:, 0])] * 2),
        "one",
        f"'one': {STATE} what Dense 'd' computes",
    ),
    "twice": (called_twice, "one", "'one': LSTM 'one' is called 2 times"),
    "on both": (called_on_both, "one", "'one': LSTM 'one' is called 2 times"),
    "a model twice": (in_a_model_called_twice, "part/one", "'part/one': Sequential 'part' is called 2 times"),
}


@SUFFIXES
@pytest.mark.parametrize("what", CALLS)
def test_a_layer_whose_call_is_no_plain_call_is_refused_even_by_name_and_its_arrays_alone_are_read(
    what, suffix, tmp_path
):
    build, name, text = CALLS[what]
    arrays = saved(tmp_path / f"m{suffix}", functional(build))
    for names in [[name]] + [None] * (len(convert.keras.read_settings(tmp_path / f"m{suffix}")) == 1):
        with pytest.raises(ConvertError) as caught:
            convert.keras.to_canonical(arrays, layers=names)
        assert text in str(caught.value)
        assert str(caught.value).endswith("give the arrays alone: dict(arrays), or a .weights.h5 on the command line")
    assert convert.keras.to_canonical(dict(arrays), layers=[name]).spec.num_layers == 1


@SUFFIXES
def test_what_is_between_two_layers_of_a_sequential_model_makes_it_no_plain_stack(suffix, tmp_path):
    arrays = saved(tmp_path / f"m{suffix}", sequential(lstm("one"), L.Dense(U, name="d"), lstm("two"), lstm("three")))
    with pytest.raises(ConvertError, match="has 3 recurrent layers: name those of one stack") as caught:
        convert.keras.to_canonical(arrays)
    assert listed(caught) == ["one", "two", "three"]
    assert convert.keras.to_canonical(arrays, layers=["two", "three"]).spec.num_layers == 2


@SUFFIXES
def test_a_layer_in_a_model_of_another_class_makes_it_no_plain_stack(suffix, tmp_path):
    part = functional(lambda x: lstm("two")(L.Dense(U)(x)))
    arrays = saved(tmp_path / f"m{suffix}", sequential(lstm("one"), part, lstm("three")))
    with pytest.raises(ConvertError, match="has 3 recurrent layers: name those of one stack") as caught:
        convert.keras.to_canonical(arrays)
    assert listed(caught) == ["one", "two", "three"]


@SUFFIXES
def test_a_stateful_layer_is_refused_and_its_arrays_alone_are_read(suffix, tmp_path):
    x = keras.Input(batch_shape=(3, 6, U))
    arrays = saved(tmp_path / f"m{suffix}", keras.Model(x, lstm("one", stateful=True)(x)))
    for names in (None, ["one"]):
        with pytest.raises(ConvertError, match=r"'one': is stateful: it starts from .*arrays alone: dict\(arrays\)"):
            convert.keras.to_canonical(arrays, layers=names)
    assert convert.keras.to_canonical(dict(arrays)).spec.num_layers == 1


@SUFFIXES
def test_an_encoder_is_named_and_a_decoder_that_starts_from_it_is_read_from_its_arrays_alone(suffix, tmp_path):
    def build(x):
        y, *one = lstm("e1", return_state=True)(x)
        _, *two = lstm("e2", return_state=True)(y)
        return L.Dense(2)(lstm("d2")(lstm("d1")(x, initial_state=one), initial_state=two))

    arrays = saved(tmp_path / f"m{suffix}", functional(build))
    with pytest.raises(ConvertError, match="has 4 recurrent layers"):
        convert.keras.to_canonical(arrays)
    assert convert.keras.to_canonical(arrays, layers=["e1", "e2"]).spec.num_layers == 2
    with pytest.raises(ConvertError, match=f"'d1': {STATE} what LSTM 'e1' computes"):
        convert.keras.to_canonical(arrays, layers=["d1", "d2"])
    assert convert.keras.to_canonical(dict(arrays), layers=["d1", "d2"]).spec.num_layers == 2


@SUFFIXES
def test_states_and_masks_that_a_call_is_given_are_a_stacks_own(suffix, tmp_path):
    x, h, c = keras.Input((6, U)), keras.Input((U,)), keras.Input((U,))
    y = L.Masking()(x)
    y, *_ = lstm("one", return_state=True)(y, initial_state=[h, c])
    y = lstm("two")(L.Dropout(0.5)(y), initial_state=[h, c])
    model = keras.Model([x, h, c], L.Dense(2)(y))
    arrays = saved(tmp_path / f"m{suffix}", model)
    assert convert.keras.to_canonical(arrays, layers=["one", "two"]).spec.num_layers == 2


@SUFFIXES
def test_an_embedding_that_masks_and_a_bidirectional_stack_are_read(suffix, tmp_path):
    ids = keras.Input((None,))
    layers = [L.Bidirectional(lstm(f"l{k}"), name=name) for k, name in enumerate(("z", "a"))]
    middle = layers[0](L.Embedding(9, U, mask_zero=True)(ids))
    model = keras.Model(ids, L.TimeDistributed(L.Dense(2))(layers[1](middle)))
    c = convert.keras.to_canonical(saved(tmp_path / f"m{suffix}", model), layers=["z", "a"])
    assert (c.spec.num_layers, c.spec.num_dirs) == (2, 2)
    assert np.abs(we_say(c, X) - keras_says(sequential(*layers), X)).max() <= TOLERANCE


@SUFFIXES
@pytest.mark.parametrize("nested", [False, True])
def test_a_stack_behind_a_mask_computes_the_same_with_lengths(nested, suffix, tmp_path):
    layers = [lstm("one"), L.Dropout(0.5), sequential(lstm("two")) if nested else lstm("two"), lstm("three")]
    model = functional(lambda x: sequential(*layers)(L.Masking()(x)) if nested else chained(layers)(L.Masking()(x)))
    c = convert.keras.to_canonical(saved(tmp_path / f"m{suffix}", model), layers=["one", "two", "three"])
    x, lengths, zeros = X.copy(), [6, 2, 4], np.zeros((3, 3, U), np.float32)
    for b, length in enumerate(lengths):
        x[length:, b] = 0
    ours, theirs = run_ours(c, x, zeros, zeros, lengths)[0], keras_says(model, x)
    for b, length in enumerate(lengths):
        assert np.abs(ours[:length, b] - theirs[:length, b]).max() <= TOLERANCE


def test_arrays_alone_are_a_stack_whatever_was_between_the_layers(tmp_path):
    arrays = saved(tmp_path / "m.keras", sequential(lstm("l_1"), L.Dense(U), lstm("l_2")))
    assert convert.keras.to_canonical(dict(arrays)).spec.num_layers == 2


@SUFFIXES
def test_python_reads_what_the_file_says_of_its_layers(suffix, tmp_path):
    layers = [L.SimpleRNN(U, activation="relu", return_sequences=True, name=name) for name in ("z", "a")]
    model = sequential(*layers)
    arrays = saved(tmp_path / f"m{suffix}", model)
    assert np.abs(we_say(convert.keras.to_canonical(arrays), X) - keras_says(model, X)).max() <= TOLERANCE
    assert convert.keras.to_canonical(arrays, activation="tanh").spec.mode == "rnn_tanh"


@SUFFIXES
def test_a_layer_is_called_by_its_path_also_where_it_is_the_end_of_anothers(suffix, tmp_path):
    model = sequential(lstm("same"), sequential(L.Dense(3), lstm("same"), name="part"), lstm("part_same"))
    arrays = saved(tmp_path / f"m{suffix}", model)
    assert list(convert.keras.read_settings(tmp_path / f"m{suffix}")) == ["same", "part/same", "part_same"]
    for names, size in ((["same"], U), (["part/same"], 3), (["part/same", "part_same"], 3)):
        c = convert.keras.to_canonical(arrays, layers=names)
        assert (c.spec.num_layers, c.spec.input_size) == (len(names), size)


class Mine(keras.Model):
    """A model whose configuration does not say how it joins its layers."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        self.one, self.two = lstm("one"), lstm("two")

    def call(self, x):
        return self.two(2 * self.one(x))


class Peephole(keras.layers.LSTM):
    """A class of the user's: nobody knows what it computes."""


def test_a_model_and_a_layer_of_the_users_own_classes_are_not_guessed(tmp_path):
    mine = Mine(name="mine")
    mine(np.zeros((1, 2, U), "f4"))
    namesake = type("LSTM", (keras.layers.LSTM,), {"__module__": __name__})
    for model in (
        mine, sequential(Peephole(U, name="p")), functional(chain(Peephole(U, return_sequences=True))),
        sequential(namesake(U)), sequential(lstm("one"), type("Dropout", (L.Dropout,), {})(0.5), lstm("two")),
    ):  # fmt: skip
        arrays = saved(tmp_path / "m.keras", model)
        text = "does not say what this recurrent layer was made with|has 2 recurrent layers: name those of one stack"
        with pytest.raises(ConvertError, match=text) as caught:
            convert.keras.to_canonical(arrays)
        alone = "give the arrays alone: dict(arrays), or a .weights.h5 on the command line"
        assert "has 2" in str(caught.value) or alone in str(caught.value)
        names = {key.rpartition("/cell/")[0] for key in arrays}
        assert convert.keras.to_canonical(dict(arrays), layers=[min(names)]).spec.num_layers == 1


@pytest.mark.parametrize("config", ["null", "{}", "[]", "3", '{"class_name": "Sequential", "config": {"layers": []}}'])
def test_a_configuration_that_describes_nothing_is_not_the_same_as_none(tmp_path, config):
    saved(tmp_path / "m.keras", sequential(lstm("one"), L.Dense(U), lstm("two")))
    with zipfile.ZipFile(tmp_path / "m.keras") as old, zipfile.ZipFile(tmp_path / "evil.keras", "w") as new:
        new.writestr("model.weights.h5", old.read("model.weights.h5"))
        new.writestr("config.json", config)
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["one/lstm_cell/recurrent_kernel"] = np.ones((U, 4 * U))
        file.attrs["model_config"] = config
    for arrays in (convert.keras.read_keras(tmp_path / "evil.keras"), convert.keras.read_h5(tmp_path / "m.h5")):
        with pytest.raises(ConvertError, match="does not say what this recurrent layer was made with"):
            convert.keras.to_canonical(arrays)


def test_a_layer_that_shares_the_arrays_of_another_is_refused(tmp_path):
    shared = lstm("one")
    x = keras.Input((6, U))
    arrays = saved(tmp_path / "m.keras", keras.Model(x, sequential(shared, name="part")(shared(x))))
    with pytest.raises(ConvertError, match="has no arrays in this file: it may share those of another layer"):
        convert.keras.to_canonical(arrays)


@SUFFIXES
def test_layers_that_differ_are_named_with_what_differs_and_the_way_out(suffix, tmp_path):
    both = L.Bidirectional(lstm("in"), name="both")
    for layers, text in [
        ([lstm("one"), L.LSTM(U + 1, name="two")], r"one, two \(units: 4 and 5\)"),
        ([lstm("one"), both], r"one, both \(Bidirectional: None and True\)"),
        ([lstm("one"), L.SimpleRNN(U, name="two")], r"one, two \(class_name: 'LSTM' and 'SimpleRNN'\)"),
        ([lstm("one"), L.LSTM(U, use_bias=False, name="two")], r"one, two \(use_bias: True and False\)"),
        ([lstm("one"), L.LSTM(U, activation="relu", name="two")], r"one, two \(activation: 'tanh' and 'relu'\)"),
    ]:
        arrays = saved(tmp_path / f"m{suffix}", sequential(*layers))
        with pytest.raises(ConvertError, match=f"differ in more than their weights: {text}.*layers=") as caught:
            convert.keras.to_canonical(arrays)
        assert "on the command line" in str(caught.value)


def old(kind, name, nodes, **own):
    """Make a layer of a functional model as Keras 2 wrote it."""
    return {"class_name": kind, "name": name, "config": {"name": name} | own, "inbound_nodes": nodes}


def old_lstm(name, nodes, **own):
    own = {"recurrent_initializer": {}, "return_sequences": True, "stateful": False, "units": U} | own
    return old("LSTM", name, nodes, **own)


def old_file(path, layers, outputs):
    """Write a functional model as Keras 2 did."""
    own = {"name": "model", "layers": layers, "input_layers": [["x", 0, 0]], "output_layers": outputs}
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps({"class_name": "Model", "config": own, "keras_version": "2.2.4"})
        for layer in layers:
            inner = layer["config"].get("layers", [layer])
            for name in [each["config"]["name"] for each in inner if each["class_name"] == "LSTM"]:
                for kernel in ("kernel", "recurrent_kernel"):
                    file[f"model_weights/{layer['name']}/{name}/lstm_cell/{kernel}:0"] = np.ones((U, 4 * U), "f4")
    return convert.keras.read_h5(path)


IN = old("InputLayer", "x", [])


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({}, None),
        ({"initial_state": [["x", 0, 0], ["x", 0, 0]]}, None),
        ({"initial_state": [["one", 0, 1], ["one", 0, 2]]}, "what LSTM 'one' computes"),
        ({"initial_state": ["one", 0, 1]}, "what LSTM 'one' computes"),
        ({"initial_state": [[[1.0, 2.0]]]}, "a constant"),
    ],
)
def test_keras_2s_spelling_of_a_call_is_read_too(keywords, text, tmp_path):
    """By hand, as Keras 2's `Node.serialize` and `Network.get_config` wrote it: it does not install any more."""
    layers = [IN, old_lstm("one", [[["x", 0, 0, {}]]]), old_lstm("two", [[["one", 0, 0, keywords]]])]
    arrays = old_file(tmp_path / "m.h5", layers, [["two", 0, 0]])
    with pytest.raises(ConvertError, match="has 2 recurrent layers: name those of one stack"):
        convert.keras.to_canonical(arrays)
    if text is None:
        assert convert.keras.to_canonical(arrays, layers=["one", "two"]).spec.num_layers == 2
    else:
        with pytest.raises(ConvertError, match=f"'two': {STATE} {text}"):
            convert.keras.to_canonical(arrays, layers=["two"])


@pytest.mark.parametrize("states", [["one", 0, 1], ["_CONSTANT_VALUE", -1, 3.0], ["_CONSTANT_VALUE", -1, [[3.0]]]])
def test_keras_2s_states_in_the_list_of_inputs_are_seen(states, tmp_path):
    two = old_lstm("two", [[["one", 0, 0, {}], [*states, {}], [*states, {}]]])
    arrays = old_file(tmp_path / "m.h5", [IN, old_lstm("one", [[["x", 0, 0, {}]]]), two], [["two", 0, 0]])
    with pytest.raises(ConvertError, match=f"'two': {STATE}"):
        convert.keras.to_canonical(arrays, layers=["one", "two"])


def test_keras_2s_models_in_models_are_read_by_name(tmp_path):
    own = [IN, old_lstm("one", [[["x", 0, 0, {}]]])]
    part = old("Functional", "part", [[["x", 0, 0, {}]]], layers=own, input_layers=[["x", 0, 0]],
               output_layers=[["one", 0, 0]])  # fmt: skip
    arrays = old_file(tmp_path / "m.h5", [IN, part, old_lstm("two", [[["part", 0, 0, {}]]])], [["two", 0, 0]])
    assert convert.keras.to_canonical(arrays, layers=["part", "two"]).spec.num_layers == 2


def test_a_layer_that_gives_its_last_step_alone_is_not_below_another(tmp_path):
    layers = [rnn["config"] for rnn in (old_lstm("one", [], return_sequences=False), old_lstm("two", []))]
    layers = [{"class_name": "LSTM", "config": own} for own in layers]
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": {"name": "m", "layers": layers}})
        for name in ("one", "two"):
            for kernel in ("kernel", "recurrent_kernel"):
                file[f"{name}/lstm_cell/{kernel}"] = np.ones((U, 4 * U), "f4")
    with pytest.raises(ConvertError, match="has 2 recurrent layers: name those of one stack"):
        convert.keras.to_canonical(convert.keras.read_h5(tmp_path / "m.h5"))


def test_a_stack_of_a_thousand_layers_is_read_by_its_file(tmp_path):
    own = {"units": 1, "recurrent_initializer": {}, "return_sequences": True}
    layers = [{"class_name": "LSTM", "config": {"name": f"l{k}"} | own} for k in range(1024)]
    with h5py.File(tmp_path / "m.h5", "w", track_order=True) as file:
        file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": {"name": "m", "layers": layers}})
        for k in range(1024):
            for kernel in ("kernel", "recurrent_kernel"):
                file[f"l{k}/lstm_cell/{kernel}"] = np.ones((1, 4), "f4")
    assert convert.keras.to_canonical(convert.keras.read_h5(tmp_path / "m.h5")).spec.num_layers == 1024


NAMES = ["one", "two", "three"]


@examples(40)
@given(st.data())
def test_whatever_is_read_as_a_stack_gives_kerass_own_output(tmp_path_factory, data):
    """Random Sequential models; where one is read without names, its last recurrent layer's output is the stack's."""
    kinds = {"Dropout": L.Dropout, "Dense": L.Dense, "Activation": L.Activation, "model": None}
    layers = []
    for name in NAMES[: data.draw(st.integers(1, 3))]:
        for _ in range(data.draw(st.integers(0, 2))):
            kind = data.draw(st.sampled_from(["Dropout", "Dropout", "Activation", "Dense", "model"]))
            argument = {"Dropout": 0.5, "Dense": U, "Activation": data.draw(st.sampled_from(["linear", "relu"]))}
            layers.append(sequential(L.Dropout(0.5)) if kind == "model" else kinds[kind](argument[kind]))
        layers.append(lstm(name))
    model = sequential(*layers)
    arrays = saved(tmp_path_factory.mktemp("m") / "m.keras", model)
    try:
        c = convert.keras.to_canonical(arrays)
    except ConvertError as error:
        assert "name those of one stack" in str(error)  # noqa: PT017  that is one of two right answers
        return
    first = model.layers.index(model.get_layer("one"))
    given_to_stack = keras_says(sequential(*model.layers[:first]), X) if first else X
    assert np.abs(we_say(c, given_to_stack) - keras_says(model, X)).max() <= TOLERANCE
