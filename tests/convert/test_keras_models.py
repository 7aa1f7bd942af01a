"""Which layers of a Keras model become one RNN: against models that Keras itself builds, saves and runs.

Everything is saved as `.keras` and as the older `.h5` in turns. Keras 2 does not install any more: its spelling of a
configuration is written by hand, as its `Node.serialize` and `Network.get_config` wrote it.
"""

import contextlib
import itertools
import json
import re

import h5py
import numpy as np
import pytest

from pycudnnrnn import convert
from pycudnnrnn._checks import Assumption
from pycudnnrnn.convert.keras.used import stacks
from pycudnnrnn.errors import ConvertError
from tests.helpers.oracles import KERAS_ARRAYS, equal_models, need, run_ours
from tests.helpers.pairwise import pairwise

need("keras", "h5py")
import keras  # noqa: E402

pytestmark = [KERAS_ARRAYS, pytest.mark.filterwarnings("ignore:the arrays do not contain how their layers were made")]
L = keras.layers
TOLERANCE = 5e-6
"""Keras computes in float32."""

U = 4
X = np.random.default_rng(1).normal(size=(6, 3, U)).astype(np.float32)
TO_CANONICAL = convert.keras.to_canonical
ALONE = "give the arrays alone: dict(arrays), or a .weights.h5 on the command line"


def in_turns(rows):
    """Parametrize rows (the keys of a table) with the two kinds of files in turns."""
    return pytest.mark.parametrize(
        ("what", "suffix"), list(zip(rows, itertools.cycle([".keras", ".h5"]), strict=False))
    )


def lstm(name, **keywords):
    return L.LSTM(U, name=name, **{"return_sequences": True} | keywords)


def saved(path, model):
    """Give a model random weights, let Keras write it, and read the file."""
    rng = np.random.default_rng(3)
    model.set_weights([0.5 * rng.normal(size=w.shape) for w in model.get_weights()])
    (model.save_weights if path.name.endswith(".weights.h5") else model.save)(path)
    return convert.keras.read(path)


def functional(build):
    """Make a functional model of what `build` does to an input."""
    x = keras.Input((6, U), name="x")
    return keras.Model(x, build(x))


def sequential(*layers, name=None):
    return keras.Sequential([keras.Input((None, U)), *layers], name=name)


def listed(arrays):
    """Return the names that are to be chosen from."""
    return [stack.keywords["layers"][0] for stack in stacks(arrays)]


def keras_says(model, x):
    output = keras.ops.convert_to_numpy(model(keras.ops.convert_to_tensor(x.swapaxes(0, 1)), training=False))
    return output.swapaxes(0, 1) if output.ndim == 3 else output


def differs(c, model, x=X):
    return np.abs(run_ours(c, x)[0] - keras_says(model, x)).max()


OF_KERAS = pairwise(["LSTM", "GRU", "SimpleRNN"], [True, False], [".weights.h5", ".h5", ".keras"])


@pytest.mark.parametrize(("kind", "use_bias", "suffix"), OF_KERAS)
def test_two_bidirectional_layers_are_read_from_each_kind_of_file(kind, use_bias, suffix, tmp_path):
    names = ["b_first", "a_second"]
    inner = [getattr(L, kind)(5, return_sequences=True, use_bias=use_bias, name=f"of_{name}") for name in names]
    layers = [L.Bidirectional(one, name=name) for one, name in zip(inner, names, strict=True)]
    model = sequential(layers[0], L.Dropout(0.5), layers[1], L.Dense(2))
    arrays = saved(tmp_path / f"m{suffix}", model)
    if suffix == ".weights.h5":  # its groups are numbered, and have no names
        names = ["bidirectional", "bidirectional_1"]
    c = TO_CANONICAL(arrays, layers=names)
    assert (c.spec.num_layers, c.spec.num_dirs, c.spec.num_units, c.spec.input_size) == (2, 2, 5, U)
    assert c.spec.bias_mode == (("double" if kind == "GRU" else "single_input") if use_bias else "none")
    assert differs(c, keras.Model(model.inputs, model.layers[-2].output)) <= TOLERANCE
    equal_models(TO_CANONICAL(arrays), c)
    either_way = "|".join(", ".join(map(repr, order)) for order in (names, names[::-1]))
    with pytest.raises(ConvertError, match=f"no recurrent cell is under this name; the names here are ({either_way})$"):
        TO_CANONICAL(arrays, layers=["rnn_9"])
    if suffix == ".keras":
        variables = {w.path: w.numpy() for w in model.weights}
        equal_models(TO_CANONICAL(variables, layers=names), c)
        with pytest.raises(ConvertError, match="the names do not contain the order of these layers: give `layers`"):
            TO_CANONICAL(variables)


