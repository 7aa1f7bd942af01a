"""Bools, integers, numbers and words that the public surface takes refuse what is none, by name."""

import inspect

import numpy as np
import pytest

import pycudnnrnn
from pycudnnrnn import (
    CudnnGRU,
    CudnnLSTM,
    CudnnLSTMSaveable,
    Saver,
    checkpoint,
    convert,
    interop,
    layers,
    ops,
    spec,
)
from pycudnnrnn.cells import CudnnCompatibleLSTMCell
from pycudnnrnn.errors import PycudnnrnnError
from pycudnnrnn.saveable import CudnnParamsFormatConverter
from pycudnnrnn.spec import RNNSpec
from tests.api.public_api import modules, public_names
from tests.helpers.oracles import FRAMEWORKS

jax = interop.jax

LONG = "x" * 100_000
WRONG = {
    "bool": (1, 0, 0.0, "no", [], np.ones(1), LONG),
    "int": (True, False, 1.0, np.float32(1), "1", [1], 1j, LONG),
    "float": (True, "0.5", [0.5], 1j, LONG, 10**5000),
    "str": (0, True, 0.0, b"tanh", ["tanh"], {}, [LONG]),
}
"""What is no value of a type; None is one more where the annotation does not name it.

Python writes no integer of more than 4,300 digits."""

X = np.ones((3, 2, 4), "f4")
LSTM = ops.CudnnLSTM(2, 8, 4, seed=1)
GRU = ops.CudnnGRU(2, 8, 4, seed=1)
P, GRU_P = LSTM.init_params(), GRU.init_params()
H = np.zeros((2, 2, 8), "f4")
WEIGHTS, BIASES = LSTM.params_to_canonical(P)
CANONICAL = convert.Canonical(LSTM.spec, WEIGHTS, BIASES)
SIZES = {"num_layers": 2, "num_units": 8, "input_size": 4}


def forward():
    return LSTM.forward(X, None, None, P)


def layer(kind=CudnnLSTM):
    built = kind(1, 8)
    built.build((None, None, 4))
    return built


def round_trip(module, **from_keywords):
    """A converter's reading of what it wrote, by keywords."""
    names = module.from_canonical(CANONICAL, **from_keywords)
    return lambda **keywords: module.to_canonical(names, **keywords)


TF_RNN = {"inputs": X, "params": GRU_P, "is_training": False}

RIGHT = {
    "RNNSpec.__init__": (RNNSpec, {"mode": "lstm", **SIZES}),
    "CudnnLSTM.__init__": (ops.CudnnLSTM, SIZES),
    "_WithoutCellState.__init__": (ops.CudnnGRU, SIZES),
    "CudnnLSTM.__call__": (LSTM, {"input_data": X, "input_h": None, "input_c": None, "params": P}),
    "CudnnLSTM.forward": (LSTM.forward, {"input_data": X, "input_h": None, "input_c": None, "params": P}),
    "_WithoutCellState.__call__": (GRU, {"input_data": X, "input_h": None, "params": GRU_P}),
    "_WithoutCellState.forward": (GRU.forward, {"input_data": X, "input_h": None, "params": GRU_P}),
    "CudnnRNN.dropout_state": (LSTM.dropout_state, {}),
    "CudnnRNN.init_params": (LSTM.init_params, {}),
    "CudnnRNN.memory": (LSTM.memory, {"T": 3, "B": 2, "is_training": True}),
    "CudnnRNN.prepare": (LSTM.prepare, {"T": 3, "B": 2}),
    "DropoutState.__init__": (ops.DropoutState, {"engine": "numpy", "seed": 1}),
    "Forward.backward": (lambda **k: forward().backward(**k), {"out": P.copy()}),
    "cudnn_lstm": (ops.cudnn_lstm, {**TF_RNN, "params": P, "input_h": H, "input_c": H}),
    "cudnn_gru": (ops.cudnn_gru, {**TF_RNN, "input_h": H}),
    "cudnn_rnn_opaque_params_size": (ops.cudnn_rnn_opaque_params_size, {"rnn_mode": "lstm", **SIZES}),
    "cudnn_rnn_opaque_params_to_canonical": (
        ops.cudnn_rnn_opaque_params_to_canonical, {"rnn_mode": "lstm", **SIZES, "params": P},
    ),
    "cudnn_rnn_canonical_to_opaque_params": (
        ops.cudnn_rnn_canonical_to_opaque_params, {"rnn_mode": "lstm", **SIZES, "weights": WEIGHTS, "biases": BIASES},
    ),
    "layers.CudnnLSTM.__init__": (CudnnLSTM, {"num_layers": 2, "num_units": 8}),
    "_layer.RNNLayer.__init__": (CudnnGRU, {"num_layers": 2, "num_units": 8}),
    "RNNLayer.forward": (layer().forward, {"inputs": X}),
    "RNNLayer.capture": (layer().capture, {"T": 3, "B": 2}),
    "RNNLayer.from_spec": (CudnnLSTM.from_spec, {"spec": LSTM.spec}),
    "RNNLayer.from_canonical": (CudnnLSTM.from_canonical, {"canonical": CANONICAL}),
    "layers.from_canonical": (layers.from_canonical, {"canonical": CANONICAL}),
    "CudnnCompatibleLSTMCell.__init__": (CudnnCompatibleLSTMCell, {"num_units": 8}),
    "_Cell.__init__": (pycudnnrnn.cells.CudnnCompatibleRNNTanhCell, {"num_units": 8}),
    "CudnnOpaqueParamsSaveable.__init__": (CudnnLSTMSaveable, {"opaque_params": P, **SIZES}),
    "CudnnOpaqueParamsSaveable.of": (
        CudnnLSTMSaveable.of, {"opaque_params": P, "spec": LSTM.spec, "scope": None, "name": "n"},
    ),
    "CudnnParamsFormatConverter.__init__": (CudnnParamsFormatConverter, {"rnn_mode": "lstm", **SIZES}),
    "Saver.__init__": (Saver, {"items": {"a": np.zeros(2)}}),
    "checkpoint.load": (lambda **k: checkpoint.load("none", **k), {}),
    **{
        f"{name}.from_canonical": (lambda name=name, **k: getattr(convert, name).from_canonical(CANONICAL, **k), {})
        for name in FRAMEWORKS
        if getattr(convert, name).from_canonical.__kwdefaults__
    },
    "onnx.to_model": (lambda **k: convert.onnx.to_model(CANONICAL, **k), {}),
    **{
        f"{name}.to_canonical": (round_trip(getattr(convert, name)), {})
        for name in FRAMEWORKS
        if getattr(convert, name).to_canonical.__kwdefaults__
    },
    "jax.rnn": (jax.rnn, {"params": P, "input_data": X, "spec": LSTM}),
    "jax_rnn.to_canonical": (round_trip(convert.jax_rnn), {"input_size": 4, "hidden_size": 8, "num_layers": 2}),
}  # fmt: skip
"""What has such arguments, called with everything right: by the end of its qualified name."""

