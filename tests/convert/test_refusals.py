"""What a converter cannot read, and what a framework cannot hold, is refused with the name of what is wrong."""

import numpy as np
import pytest

from pycudnnrnn import RNNSpec, convert, layers, ops
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.interop import torch as interop_torch
from tests.helpers.oracles import FRAMEWORKS, KERAS_ARRAYS, equal_models, need, random_canonical, written

pytestmark = [KERAS_ARRAYS, pytest.mark.filterwarnings("ignore:the arrays do not contain how their layers were made")]


def f4(*shape):
    return np.ones(shape, "f4")


def torch(mode="lstm", **changes):
    return written("pytorch", mode, 2, "bidirectional", **changes)


def keras(**changes):
    """One GRU under the names of its weights alone."""
    named = {name.rpartition("/")[2]: array for name, array in written("keras", "gru").items()}
    return {name: array for name, array in (named | changes).items() if array is not None}


def two_of(framework, **changes):
    return written(framework, "lstm", 2, **changes)


TORCHS_CELL = {"a.weight_ih": f4(16, 3), "a.weight_hh": f4(16, 4)}
TWO_CELLS = TORCHS_CELL | {key.replace("a.", "b."): value for key, value in TORCHS_CELL.items()}
MODULE = {"m.weight_ih_l0": f4(16, 3), "m.weight_hh_l0": f4(16, 4)}
BACKWARD = {key + "_reverse": value for key, value in MODULE.items()}
CELL = "rnn/multi_rnn_cell/cell_1/cudnn_compatible_lstm_cell/"
OWN_LSTM = {name.replace("cudnn_compatible_", ""): array for name, array in written("tensorflow").items()}
APART = "rnn/multi_rnn_cell/cell_0", "bidirectional_rnn/fw/multi_rnn_cell/cell_1"
TFS_GRU = {"rnn/gru_cell/gates/kernel": f4(7, 8), "rnn/gru_cell/candidate/kernel": f4(7, 4)}
READ = {
    "pytorch": [
        (torch(bias_hh_l1=None), {}, "pytorch: 'bias_hh_l1': missing"),
        (torch(weight_ih_l1=f4(16, 4)), {}, "'weight_ih_l1': expecting shape (16, 8), got (16, 4)"),
        (written("pytorch", "gru", weight_hr_l0=f4(4, 4)), {}, "gru of 3 gates, 4 units: Invalid num_proj"),
        (torch(fc=f4(3)), {}, "'fc': unexpected"),
        (torch(bias_ih_l0=np.ones(16, "i4")), {}, "'bias_ih_l0': expecting a floating dtype that cuDNN has, got int32"),
        (torch(bias_ih_l0=np.ma.masked_equal(f4(16), 1)), {}, "'bias_ih_l0': cannot be read as an array"),
        (torch(bias_ih_l0=np.ones(16)), {}, "'bias_ih_l0': expecting float32 like the arrays before it, got float64"),
        (torch(), {"nonlinearity": "relu"}, "'relu' belongs to the plain cell"),
        (torch(), {"nonlinearity": "gelu"}, "cuDNN has only 'tanh' and 'relu'"),
        (TWO_CELLS, {}, "the RNN is a part of this model; choose one: prefix='a.', prefix='b.'; -s prefix=a. on "),
        (TWO_CELLS, {"layers": ["a", "c"]}, "'c': no recurrent cell is under this name; the names here are 'a', 'b'"),
        (TWO_CELLS, {"layers": ["a", "a"]}, "a cell is listed twice"),
        (TWO_CELLS, {"layers": ["a", ("a", "b")]}, "layers of one and of two directions do not make one stack"),
        (TORCHS_CELL | MODULE | BACKWARD, {"layers": [("a", "m")]}, "a pair takes two single cells"),
        (TORCHS_CELL, {"layers": ["a"], "prefix": "a"}, "leave out one of the two"),
        (TORCHS_CELL, {"layers": "a"}, "expecting a list of names, or of pairs (forward, backward) of names, got 'a'"),
        (TORCHS_CELL, {"layers": [("a",)]}, "expecting a list of names, or of pairs"),
        (TORCHS_CELL, {"layers": [3]}, "expecting a list of names, or of pairs"),
        (BACKWARD, {"layers": ["m"]}, "is one direction of a layer by its name"),
        (BACKWARD, {"prefix": "m"}, "is one direction of a layer by its name"),
        (MODULE | {"m.weight_ih_l1_reverse": f4(3)}, {"prefix": "m"}, "the backward cell of layer 0 is missing"),
        ({"lstm.w": f4(3), "fc.weight": f4(3)}, {}, "no recurrent cell among 2 arrays; the nearest names are 'lstm.w'"),
        ({"0._all_weight_values.0.param": object()}, {}, "holds quantized weights: save the state dict of the module"),
    ],
    "keras": [
        (keras(bias=f4(12)), {}, "resets before the recurrent product"),
        (keras(), {"activation": "relu"}, "no 'gru' with 'relu'"),
        (keras(), {"recurrent_activation": "hard_sigmoid"}, "cuDNN has only 'sigmoid'"),
        (keras(), {"go_backwards": True}, "reverse the input instead"),
        (
            {f"bidirectional/forward_gru/{k}": v for k, v in keras().items()},
            {},
            "is one direction of a layer by its name: add the other, or",
        ),
    ],
    "onnx": [
        (written("onnx", P=f4(1, 12)), {}, "peepholes"),
        (written("onnx"), {"clip": 1.0}, "bounds the sums that go into the gates"),
        (written("onnx"), {"input_forget": 1}, "does not couple"),
        (written("onnx"), {"direction": "bidirectional"}, "W has 1 direction(s), and this says 'bidirectional'"),
        (written("onnx"), {"direction": "reverse"}, "reverse its input and output in time"),
        (written("onnx"), {"activations": ["Sigmoid", "Tanh", "Relu"]}, "has only ['sigmoid', 'tanh', 'tanh']"),
        (written("onnx", "rnn_relu", 1, "bidirectional"), {"activations": ["Relu", "Tanh"]}, "only ['relu', 'relu']"),
        (written("onnx", "rnn_tanh"), {"activation_alpha": [0.5]}, "activation_alpha: cuDNN's activations take no"),
        (written("onnx", "gru"), {}, "expecting linear_before_reset=1"),
        ({f"{k}/{n}": a for k in (0, 2) for n, a in written("onnx").items()}, {}, "without a gap"),
    ],
    "flax": [
        (written("flax", **{"cell/hf/bias": None}), {}, "'cell/hf/bias': missing"),
        (written("flax") | {"cell": {"hf": {"bias": f4(4)}}}, {}, "'cell/hf/bias': is there twice"),
        (written("flax", "gru", **{"cell/hr/bias": f4(4)}), {}, "'cell/hr/bias': unexpected"),
        (written("flax", "rnn_tanh"), {"activation": "gelu"}, "cuDNN has only 'tanh' and 'relu'"),
        (written("flax", "rnn_tanh"), {"bidirectional": True}, "1 cells do not make pairs"),
    ],
    "equinox": [
        ({"weight_ih": f4(4, 3), "weight_hh": f4(4, 4)}, {}, "'weight_hh': has one gate, and Equinox has no"),
        ({"rnn": written("equinox"), "fc": {"bias": f4(4)}}, {}, "here; without `layers`, all arrays are read as one"),
    ],
    "jax_rnn": [({}, {"input_size": 3, "hidden_size": 2**20 + 1}, "hidden_size: expecting a positive integer")],
    "gluon": [
        (two_of("gluon", l1_i2h_weight=f4(16, 3)), {}, "expecting shape (16, 4), got (16, 3)"),
        (written("gluon", "rnn_tanh"), {"activation": "softrelu"}, "cuDNN has only 'tanh' and 'relu'"),
    ],
    "chainer": [
        (two_of("chainer", **{"1/w7": None}), {}, "'1/w7': missing"),
        ({"0/b0": f4(4)}, {}, "expecting 8 (LSTM), 6 (GRU) or 2 (tanh, relu) matrices, got 0"),
        (written("chainer"), {"bidirectional": True}, "'0': has no second child, for the backward direction"),
        (two_of("chainer"), {"bidirectional": True}, "'1/w0': expecting shape (4, 3), got (4, 4)"),
    ],
    "tensorflow": [
        (two_of("tensorflow", **{CELL + "bias_cudnn_1": None}), {}, "bias_cudnn_1': missing"),
        (two_of("tensorflow", **{CELL + "w_f_diag": f4(4)}), {}, "w_f_diag': is a peephole"),
        (two_of("tensorflow"), {"forget_bias": 1.0}, "cudnn_compatible_lstm_cell adds nothing"),
        ({name.replace(*APART): a for name, a in OWN_LSTM.items()}, {}, "each direction has layers of its own"),
        (OWN_LSTM | {"rnn/lstm_cell/kernel": f4(7, 16)}, {}, "the names do not contain the order of these layers"),
        ({n: a for n, a in two_of("tensorflow").items() if CELL in n}, {}, "the forward cell of layer 0 is missing"),
        (OWN_LSTM, {"forget_bias": np.inf}, "expecting a finite number"),
        (TFS_GRU, {}, "another cell, GRUCell: its reset gate comes before the product"),
        (OWN_LSTM | {"rnn/multi_rnn_cell/cell_0/lstm_cell/wci": f4(4)}, {}, "wci': is a peephole"),
        (OWN_LSTM, {"layers": ["rnn", "x"]}, "'x': no recurrent cell is under this name; the names here are"),
        (OWN_LSTM, {"ema": 1}, "ema: expecting True or False, got 1"),
        (written("keras"), {}, "no recurrent cell among 3 arrays; the nearest names are 'lstm/lstm_cell/bias'"),
        (written("keras") | OWN_LSTM, {"prefix": "lstm"}, "no RNN under 'lstm/'; choose one: prefix=''; -s"),
        (written("tensorflow", "rnn_tanh"), {}, "nothing says whether it is of CudnnRNNTanh or CudnnRNNRelu"),
        (
            two_of("tensorflow", **{CELL.replace("1/cudnn_compatible_lstm", "2/basic_rnn") + "kernel": f4(8, 4)}),
            {},
            "expecting one kind of cell, got basic_rnn_cell, cudnn_compatible_lstm_cell",
        ),
    ],
}


