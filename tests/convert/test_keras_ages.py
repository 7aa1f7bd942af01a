"""Files of weights as each age of Keras wrote them, and what a file does not contain: compared with Keras 3's output.

The old names are recorded from files of Keras 2.2, TensorFlow 1.15, 2.1 and 2.2 to 2.15; Keras 3 runs the weights.
"""

import h5py
import numpy as np
import pytest

from pycudnnrnn import convert
from pycudnnrnn.errors import ConvertError
from tests.helpers.oracles import KERAS_ARRAYS, equal_models, need, run_ours
from tests.helpers.pairwise import pairwise

need("keras", "h5py")
import keras  # noqa: E402

pytestmark = KERAS_ARRAYS
L = keras.layers
I, U = 5, 4
GATES = {"lstm": 4, "gru": 3, "simple_rnn": 1}
CLASSES = {"lstm": L.LSTM, "gru": L.GRU, "simple_rnn": L.SimpleRNN}
SAID = {"activation": "tanh", "recurrent_activation": "sigmoid", "go_backwards": False}
X = np.random.default_rng(9).normal(size=(2, 6, I)).astype("f4")


def paths(age, kind, layer, side):
    """Return the path of a cell; `side` is "forward", "backward" or ""."""
    n, b = f"_{layer + 1}", f"_{layer}" if layer else ""
    if age == "Keras 2.2":
        return f"bidirectional{n}/bidirectional{n}/{side}_{kind}{n}" if side else f"{kind}{n}/{kind}{n}"
    if age == "TF 2.1":
        return f"bidirectional{b}/bidirectional{b}/{side}_{kind}{b}" if side else f"{kind}{b}/{kind}{b}"
    if age == "TF 2.2":  # cells are counted: Keras also made one of the layer that it wrapped
        cell = f"{kind}_cell_{3 * layer + 7 + (side == 'backward')}"
        return f"bidirectional{b}/bidirectional{b}/{side}_{kind}{b}/{cell}" if side else f"{kind}{b}/{kind}{b}/{cell}"
    if age == "a checkpoint of TF 2":
        return f"layer_with_weights-{2 * layer}/{f'{side}_layer/' if side else ''}cell"
    return f"{kind}{b}/{side}_{kind}" if side else f"{kind}{b}"  # a graph of TF 1


def weights(kind, layers, sides, seed=1):
    """Return the weights of each cell, [layer][side], as Keras has them."""
    rng, G = np.random.default_rng(seed), GATES[kind]
    rows = [
        [((I, U * len(sides))[bool(k)], G * U), (U, G * U), (2, G * U) if kind == "gru" else (G * U,)]
        for k in range(layers) for _ in sides
    ]  # fmt: skip
    cells = [[0.4 * rng.normal(size=shape).astype("f4") for shape in shapes] for shapes in rows]
    return [cells[k * len(sides) : (k + 1) * len(sides)] for k in range(layers)]


def named(age, kind, cells, sides):
    end = "/.ATTRIBUTES/VARIABLE_VALUE" if age.startswith("a checkpoint") else "" if "graph" in age else ":0"
    return {
        f"{paths(age, kind, k, side)}/{name}{end}": array
        for k, layer in enumerate(cells) for side, cell in zip(sides, layer, strict=True)
        for name, array in zip(("kernel", "recurrent_kernel", "bias"), cell, strict=True)
    }  # fmt: skip


def keras_says(kind, cells):
    both = len(cells[0]) == 2
    layers = [CLASSES[kind](U, return_sequences=True) for _ in cells]
    layers = [L.Bidirectional(layer) if both else layer for layer in layers]
    model = keras.Sequential([keras.Input((None, I)), *layers])
    model.set_weights([array for layer in cells for cell in layer for array in cell])
    return model.predict(X, verbose=0)


def run(c, x=X, **keywords):
    return run_ours(c, x.swapaxes(0, 1), **keywords)[0].swapaxes(0, 1)


AGES = pairwise(
    ["Keras 2.2", "TF 2.1", "TF 2.2", "a checkpoint of TF 2", "a graph of TF 1"], list(GATES), [1, 2],
    [("",), ("forward", "backward")], [True, False],
)  # fmt: skip


