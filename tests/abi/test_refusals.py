"""Our validation refuses whatever the real setters refuse; where it is stricter, a name and a reason stand below.

The oracle is the real setter, called with plain ctypes integers: nothing of the package lies between.
"""

from __future__ import annotations

import ctypes
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn.engines.cudnn.descriptors import FilterDescriptor, RNNDataDescriptor, RNNDescriptor, TensorDescriptor
from pycudnnrnn.errors import ArgumentError, EngineError
from pycudnnrnn.spec import DType, RNNSpec
from tests.helpers.examples import examples

EXAMPLES = examples(4000)

MODES = {0: "rnn_relu", 1: "rnn_tanh", 2: "lstm", 3: "gru"}
BIASES = {0: "none", 1: "single_input", 2: "double", 3: "single_recurrent"}
DIRECTIONS = {0: "unidirectional", 1: "bidirectional"}
INPUTS = {0: "linear_input", 1: "skip_input"}
TYPES = {0: "float32", 1: "float64", 2: "float16", 9: "bfloat16", 3: "int8", 4: "int32", 11: "bool"}
MATHS = {0: "default", 1: "tensor_op", 2: "tensor_op_allow_conversion", 3: "fma"}
ALGOS = {0: "standard", 1: "persist_static", 2: "persist_dynamic", 3: "persist_static_small_h"}

RNN_STRICTER = {
    "skip input with input_size != num_units": (
        lambda c: c["input"] == 1 and c["I"] != c["H"],
        "the input is added to every gate as it is; the setter takes it, a later call fails",
    ),
    "num_proj equal to num_units": (
        lambda c: c["P"] == c["H"],
        "cuDNN reads it as no projection, so a projection matrix that the caller counts on would not exist",
    ),
    "cell_clip without a cell": (
        lambda c: c["clip"] is not None and c["mode"] != 2,
        "only the LSTM has a cell state: the clip would do nothing",
    ),
}

DATA_STRICTER = {
    "packed lengths unsorted or zero, before 9.6": (
        lambda c, version: c["layout"] == 1 and version < 90600,
        "8.9.7, 9.0.0 and 9.3.0 take them silently and mean something else; 9.6 refuses them",
    ),
}

TENSOR_STRICTER = {
    "two dimensions": (
        lambda dims: len(dims) == 2,
        "8.9.7 and 9.0.0 refuse them, and every tensor of an RNN has three",
    ),
}


@pytest.fixture(scope="module")
def raw(lib):
    """The same library by plain ctypes, with one descriptor of each type."""
    dll = ctypes.CDLL(lib.path)
    made = {}
    for kind in ("RNN", "RNNData", "Tensor", "Filter"):
        made[kind] = ctypes.c_void_p()
        assert dll[f"cudnnCreate{kind}Descriptor"](ctypes.byref(made[kind])) == 0
    yield dll, made
    for kind, pointer in made.items():
        dll[f"cudnnDestroy{kind}Descriptor"](pointer)


def real_rnn(raw, c):
    dll, made = raw
    order = ("algo", "mode", "bias", "direction", "input", "data", "compute", "math", "I", "H")
    proj = c["H"] if c["P"] is None else c["P"]
    integers = [*(c[name] for name in order), proj, c["L"]]
    if dll.cudnnSetRNNDescriptor_v8(made["RNN"], *map(ctypes.c_int, integers), None, ctypes.c_uint(1)):
        return False
    if c["clip"] is None:
        return True
    low, high = map(ctypes.c_double, c["clip"])
    if dll.cudnnGetVersion() >= 90000:
        return dll.cudnnRNNSetClip_v9(made["RNN"], 1, low, high) == 0
    return dll.cudnnRNNSetClip_v8(made["RNN"], 1, 1, low, high) == 0