@pytest.mark.parametrize(
    ("framework", "given", "keywords", "text"), [(name, *row) for name, rows in READ.items() for row in rows]
)
def test_what_cannot_be_read_is_named(framework, given, keywords, text):
    with pytest.raises(ConvertError) as caught:
        getattr(convert, framework).to_canonical(given, **keywords)
    assert text in str(caught.value)


def objects():
    """Return models as their libraries have them: the object, and what it is called in the text."""
    import keras as theirs
    import torch as module_of
    from flax import nnx

    layer, keras_lstm = layers.CudnnLSTM(1, 4), theirs.layers.LSTM(4)
    for one in (layer, keras_lstm):
        one.build((None, None, 3))
    return {
        "op": (ops.CudnnLSTM(1, 4, 3), "op"), "layer": (layer, "layer"),
        "torch's module": (module_of.nn.LSTM(3, 4), "module"), "our module": (interop_torch.LSTM(3, 4), "module"),
        "Keras's layer": (keras_lstm, "layer"), "Keras's model": (theirs.Sequential([keras_lstm]), "layer"),
        "nnx's module": (nnx.RNN(nnx.LSTMCell(3, 4, rngs=nnx.Rngs(0))), "module"),
    }  # fmt: skip


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_object_in_place_of_its_arrays_is_answered_with_what_to_give(framework):
    need("torch", "keras", "flax")
    from flax import nnx

    module, params = getattr(convert, framework), ops.CudnnLSTM(1, 4, 3).init_params(1)
    for name, (given, called) in objects().items():
        with pytest.raises(ConvertError, match=rf"got {type(given).__name__}: its Canonical is ") as caught:
            module.from_canonical(given)
        c = eval(
            str(caught.value).partition(" is ")[2], {"convert": convert, called: given, "params": params, "nnx": nnx}
        )
        assert (c.spec.mode, c.spec.num_units, c.spec.input_size) == ("lstm", 4, 3), name
        sizes = {"input_size": np.int64(3), "hidden_size": 4} if framework == "jax_rnn" else {}
        with pytest.raises(ConvertError, match=rf"got {type(given).__name__}: its Canonical is "):
            module.to_canonical(given, **sizes)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_canonical_in_place_of_arrays_is_answered_with_what_writes_them(framework):
    op = ops.CudnnLSTM(1, 4, 3)
    c = convert.Canonical(op.spec, *op.params_to_canonical(op.init_params(1)))
    sizes = {"input_size": 3, "hidden_size": 4} if framework == "jax_rnn" else {}
    with pytest.raises(
        ConvertError, match=rf"got Canonical: convert\.{framework}\.from_canonical\(c\) makes the arrays"
    ):
        getattr(convert, framework).to_canonical(c, **sizes)