@pytest.mark.parametrize(("age", "kind", "layers", "sides", "others"), AGES)
def test_a_file_of_weights_of_each_age_is_read_without_names(age, kind, layers, sides, others, tmp_path):
    cells = weights(kind, layers, sides)
    arrays = named(age, kind, cells, sides)
    if others:
        arrays |= {"dense/dense/kernel:0": np.ones((U, 4), "f4"), "dense/dense/bias:0": np.ones(4, "f4")}
        arrays |= {"conv1d/conv1d/kernel:0": np.ones((3, U, U), "f4")}
    if age in {"Keras 2.2", "TF 2.1", "TF 2.2"}:
        with h5py.File(tmp_path / "w.h5", "w") as file:
            for name, array in arrays.items():
                file[name] = array
        arrays = convert.keras.read(tmp_path / "w.h5")
    with pytest.warns(
        UserWarning, match="the arrays do not contain how their layers were made: read with activation"
    ) as said:
        c = convert.keras.to_canonical(arrays)
    assert (c.spec.num_layers, c.spec.num_dirs) == (layers, len(sides))
    assert np.abs(run(c) - keras_says(kind, cells)).max() < 1e-5
    (text,) = [str(warning.message).partition("read with ")[2] for warning in said]
    gates = "" if kind == "simple_rnn" else ", recurrent_activation='sigmoid'"
    assert text.startswith(f"activation='tanh'{gates}, go_backwards=False")
    assert (", layers=[" in text) == (layers > 1)
    keywords = eval(f"dict({text})")
    equal_models(convert.keras.to_canonical(arrays, **keywords), c)  # and no warning


def test_arrays_of_a_gru_without_biases_do_not_show_where_it_resets():
    kernel, recurrent, _ = weights("gru", 1, ("",))[0][0]
    arrays = {"gru/kernel": kernel, "gru/recurrent_kernel": recurrent}
    with pytest.warns(UserWarning, match="reset_after=True, go_backwards=False"):
        convert.keras.to_canonical(arrays)
    with pytest.raises(ConvertError, match="resets before the recurrent product"):
        convert.keras.to_canonical(arrays, reset_after=False, **SAID)


def test_the_caller_pairs_cells_whose_names_do_not():
    cells = weights("lstm", 2, ("", ""))
    arrays = {}
    for k, layer in enumerate(cells):
        for side, cell in zip("xy", layer, strict=True):
            arrays |= {f"{side}{k}/{n}": a for n, a in zip(("kernel", "recurrent_kernel", "bias"), cell, strict=True)}
    c = convert.keras.to_canonical(arrays, layers=[("x0", "y0"), ("x1", "y1")], **SAID)
    assert np.abs(run(c) - keras_says("lstm", cells)).max() < 1e-5


@pytest.mark.parametrize("version", ["2.2.0", "2.2.4-tf", b"1.2.2", "2.3.0", "2.15.0", "3.4.1", "new"])
@pytest.mark.parametrize("kind", ["lstm", "gru", "simple_rnn", "CuDNN"])
def test_weights_alone_of_keras_before_2_3_are_refused_unless_their_gates_are_said_to_be_sigmoid(
    kind, version, tmp_path
):
    """Chars2vec: its default gates were hard_sigmoid. SimpleRNN and the CuDNN layers have no such gates."""
    name = "lstm" if kind == "CuDNN" else kind
    cells = weights(name, 1, ("",))
    with h5py.File(tmp_path / "w.h5", "w") as file:
        file.attrs["keras_version"] = version
        for key, array in named("Keras 2.2", name, cells, ("",)).items():
            file[key] = np.tile(array, 2) if kind == "CuDNN" and "bias" in key else array
    arrays = convert.keras.read(tmp_path / "w.h5")
    if version in {"2.2.0", "2.2.4-tf", b"1.2.2"} and kind in {"lstm", "gru"}:
        with pytest.raises(ConvertError, match=r"recurrent_activation: the file is of Keras .*, whose LSTM and GRU"):
            convert.keras.to_canonical(arrays)
    else:
        with pytest.warns(UserWarning, match="do not contain how"):
            convert.keras.to_canonical(arrays)
    c = convert.keras.to_canonical(arrays, **SAID)
    assert kind == "CuDNN" or np.abs(run(c) - keras_says(kind, cells)).max() < 1e-5


def test_the_names_of_keras_1_are_refused_as_such():
    arrays = {f"model_weights/lstm_1/lstm_1_{name}_{gate}:0": np.ones((U, U)) for gate in "icfo" for name in "WUb"}
    with pytest.raises(ConvertError, match="the names of Keras 1, which has one array per gate"):
        convert.keras.to_canonical(arrays)


def saved(path, *layers, shape=(None, I)):
    model = keras.Sequential([keras.Input(shape), *layers])
    rng = np.random.default_rng(3)
    model.set_weights([0.5 * rng.normal(size=w.shape) for w in model.get_weights()])
    (model.save_weights if path.name.endswith(".weights.h5") else model.save)(path)
    return model, convert.keras.read(path)


