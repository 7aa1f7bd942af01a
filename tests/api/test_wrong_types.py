"""Every bool, integer, number and word that the public surface takes refuses what is none, by name."""

import inspect
import re

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
    plot,
    spec,
)
from pycudnnrnn.cells import CudnnCompatibleGRUCell, CudnnCompatibleLSTMCell
from pycudnnrnn.errors import PycudnnrnnError
from pycudnnrnn.saveable import CudnnParamsFormatConverter, RNNParamsSaveable
from pycudnnrnn.spec import RNNSpec
from tests.api.public_api import modules, public_names
from tests.helpers.oracles import FRAMEWORKS, need

need("torch", "jax", "matplotlib")  # some public modules are for them

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


def after_data():
    fwd = forward()
    fwd.backward_data(np.ones_like(fwd.output))
    return fwd


def layer(kind=CudnnLSTM):
    built = kind(1, 8)
    built.build((None, None, 4))
    return built


def called():
    """A layer that has been called."""
    members = layer()
    members(X)
    return members


def plan(training=True):
    return GRU.prepare(3, 2, is_training=training)


def plan_backward_weights(accumulate):
    reserve = np.zeros(plan().reserve_nbytes, "u1")
    plan().backward_weights(X, H, np.zeros((3, 2, 8), "f4"), GRU_P.copy(), reserve, accumulate)


def round_trip(module, **from_keywords):
    """A converter's reading of what it wrote, by keywords."""
    names = module.from_canonical(CANONICAL, **from_keywords)
    return lambda **keywords: module.to_canonical(names, **keywords)


TF_RNN = {"inputs": X, "params": GRU_P, "is_training": False}

RIGHT = {
    "RNNSpec.__init__": (RNNSpec, {"mode": "lstm", **SIZES}),
    "RNNSpec.from_json": (RNNSpec.from_json, {}),
    "CudnnLSTM.__init__": (ops.CudnnLSTM, SIZES),
    "_WithoutCellState.__init__": (ops.CudnnGRU, SIZES),
    "CudnnLSTM.__call__": (LSTM, {"input_data": X, "input_h": None, "input_c": None, "params": P}),
    "CudnnLSTM.forward": (LSTM.forward, {"input_data": X, "input_h": None, "input_c": None, "params": P}),
    "_WithoutCellState.__call__": (GRU, {"input_data": X, "input_h": None, "params": GRU_P}),
    "_WithoutCellState.forward": (GRU.forward, {"input_data": X, "input_h": None, "params": GRU_P}),
    "CudnnRNN.dropout_state": (LSTM.dropout_state, {}),
    "CudnnRNN.init_params": (LSTM.init_params, {}),
    "CudnnRNN.layout": (LSTM.layout, {}),
    "CudnnRNN.memory": (LSTM.memory, {"T": 3, "B": 2, "is_training": True}),
    "CudnnRNN.move_params": (LSTM.move_params, {"params": P}),
    "CudnnRNN.params_size": (LSTM.params_size, {}),
    "CudnnRNN.params_to_canonical": (LSTM.params_to_canonical, {"params": P}),
    "CudnnRNN.prepare": (LSTM.prepare, {"T": 3, "B": 2}),
    "DropoutState.__init__": (ops.DropoutState, {"engine": "numpy", "seed": 1}),
    "Forward.backward": (lambda **k: forward().backward(**k), {"out": P.copy()}),
    "Forward.backward_data": (lambda **k: forward().backward_data(**k), {}),
    "Forward.backward_weights": (lambda **k: after_data().backward_weights(**k), {"out": P.copy()}),
    "Plan.backward_weights": (plan_backward_weights, {}),
    "Plan.capture": (lambda **k: plan().capture(GRU_P, **k), {}),
    "cudnn_lstm": (ops.cudnn_lstm, {**TF_RNN, "params": P, "input_h": H, "input_c": H}),
    **{
        name: (getattr(ops, name), {**TF_RNN, "input_h": H})
        for name in ("cudnn_gru", "cudnn_rnn_tanh", "cudnn_rnn_relu")
    },
    "cudnn_rnn_opaque_params_size": (ops.cudnn_rnn_opaque_params_size, {"rnn_mode": "lstm", **SIZES}),
    "cudnn_rnn_opaque_params_to_canonical": (
        ops.cudnn_rnn_opaque_params_to_canonical, {"rnn_mode": "lstm", **SIZES, "params": P},
    ),
    "cudnn_rnn_canonical_to_opaque_params": (
        ops.cudnn_rnn_canonical_to_opaque_params, {"rnn_mode": "lstm", **SIZES, "weights": WEIGHTS, "biases": BIASES},
    ),
    "algorithm_choices": (ops.algorithm_choices, {}),
    "layers.CudnnLSTM.__init__": (CudnnLSTM, {"num_layers": 2, "num_units": 8}),
    "_layer.RNNLayer.__init__": (CudnnGRU, {"num_layers": 2, "num_units": 8}),
    "LayerForward.backward": (lambda **k: layer().forward(X).backward(**k), {"out": np.zeros(448, "f4")}),
    "RNNLayer.call": (layer().call, {"inputs": X}),
    "RNNLayer.forward": (layer().forward, {"inputs": X}),
    "RNNLayer.capture": (layer().capture, {"T": 3, "B": 2}),
    "RNNLayer.to": (layer().to, {}),
    "RNNLayer.from_spec": (CudnnLSTM.from_spec, {"spec": LSTM.spec}),
    "RNNLayer.from_canonical": (CudnnLSTM.from_canonical, {"canonical": CANONICAL}),
    "layers.from_canonical": (layers.from_canonical, {"canonical": CANONICAL}),
    "RNNLayer.state_shape": (layer().state_shape, {}),
    "TF1Layer.__call__": (layer(), {"inputs": X}),
    "TF1Layer.add_weight": (layer().add_weight, {"name": "w", "shape": (2,)}),
    **{
        f"TF1Layer.get_{what}_at": (getattr(called(), f"get_{what}_at"), {})
        for what in ("input", "input_mask", "input_shape", "output", "output_shape")
    },
    "Variable.__init__": (pycudnnrnn.layers.Variable, {"name": "v", "value": np.zeros(2)}),
    "_Cell.__call__": (CudnnCompatibleGRUCell(8), {"inputs": X[0], "state": np.zeros((2, 8), "f4")}),
    "CudnnCompatibleLSTMCell.__init__": (CudnnCompatibleLSTMCell, {"num_units": 8}),
    "_Cell.__init__": (pycudnnrnn.cells.CudnnCompatibleRNNTanhCell, {"num_units": 8}),
    "CudnnOpaqueParamsSaveable.__init__": (CudnnLSTMSaveable, {"opaque_params": P, **SIZES}),
    "CudnnOpaqueParamsSaveable.of": (
        CudnnLSTMSaveable.of, {"opaque_params": P, "spec": LSTM.spec, "scope": None, "name": "n"},
    ),
    "RNNParamsSaveable.__init__": (
        lambda **k: RNNParamsSaveable(LSTM.params_to_canonical, LSTM.canonical_to_params, P, **k), {"name": "n"},
    ),
    "CudnnParamsFormatConverter.__init__": (CudnnParamsFormatConverter, {"rnn_mode": "lstm", **SIZES}),
    "Saver.__init__": (Saver, {"items": {"a": np.zeros(2)}}),
    "Saver.restore": (lambda **k: Saver({"a": np.zeros(2)}).restore("none", **k), {}),
    "checkpoint.inspect": (lambda **k: checkpoint.inspect("none", **k), {}),
    "checkpoint.load": (lambda **k: checkpoint.load("none", **k), {}),
    "checkpoint.load_op": (lambda **k: checkpoint.load_op("none", **k), {}),
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
    "jax.dropout_states": (jax.dropout_states, {"spec": LSTM}),
    "plot.draw_layout": (plot.draw_layout, {"layout": LSTM.layout(), "path": "none/m.png"}),
    "plot.draw_gradient_norms": (
        plot.draw_gradient_norms, {"d_params": P, "layout": LSTM.layout(), "path": "none/m.png"},
    ),
    "plot.draw_gates": (
        plot.draw_gates,
        {"spec": LSTM.spec, "canonical": (WEIGHTS, BIASES), "input_data": X[:, 0], "path": "none/m.png"},
    ),
    "jax_rnn.to_canonical": (round_trip(convert.jax_rnn), {"input_size": 4, "hidden_size": 8, "num_layers": 2}),
}  # fmt: skip
"""What has such arguments, called with everything right: by the end of its qualified name."""