def test_a_list_of_kerass_weights_is_answered_with_what_to_give():
    need("torch", "keras")
    model, _ = objects()["Keras's model"]
    with pytest.raises(ConvertError, match="expecting a dict of arrays, got list: arrays need names") as caught:
        convert.keras.to_canonical(model.get_weights())
    readers = {"keras": r"convert.keras.read\(path\), or safe", "pytorch": r"torch.load\(path, weights_only=True\), or"}
    readers |= {
        "onnx": "convert.onnx.from_model",
        "tensorflow": "checkpoint.read_tensorflow",
        "flax": "safetensors.num",
    }
    for framework, reader in readers.items():
        with pytest.raises(ConvertError, match=f"got str: read the file first, with {reader}"):
            getattr(convert, framework).to_canonical("model.file")
    with pytest.raises(ConvertError, match=r"got ndarray: give the vector as \{'weights': vector\}"):
        convert.jax_rnn.to_canonical(np.ones(224), input_size=3, hidden_size=4)
    arrays = eval(str(caught.value).partition("give ")[2].rstrip(")"), {"model": model})
    assert convert.keras.to_canonical(arrays).spec.num_units == 4


def lstm(**options):
    return RNNSpec("lstm", 1, 4, 3, **options)


PROJECTED, CLIPPED = lstm(num_proj=2), lstm(cell_clip=2.0)