def our_rnn(lib, c):
    def named(names, value):
        return names.get(value, f"number {value}")

    try:
        spec = RNNSpec(
            named(MODES, c["mode"]),
            c["L"],
            c["H"],
            c["I"],
            named(INPUTS, c["input"]),
            named(DIRECTIONS, c["direction"]),
            named(TYPES, c["data"]),
            num_proj=c["P"],
            bias_mode=named(BIASES, c["bias"]),
            cell_clip=c["clip"],
            algo=named(ALGOS, c["algo"]),
            math_type=named(MATHS, c["math"]),
            compute_dtype=named(TYPES, c["compute"]),
        )
        RNNDescriptor(lib, spec).close()
    except (ArgumentError, EngineError):
        return False
    return True


WRONG = {
    **dict.fromkeys(("algo", "mode", "bias", "math"), (-1, 4, 5)),
    **dict.fromkeys(("direction", "input"), (-1, 2)),
    **dict.fromkeys(("data", "compute"), (-1, 3, 4, 11, 24)),
    **dict.fromkeys(("I", "H", "L"), (0, -1, -(2**31))),
    "P": [-1, -(2**31), 13, 2**31 - 1],
    "clip": [(1.0, -1.0), (math.nan, 1.0), (0.0, math.nan), (math.inf, -math.inf)],
}


@st.composite
def rnn_calls(draw):
    """Draw one call of the setter: each value right by itself, then up to two of them wrong."""
    sizes = st.integers(1, 12) | st.sampled_from([192, 1024, 2**31 - 1])
    bounds = st.floats(allow_nan=False)
    right = {
        "algo": st.sampled_from([0, 0, 0, 1, 2, 3]),
        "mode": st.sampled_from([2, 2, *MODES]),
        "bias": st.sampled_from([2, 2, 2, 2, 2, *BIASES]),
        "direction": st.sampled_from([0, 1]),
        "input": st.sampled_from([0, 0, 1]),
        "data": st.sampled_from([0, 1, 2, 9]),
        "compute": st.sampled_from([0, 1, 2, 9]),
        "math": st.sampled_from(list(MATHS)),
        "I": sizes,
        "H": sizes,
        "P": st.none() | st.none() | st.none() | st.integers(1, 12),
        "L": sizes,
        "clip": st.none() | st.tuples(bounds, bounds).map(lambda pair: tuple(sorted(pair))),
    }
    call = {name: draw(values) for name, values in right.items()}
    if draw(st.integers(0, 3)):
        call["compute"] = {2: 0, 9: 0}.get(call["data"], call["data"])
    for name in draw(st.lists(st.sampled_from(list(WRONG)), max_size=draw(st.integers(0, 2)))):
        call[name] = draw(st.sampled_from(WRONG[name]))
    return call


def agree(real, ours, stricter):
    """Neither more lenient than the library, nor stricter without one of the reasons."""
    if ours:
        assert real, "the library refuses what we accept"
    elif real:
        assert any(applies for applies in stricter), "we refuse what the library accepts, without a reason"


@given(rnn_calls())
@EXAMPLES
def test_rnn_settings_are_refused_by_us_if_by_the_library(lib, raw, call):
    agree(real_rnn(raw, call), our_rnn(lib, call), [applies(call) for applies, _ in RNN_STRICTER.values()])


@st.composite
def data_calls(draw):
    time = draw(st.integers(1, 6) | st.sampled_from([65535, 65536, 2**31 - 1, 0, -1]))
    batch = draw(st.integers(1, 5))
    high = max(1, min(time, 65536))
    lengths = draw(
        st.lists(st.integers(0, high) | st.sampled_from([-1, high, high + 1]), min_size=batch, max_size=batch)
    )
    order = draw(st.integers(0, 2))
    if order:  # so that the packed layout is often right
        lengths = sorted(lengths, reverse=True)
        lengths = [time, *lengths[1:]] if order == 2 and abs(time) < 2**31 else lengths
    return {
        "data": draw(st.sampled_from([0, 1, 2, 9, 0, 1, 2, 9, 3, 24])),
        "layout": draw(st.sampled_from([0, 1, 1, 2])),
        "T": time,
        "B": draw(st.sampled_from([batch] * 8 + [0, -1])),
        "V": draw(st.sampled_from([1, 7, 2**31 - 1, 1, 7, 0, -1])),
        "lengths": lengths,
    }