def test_a_trained_functional_model_with_models_in_it_and_the_same_classes_twice(tmp_path):
    """Groups in a .keras file are called by class and number; here the numbers and the order of names disagree."""
    inputs = keras.Input((None, U))
    cell = L.RNN(L.LSTMCell(U), return_sequences=True, name="over_a_cell")
    both = L.Bidirectional(lstm("l"), name="both")
    middle = cell(sequential(lstm("inside"), name="part")(inputs))
    end = L.LSTM(6, dropout=0.5, return_sequences=True, name="a_last")(both(L.Dense(U)(middle)))
    model = keras.Model(inputs, L.Dense(1)(end))
    model.compile("adam", "mse")
    model.fit(np.ones((2, 3, U)), np.ones((2, 3, 1)), verbose=0)
    for suffix in (".keras", ".h5"):
        arrays = saved(tmp_path / f"m{suffix}", model)
        assert len(arrays) == len(model.weights), "and no optimizer's state"
        assert listed(arrays) == ["inside", "over_a_cell", "both", "a_last"]
        c = TO_CANONICAL(arrays, layers=["inside", "over_a_cell"])
        assert differs(c, keras.Model(inputs, middle)) <= TOLERANCE
        assert differs(TO_CANONICAL(arrays, layers=["both"]), keras.Model(both.input, both.output)) <= TOLERANCE
        assert TO_CANONICAL(arrays, layers=["a_last"]).spec.num_units == 6


NOT_PLAIN = {
    "Dense": lambda: sequential(lstm("one"), L.Dense(U), lstm("two")),
    "relu": lambda: sequential(lstm("one"), L.Activation("relu"), lstm("two")),
    "a model of another class": lambda: sequential(lstm("one"), functional(lambda x: lstm("two")(L.Dense(U)(x)))),
    "time reversed": lambda: functional(lambda x: lstm("two")(keras.ops.flip(lstm("one")(x), axis=1))),
}


@in_turns(NOT_PLAIN)
def test_a_model_that_is_not_plainly_a_stack_is_refused_with_the_names_to_choose_from(what, suffix, tmp_path):
    arrays = saved(tmp_path / f"m{suffix}", NOT_PLAIN[what]())
    with pytest.raises(ConvertError, match=r"keras: model: has 2 recurrent layers: name those of one stack") as caught:
        TO_CANONICAL(arrays)
    assert str(caught.value).endswith("the model's are layers=['one', 'two'], or -s layers=one,two on the command line")
    for names in (["one"], ["two"], ["one", "two"]):
        assert TO_CANONICAL(arrays, layers=names).spec.num_layers == len(names)
    assert TO_CANONICAL(dict(arrays), layers=["one", "two"]).spec.num_layers == 2


def decoder(x):
    y, h, c = lstm("one", return_state=True)(x)
    return lstm("two")(y, initial_state=[h, c])


def called_twice(x):
    one = lstm("one")
    return one(one(x))


def stateful(_):
    x = keras.Input(batch_shape=(3, 6, U))
    return keras.Model(x, lstm("one", stateful=True)(x))


CALLS = {
    "a constant state": (lambda x: lstm("one")(x, initial_state=[keras.ops.ones((1, U))] * 2), "one"),
    "a state of another layer": (decoder, "two"),
    "twice": (called_twice, "one"),
    "a model within, twice": (lambda x: (part := sequential(lstm("one"), name="part"))(part(x)), "part/one"),
    "stateful": (stateful, "one"),
}


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_model_of_parallel_layers_is_read_as_a_stack_with_a_warning(suffix, tmp_path):
    x = keras.Input((6, U))
    part = keras.Model(x, L.Add()([lstm("one")(x), lstm("two")(x)]), name="part")
    arrays = saved(tmp_path / f"m{suffix}", sequential(part))
    with pytest.warns(Assumption, match="the layers of 'part' are read as one stack, in this order: one, two"):
        c = TO_CANONICAL(arrays, layers=["part"])
    equal_models(c, TO_CANONICAL(arrays, layers=["one", "two"]))