@pytest.mark.parametrize(
    ("framework", "spec", "keywords", "text"),
    [
        *((name, PROJECTED, {}, "num_proj") for name in ("keras", "flax", "jax_rnn", "chainer", "onnx")),
        *(
            (name, CLIPPED, {}, "cell_clip")
            for name in ("pytorch", "keras", "jax_rnn", "chainer", "gluon", "tensorflow", "onnx")
        ),
        ("keras", RNNSpec("rnn_tanh", 1, 4, 3), {"cudnn": True}, "only CuDNNLSTM and CuDNNGRU"),
        ("keras", RNNSpec("gru", 2, 4, 3), {"layers": ["one", "one"]}, "expecting 2 different names"),
        ("flax", RNNSpec("rnn_relu", 1, 4, 3), {}, "SimpleCell's activation"),
        ("flax", lstm(), {"api": "haiku"}, "expecting 'linen' or 'nnx'"),
        ("equinox", RNNSpec("rnn_tanh", 1, 4, 3), {}, "only LSTMCell and GRUCell"),
        ("jax_rnn", RNNSpec("gru", 1, 4, 3), {}, "it has only the LSTM"),
        ("tensorflow", PROJECTED, {"cell": "basic_lstm_cell"}, "its LSTM has no projection"),
        ("tensorflow", PROJECTED, {"cell": "gru_cell"}, "'lstm_cell' or 'basic_lstm_cell' for an LSTM, got 'gru_cell'"),
        ("tensorflow", RNNSpec("gru", 1, 4, 3), {"cell": "lstm_cell"}, "got 'lstm_cell' for 'gru'"),
        ("tensorflow", lstm(), {"cell": "lstm_cell", "forget_bias": np.nan}, "nan: expecting a finite number"),
    ],
)
def test_what_a_framework_cannot_hold_is_named(framework, spec, keywords, text):
    with pytest.raises(ConvertError) as caught:
        getattr(convert, framework).from_canonical(random_canonical(spec, 1), **keywords)
    assert text in str(caught.value)