def real_data(raw, c):
    dll, made = raw
    integers = [ctypes.c_int(c[name]) for name in ("data", "layout", "T", "B", "V")]
    lengths, fill = (ctypes.c_int * len(c["lengths"]))(*c["lengths"]), ctypes.c_double()
    return dll.cudnnSetRNNDataDescriptor(made["RNNData"], *integers, lengths, ctypes.byref(fill)) == 0


def our_data(lib, c):
    try:
        dtype = DType(TYPES.get(c["data"], "number"))
    except ValueError:
        return False
    try:
        RNNDataDescriptor(lib, dtype, c["T"], c["B"], c["V"], lengths=c["lengths"], layout=c["layout"]).close()
    except (ArgumentError, EngineError):
        return False
    return True


@given(data_calls())
@EXAMPLES
def test_data_settings_are_refused_by_us_if_by_the_library(lib, raw, call):
    reasons = [applies(call, lib.version) for applies, _ in DATA_STRICTER.values()]
    agree(real_data(raw, call), our_data(lib, call), reasons)


SIDES = st.integers(1, 9) | st.sampled_from([0, -1, 32767, 32768, 65536, 2**31 - 1])


def real_dims(raw, dims):
    dll, made = raw
    rank, array = ctypes.c_int(len(dims)), ctypes.c_int * len(dims)
    strides = [math.prod(dims[i + 1 :]) for i in range(len(dims))]
    tensor = dll.cudnnSetTensorNdDescriptor(made["Tensor"], 0, rank, array(*dims), array(*strides))
    weights = dll.cudnnSetFilterNdDescriptor(made["Filter"], 0, 0, rank, array(*dims))
    return tensor == 0 and all(stride < 2**31 for stride in strides), weights == 0


def our_dims(lib, owner, dims):
    try:
        owner(lib, DType.FLOAT32, dims).close()
    except ArgumentError:
        return False
    return True


@given(st.lists(SIDES, min_size=1, max_size=10))
@EXAMPLES
def test_dimensions_are_refused_by_us_if_by_the_library(lib, raw, dims):
    tensor, weights = real_dims(raw, dims)
    agree(tensor, our_dims(lib, TensorDescriptor, dims), [applies(dims) for applies, _ in TENSOR_STRICTER.values()])
    agree(weights, our_dims(lib, FilterDescriptor, dims), [])


PLAIN = {"algo": 0, "mode": 2, "bias": 2, "direction": 0, "input": 0, "data": 0, "compute": 0, "math": 3}
PLAIN |= {"I": 4, "H": 8, "P": None, "L": 1, "clip": None}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("skip input with input_size != num_units", {"input": 1}),
        ("num_proj equal to num_units", {"P": 8}),
        ("cell_clip without a cell", {"mode": 3, "clip": (-1.0, 1.0)}),
    ],
)
def test_each_case_of_ours_that_is_stricter_exists(lib, raw, name, change):
    call = PLAIN | change
    assert RNN_STRICTER[name][0](call)
    assert real_rnn(raw, call)
    assert not our_rnn(lib, call)


def test_lengths_on_a_device_are_refused_with_the_reason(lib):
    class OnDevice:
        __cuda_array_interface__ = {}  # noqa: RUF012

    with pytest.raises(ArgumentError, match="synchronise"):
        RNNDataDescriptor(lib, DType.FLOAT32, 5, 1, 4, lengths=OnDevice())


def test_too_few_or_too_many_lengths_are_refused(lib):
    for lengths in ([], [5], [5, 5, 5]):
        with pytest.raises(ArgumentError, match="sequence_lengths shape"):
            RNNDataDescriptor(lib, DType.FLOAT32, 5, 2, 4, lengths=lengths)


def test_auto_is_no_algorithm_of_a_descriptor(lib):
    with pytest.raises(ArgumentError, match="decided before"):
        RNNDescriptor(lib, RNNSpec("lstm", 1, 4, 4, algo="auto"))