def both(mode, **keywords):
    return L.Bidirectional(L.GRU(U, return_sequences=True), merge_mode=mode, **keywords)


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize("mode", ["sum", "ave", "mul"])
def test_a_merge_of_the_directions_is_the_callers_and_a_warning_says_so(mode, suffix, tmp_path):
    model, arrays = saved(tmp_path / f"m{suffix}", both("concat"), both(mode, name="top"))
    with pytest.warns(UserWarning, match=rf"'top' has merge_mode '{mode}': the op returns its directions side by side"):
        c = convert.keras.to_canonical(arrays)
    fw, bw = np.split(run(c), 2, axis=2)
    theirs = {"sum": fw + bw, "ave": (fw + bw) / 2, "mul": fw * bw}[mode]
    assert np.abs(theirs - model.predict(X, verbose=0)).max() < 1e-5
    _, arrays = saved(tmp_path / f"m{suffix}", both(mode, name="low"), both("concat", name="top"))
    with pytest.raises(ConvertError, match=r"'low': has merge_mode .*, so the layer above gets another input"):
        convert.keras.to_canonical(arrays)
    assert convert.keras.to_canonical(arrays, layers=["top"]).spec.num_dirs == 2


@pytest.mark.filterwarnings("ignore:the arrays do not contain how")
@pytest.mark.parametrize("suffix", [".keras", ".h5", ".weights.h5"])
def test_stacked_rnn_cells_are_layers_in_their_order(suffix, tmp_path):
    """tensorflow#29622."""
    cells = [L.LSTMCell(U, name=name) for name in ("b", "a", "c")]
    model, arrays = saved(tmp_path / f"m{suffix}", L.RNN(L.StackedRNNCells(cells), return_sequences=True, name="r"))
    c = convert.keras.to_canonical(arrays)
    assert c.spec.num_layers == 3
    assert np.abs(run(c) - model.predict(X, verbose=0)).max() < 1e-5
    _, arrays = saved(tmp_path / "n.keras", L.RNN(L.StackedRNNCells([L.LSTMCell(U), L.LSTMCell(7)]), name="r"))
    with pytest.raises(ConvertError, match=r"how this recurrent layer computes is unknown.*: RNN 'r'"):
        convert.keras.to_canonical(arrays)


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_time_distributed_layer_is_its_layer_and_a_warning_says_so(suffix, tmp_path):
    layer = L.TimeDistributed(L.LSTM(U, return_sequences=True), name="t")
    model, arrays = saved(tmp_path / f"m{suffix}", layer, shape=(2, 6, I))
    with pytest.warns(
        UserWarning, match="'t' is TimeDistributed: to the op, each of its outer steps is a sequence of its"
    ):
        c = convert.keras.to_canonical(arrays)
    x = np.stack([X, X[::-1]])
    theirs = model.predict(x, verbose=0)
    assert np.abs(run(c, x.reshape(4, 6, I)) - theirs.reshape(4, 6, U)).max() < 1e-5


def test_a_model_that_masks_needs_lengths_and_a_warning_says_so(tmp_path):
    layers = [L.Embedding(9, I, mask_zero=True, name="words"), L.LSTM(U, return_sequences=True)]
    model, arrays = saved(tmp_path / "m.keras", *layers, shape=(None,))
    text = (
        r"the model masks steps \('words'\): pass sequence_lengths to the op, .*; a model of ONNX .* sequence_lens=True"
    )
    with pytest.warns(UserWarning, match=text):
        c = convert.keras.to_canonical(arrays)
    tokens, lengths = np.array([[3, 4, 5, 6], [7, 8, 0, 0]]), [4, 2]
    theirs, x = model.predict(tokens, verbose=0), keras.ops.convert_to_numpy(model.layers[0](tokens))
    ours = run(c, x, lengths=lengths)
    for b, length in enumerate(lengths):
        assert np.abs(ours[b, :length] - theirs[b, :length]).max() < 1e-5


@pytest.mark.parametrize(("written", "name"), [("m.keras", "zip.h5"), ("m.h5", "hdf5.keras")])
def test_the_content_of_a_file_decides_how_it_is_read_and_not_its_name(written, name, tmp_path):
    _, arrays = saved(tmp_path / written, L.LSTM(U))
    again = convert.keras.read((tmp_path / written).rename(tmp_path / name))
    assert (list(again), again.config) == (list(arrays), arrays.config)


def test_the_numbers_of_a_savedmodel_are_answered_with_what_has_the_names():
    arrays = {f"variables/{k}/.ATTRIBUTES/VARIABLE_VALUE": np.ones((3, 16)) for k in range(2)}
    for read in (convert.keras.to_canonical, convert.tensorflow.to_canonical):
        with pytest.raises(ConvertError, match=r"for v in tensorflow\.saved_model\.load\(folder\)\.variables"):
            read(arrays)