SPEC_WORDS = {name for name in spec.__all__ if name.endswith("Like")} - {"DTypeLike"}


def annotated():
    """(qualified name, parameter, types) of every parameter that is annotated as a plain value or None."""
    for name, module in modules():
        if ".libcudnn" in name or ".errors" in name:
            continue
        for member in public_names(module):
            for function in functions(getattr(module, member)):
                where = f"{function.__module__}.{function.__qualname__}"
                for parameter in inspect.signature(function).parameters.values():
                    types = ["str" if is_word(t) else t for t in str(parameter.annotation).split(" | ")]
                    if {*types} <= {"bool", "int", "float", "str", "None"}:
                        yield where, parameter.name, types


def is_word(annotation):
    """Whether a type is one of words: a Literal, or a name for one."""
    return annotation.startswith("Literal[") or annotation in {*SPEC_WORDS, "Gate", "RegionKind", "Way", "Side"}


def functions(member):
    if inspect.isfunction(member):
        return [member]
    if not inspect.isclass(member) or issubclass(member, Exception):
        return []
    names = [name for name in dir(member) if name in {"__init__", "__call__"} or not name.startswith("_")]
    values = [getattr(value, "__func__", value) for value in (getattr(member, name) for name in names)]
    return [value for value in values if inspect.isfunction(value) and value.__module__.startswith("pycudnnrnn")]


PARAMETERS = sorted({(where, name, tuple(types)) for where, name, types in annotated()})


def row_of(where):
    """The row with the longest name that `where` ends with."""
    return max((key for key in RIGHT if where.endswith(f".{key}")), key=len, default=None)


CASES = [
    pytest.param(row_of(where), name, types, id=f"{where.removeprefix('pycudnnrnn.')}-{name}")
    for where, name, types in PARAMETERS
    if row_of(where) and ("_functional" not in where or name != "name")
]


@pytest.mark.parametrize(("row", "name", "types"), CASES)
def test_a_value_of_the_wrong_type_is_refused_by_name(row, name, types):
    function, right = RIGHT[row]
    kinds = set(types) - {"None"}
    values = [v for kind in kinds for v in WRONG[kind]] + ([] if "None" in types else [None])
    for value in values:
        with pytest.raises(PycudnnrnnError, match=rf"\b{name}\b") as caught:
            function(**right | {name: value})
        assert len(str(caught.value)) <= 2000