EXCUSED = {
    r"\.testing\.": "helpers of tests",
    r"engines\.(Memory|cudnn|numpy_engine)": "results, and what an op calls with checked arguments",
    r"ops\.(_plan\.Plan|_stream\.Stream)\.__init__": "made by `prepare` and `stream`",
    r"\.layout\.": "what arithmetic and engines make",
    r"spec\.RNNSpec\.layer_input_size|spec\._words\.parse_dtype": "below the checks",
    r"_layer\.RNNLayer\.__init__": "the base of the classes",
    r"interop\.torch\.(LSTM|GRU|RNN)\.__init__": "torch's own, which checks them",
    r"pytorch\.name_of": "the converters' own",
    r"Variable\.assigning": "a name for errors, from our own callers",
    r"Saver\.save": "takes arrays of one integer, too: tests/checkpoint/test_saved_files.py",
    r"\.distributed\.": "in tests/distributed, which have a communicator",
}
"""Whose arguments are not in the table, and why."""

UNUSED = {("_functional", "name"), ("add_weight", "use_resource")}
"""What TF's callers may give and nobody reads."""

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
    members = {}
    for base in reversed(member.__mro__):
        if base.__module__.startswith("pycudnnrnn"):
            members |= vars(base)
    open_names = {"__init__", "__call__"}
    public = [
        getattr(f, "__func__", f) for name, f in members.items() if name in open_names or not name.startswith("_")
    ]
    return [function for function in public if inspect.isfunction(function)]


PARAMETERS = sorted({(where, name, tuple(types)) for where, name, types in annotated()})


def row_of(where):
    """The row with the longest name that `where` ends with."""
    return max((key for key in RIGHT if where.endswith(f".{key}")), key=len, default=None)


CASES = [
    pytest.param(row_of(where), name, types, id=f"{where.removeprefix('pycudnnrnn.')}-{name}")
    for where, name, types in PARAMETERS
    if row_of(where) and not any(part in where and name == unused for part, unused in UNUSED)
]


def test_every_such_argument_is_in_the_table_or_excused():
    missing = {
        where for where, _, _ in PARAMETERS if not row_of(where) and not any(re.search(e, where) for e in EXCUSED)
    }
    assert not missing
    assert {row_of(where) for where, _, _ in PARAMETERS} - {None} == RIGHT.keys(), "a row that is not public"
    assert len(CASES) > 250


@pytest.mark.parametrize(("row", "name", "types"), CASES)
def test_a_value_of_the_wrong_type_is_refused_by_name(row, name, types):
    function, right = RIGHT[row]
    kinds = set(types) - {"None"}
    values = [v for kind in kinds for v in WRONG[kind]] + ([] if "None" in types else [None])
    for value in values:
        with pytest.raises(PycudnnrnnError, match=rf"\b{name}\b") as caught:
            function(**right | {name: value})
        assert len(str(caught.value)) <= 2000