@in_turns(CALLS)
def test_a_layer_whose_call_is_no_plain_call_is_read_with_a_warning(what, suffix, tmp_path):
    build, name = CALLS[what]
    arrays = saved(tmp_path / f"m{suffix}", build(None) if build is stateful else functional(build))
    layers = None if what != "a state of another layer" else [name]
    with pytest.warns(
        Assumption, match=f"^{name!r} is stateful, called more than once, or called with initial states: "
    ):
        c = TO_CANONICAL(arrays, layers=layers)
    equal_models(c, TO_CANONICAL(dict(arrays), layers=[name.rpartition("/")[2]]))


STATES = pytest.warns(Assumption, match="called with initial states")


# --- names, settings, and what a file does not have ------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_layer_is_called_by_its_path_also_where_it_is_the_end_of_anothers(suffix, tmp_path):
    part = sequential(L.Dense(3), lstm("same"), name="part")
    arrays = saved(tmp_path / f"m{suffix}", sequential(lstm("same"), part, lstm("part_same")))
    assert listed(arrays) == ["same", "part/same", "part_same"]
    for names, size in ((["same"], U), (["part/same"], 3), (["/part/"], 3), (["part/same", "part_same"], 3)):
        c = TO_CANONICAL(arrays, layers=names)
        assert (c.spec.num_layers, c.spec.input_size) == (len(names), size)
    with pytest.raises(ConvertError, match="'part/same': its layers are under a name before it, too"):
        TO_CANONICAL(arrays, layers=["part", "part/same"])


def test_arrays_alone_of_two_sizes_are_answered_with_the_layers_to_choose_from(tmp_path):
    arrays = saved(tmp_path / "m.weights.h5", sequential(lstm("one"), L.Dense(7), L.LSTM(6, name="two")))
    with pytest.raises(ConvertError, match=r"without `layers`, all .* choose from 'lstm', 'lstm_1' with layers"):
        TO_CANONICAL(arrays)
    assert [TO_CANONICAL(arrays, layers=[name]).spec.num_units for name in ("lstm", "lstm_1")] == [4, 6]