def test_cells_whose_names_contradict_one_another_or_the_caller_are_refused():
    both = convert.flax.from_canonical(random_canonical(RNNSpec("lstm", 1, 5, 3, direction="bidirectional"), 1))
    short = {name.replace("forward_rnn", "fw").replace("backward_rnn", "bw"): array for name, array in both.items()}
    equal_models(convert.flax.to_canonical(short), convert.flax.to_canonical(both))
    with pytest.raises(ConvertError, match="bidirectional: is False, and the names say forward and backward"):
        convert.flax.to_canonical(both, bidirectional=False)
    again = {name.replace("forward_rnn", "fw_rnn"): array for name, array in both.items() if "forward" in name}
    with pytest.raises(ConvertError, match="'fw_rnn/cell': the names do not contain the order"):
        convert.flax.to_canonical(both | again)
    with pytest.raises(ConvertError, match="'cell/if_/kernel': holds the same as 'cell/if/kernel'"):
        convert.flax.to_canonical(written("flax", "lstm") | {"cell/if_/kernel": np.ones((3, 4), "f4")})


# --- prefixes: one rule for all converters

WHOLE = {"pytorch": "net.rnn.", "gluon": "net0_rnn0_", "chainer": "net/rnn/", "tensorflow": "net/rnn/"}
"""A prefix with the joint at its end."""
C = random_canonical(RNNSpec("gru", 2, 4, 3, direction="bidirectional"), 1)


@pytest.mark.parametrize("framework", WHOLE)
def test_a_prefix_means_the_same_with_its_joint_and_without_where_it_is_read_and_where_it_is_written(framework):
    """One that ends in something else is taken as it is."""
    module, whole = getattr(convert, framework), WHOLE[framework]
    both = {"bidirectional": True} if framework == "chainer" else {}
    for prefix, meant in ((whole, whole), (whole[:-1], whole), ("rnn-", "rnn-")):
        written = module.from_canonical(C, prefix=prefix)
        assert list(written) == [meant + name for name in module.from_canonical(C)]
        equal_models(module.to_canonical(written | {"other": np.ones(2)}, prefix=prefix, **both), C)


@pytest.mark.parametrize("framework", WHOLE)
@pytest.mark.parametrize("given", ["", "elsewhere"])
def test_a_missing_prefix_and_a_wrong_one_name_those_that_are_there(framework, given):
    module, whole = getattr(convert, framework), WHOLE[framework]
    arrays = module.from_canonical(C, prefix=whole) | {"other": np.ones(2)}
    with pytest.raises(ConvertError) as caught:
        module.to_canonical(arrays, prefix=given)
    assert f"; choose one: prefix={whole!r}" in str(caught.value)
    assert ("there is no RNN under 'elsewhere" in str(caught.value)) == bool(given)
    assert caught.value.choices == ({"prefix": whole},)
    arrays |= module.from_canonical(C, prefix="second-")
    with pytest.raises(ConvertError, match=r"choose one: prefix=.*, prefix='second-'") as caught:
        module.to_canonical(arrays, prefix=given)
    assert caught.value.choices == ({"prefix": whole}, {"prefix": "second-"})