class Mine(keras.Model):
    """A model whose configuration does not say how it joins its layers."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        self.one, self.two = lstm("one"), lstm("two")

    def call(self, x):
        return self.two(2 * self.one(x))


@pytest.mark.filterwarnings("ignore:Layer 'mine' looks like it has unbuilt state")
def test_a_model_and_a_layer_of_the_users_own_classes_are_not_guessed(tmp_path):
    mine = Mine(name="mine")
    mine(np.zeros((1, 2, U), "f4"))
    mine_too = type("LSTM", (L.LSTM,), {"__module__": __name__})(U)
    for model in (mine, sequential(mine_too)):
        arrays = saved(tmp_path / "m.keras", model)
        text = f"how .* computes is unknown.*: (Mine|LSTM 'lstm.*').* .*{re.escape(ALONE)}|has 2 recurrent layers: name"
        name = min(key.rpartition("/cell/")[0] for key in arrays)
        for layers in (None, [name]):
            with pytest.raises(ConvertError, match=text):
                TO_CANONICAL(arrays, layers=layers)
        assert TO_CANONICAL(dict(arrays), layers=[name]).spec.num_layers == 1


def test_layers_that_differ_are_named_with_what_differs_and_the_way_out(tmp_path):
    both = L.Bidirectional(lstm("in"), name="both")
    for layers, text in [
        ([lstm("one"), L.LSTM(U + 1, name="two")], r"one, two \(units: 4 and 5\)"),
        ([lstm("one"), both], r"one, both \(Bidirectional: None and True\)"),
        ([lstm("one"), L.LSTM(U, activation="relu", name="two")], r"one, two \(activation: 'tanh' and 'relu'\)"),
    ]:
        arrays = saved(tmp_path / "m.keras", sequential(*layers))
        with pytest.raises(ConvertError, match=f"differ in more than their weights: {text}.*-s layers=(two|both) on "):
            TO_CANONICAL(arrays)


def test_a_layer_that_shares_the_arrays_of_another_is_refused(tmp_path):
    shared = lstm("one")
    x = keras.Input((6, U))
    arrays = saved(tmp_path / "m.keras", keras.Model(x, sequential(shared, name="part")(shared(x))))
    with pytest.raises(ConvertError, match="has no arrays in this file: it may share those of another layer"):
        TO_CANONICAL(arrays)


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_the_settings_of_a_layer_come_from_its_file_unless_they_are_given(suffix, tmp_path):
    model = sequential(*(L.SimpleRNN(U, activation="relu", return_sequences=True, name=name) for name in ("z", "a")))
    arrays = saved(tmp_path / f"m{suffix}", model)
    assert differs(TO_CANONICAL(arrays), model) <= TOLERANCE
    assert TO_CANONICAL(arrays, activation="tanh").spec.mode == "rnn_tanh"
    gru = sequential(L.GRU(U, reset_after=False, name="g"))
    with pytest.raises(ConvertError, match="resets before the recurrent product"):
        TO_CANONICAL(saved(tmp_path / f"m{suffix}", gru))


def test_a_bidirectional_layer_has_two_equal_layers_that_it_concatenates(tmp_path):
    other, equal = L.GRU(U, go_backwards=True, reset_after=False), L.GRU(U, go_backwards=True)
    both = sequential(L.Bidirectional(L.GRU(U), backward_layer=other, name="both"))
    with pytest.raises(ConvertError, match=r"backward layer of 'both': expecting .* got .*'reset_after': "):
        TO_CANONICAL(saved(tmp_path / "m.keras", both))
    both = sequential(L.Bidirectional(L.GRU(U), backward_layer=equal))
    assert TO_CANONICAL(saved(tmp_path / "m.keras", both)).spec.num_dirs == 2


# --- Keras 2 ----------------------------------------------------------------------------------------------------------


def old(kind, name, nodes, **arguments):
    """Make a layer of a functional model as Keras 2 wrote it."""
    return {"class_name": kind, "name": name, "config": {"name": name} | arguments, "inbound_nodes": nodes}


def old_lstm(name, nodes, **arguments):
    arguments = {"return_sequences": True, "stateful": False, "units": U} | arguments
    return old("LSTM", name, nodes, **arguments)


def old_file(path, layers, kind="Model"):
    """Write a model as Keras 2 did: below the outermost layer it names only the innermost."""
    inner_config = layers if kind == "Sequential" else {"name": "model", "layers": layers}  # a list before Keras 2.2.3
    config = {"class_name": kind, "config": inner_config, "keras_version": "2.2.4"}
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(config)
        for layer in layers:
            inner = layer["config"].get("layers", [layer])
            for name in [each["config"]["name"] for each in inner if each["class_name"] in {"LSTM", "GRU"}]:
                for kernel in ("kernel", "recurrent_kernel"):
                    file[f"model_weights/{layer['config']['name']}/{name}/lstm_cell/{kernel}:0"] = np.ones((U, 4 * U))
    return convert.keras.read(path)


IN, ONE = old("InputLayer", "x", []), old_lstm("one", [[["x", 0, 0, {}]]])


@pytest.mark.parametrize("states", [[["x", 0, 0], ["x", 0, 0]], [["one", 0, 1], ["one", 0, 2]], [[[1.0, 2.0]]], None])
def test_keras_2s_spelling_of_a_call_is_read_too(states, tmp_path):
    call = ["one", 0, 0, {"initial_state": states}]
    arrays = old_file(tmp_path / "m.h5", [IN, ONE, old_lstm("two", [[call]])])
    with contextlib.nullcontext() if states is None else STATES:
        assert TO_CANONICAL(arrays, layers=["one", "two"]).spec.num_layers == 2
    arrays = old_file(tmp_path / "m.h5", [IN, ONE, old_lstm("two", [[["one", 0, 0, {}], ["x", 0, 0, {}]]])])
    with STATES:
        TO_CANONICAL(arrays, layers=["two"])


def test_keras_2s_models_in_models_and_its_grus_are_read_by_what_they_meant(tmp_path):
    part = old("Functional", "part", [[["x", 0, 0, {}]]], layers=[IN, ONE])
    arrays = old_file(tmp_path / "m.h5", [IN, part, old_lstm("two", [[["part", 0, 0, {}]]])])
    assert TO_CANONICAL(arrays, layers=["part", "two"]).spec.num_layers == 2
    gru = {"class_name": "GRU", "module": "tf_keras.layers", "config": {"name": "g", "units": U}}
    arrays = old_file(tmp_path / "m.h5", [gru], "Sequential")
    arrays["model_weights/g/g/lstm_cell/kernel:0"] = np.ones((U, 3 * U))
    arrays["model_weights/g/g/lstm_cell/recurrent_kernel:0"] = np.ones((U, 3 * U))
    with pytest.raises(ConvertError, match="reset_after: the GRU resets before the recurrent product"):
        TO_CANONICAL(arrays)  # before there was a choice
