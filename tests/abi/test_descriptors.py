"""Our descriptors refuse what the real setters refuse, and what they set is what the real getters give back.

The oracle is the real library, called with plain ctypes integers: nothing of the package lies between. Where we are
stricter, a reason stands below.
"""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn._libcudnn import Function
from pycudnnrnn._libcudnn_abi import cudnnRNNDataLayout_t
from pycudnnrnn.engines.cudnn.descriptors import FilterDescriptor, RNNDataDescriptor, RNNDescriptor, TensorDescriptor
from pycudnnrnn.engines.cudnn.native import DataDescriptors
from pycudnnrnn.errors import ArgumentError, EngineError
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import DType, RNNSpec
from tests.helpers.examples import examples

EXAMPLES = examples(4000)
INT32_MAX = 2**31 - 1

WORDS = {
    "mode": {0: "rnn_relu", 1: "rnn_tanh", 2: "lstm", 3: "gru"},
    "bias": {0: "none", 1: "single_input", 2: "double", 3: "single_recurrent"},
    "direction": {0: "unidirectional", 1: "bidirectional"},
    "input": {0: "linear_input", 1: "skip_input"},
    "data": {0: "float32", 1: "float64", 2: "float16", 9: "bfloat16", 3: "int8", 4: "int32", 11: "bool"},
    "math": {0: "default", 1: "tensor_op", 2: "tensor_op_allow_conversion", 3: "fma"},
    "algo": {0: "standard", 1: "persist_static", 2: "persist_dynamic", 3: "persist_static_small_h"},
}
"""cuDNN's numbers, as its headers have them, and our words."""

STRICTER = (
    # The input is added to every gate as it is: the setter takes other sizes, a later call fails.
    lambda c: c["input"] == 1 and c["I"] != c["H"],
    # cuDNN reads it as no projection, so a projection matrix that the caller counts on would not exist.
    lambda c: c["P"] == c["H"],
    # Only the LSTM has a cell state: the clip would do nothing.
    lambda c: c["clip"] is not None and c["mode"] != 2,
)
"""When we refuse what the setter takes, and why; spec_and_layout/test_spec.py has an example of each."""

WRONG = {
    **dict.fromkeys(("algo", "mode", "bias", "math"), (-1, 4, 5)),
    **dict.fromkeys(("direction", "input"), (-1, 2)),
    **dict.fromkeys(("data", "compute"), (-1, 3, 4, 11, 24)),
    **dict.fromkeys(("I", "H", "L"), (0, -1, -(2**31))),
    "P": [-1, -(2**31), 13, INT32_MAX],
    "clip": [(1.0, -1.0), (math.nan, 1.0), (0.0, math.nan), (math.inf, -math.inf)],
}


@pytest.fixture(scope="module")
def raw(lib):
    """The same library by plain ctypes, with one descriptor of each type."""
    dll = ctypes.CDLL(lib.path)
    descriptors = {}
    for kind in ("RNN", "RNNData", "Tensor", "Filter"):
        descriptors[kind] = ctypes.c_void_p()
        assert dll[f"cudnnCreate{kind}Descriptor"](ctypes.byref(descriptors[kind])) == 0
    yield dll, descriptors
    for kind, pointer in descriptors.items():
        dll[f"cudnnDestroy{kind}Descriptor"](pointer)


def agree(real, ours, stricter=()):
    """Neither more lenient than the library, nor stricter without one of the reasons."""
    if ours:
        assert real, "the library refuses what we accept"
    elif real:
        assert any(stricter), "we refuse what the library accepts, without a reason"


@st.composite
def rnn_calls(draw):
    """Draw one call of the setter: each value right by itself; half of the time together, too, or up to two wrong."""
    sizes = st.integers(1, 12) | st.sampled_from([192, 1024, INT32_MAX])
    bounds = st.floats(allow_nan=False)
    right = {
        "algo": st.sampled_from([0, 0, 0, 1, 2, 3]),
        "mode": st.sampled_from([2, 2, 0, 1, 3]),
        "bias": st.sampled_from([2, 2, 2, 0, 1, 3]),
        "direction": st.sampled_from([0, 1]),
        "input": st.sampled_from([0, 0, 1]),
        "data": st.sampled_from([0, 1, 2, 9]),
        "compute": st.sampled_from([0, 1, 2, 9]),
        "math": st.sampled_from([0, 1, 2, 3]),
        "I": sizes,
        "H": sizes,
        "P": st.none() | st.none() | st.integers(1, 12),
        "L": sizes,
        "clip": st.none() | st.tuples(bounds, bounds).map(lambda pair: tuple(sorted(pair))),
    }
    call = {name: draw(values) for name, values in right.items()}
    if draw(st.integers(0, 3)):
        call["compute"] = {2: 0, 9: 0}.get(call["data"], call["data"])
    if draw(st.booleans()):
        call["I"] = call["H"] if call["input"] else call["I"]
        call["P"] = call["P"] if call["mode"] == 2 and (call["P"] or 0) < call["H"] else None
        call["clip"] = call["clip"] if call["mode"] == 2 else None
        call["algo"] = call["algo"] if call["bias"] == 2 and call["data"] != 1 and not call["P"] else 0
    else:
        for name in draw(st.lists(st.sampled_from(list(WRONG)), max_size=2)):
            call[name] = draw(st.sampled_from(WRONG[name]))
    return call


def real_rnn(raw, c):
    dll, descriptors = raw
    order = ("algo", "mode", "bias", "direction", "input", "data", "compute", "math", "I", "H")
    proj = c["H"] if c["P"] is None else c["P"]
    integers = [*(c[name] for name in order), proj, c["L"]]
    if dll.cudnnSetRNNDescriptor_v8(descriptors["RNN"], *map(ctypes.c_int, integers), None, ctypes.c_uint(1)):
        return False
    if c["clip"] is None:
        return True
    low, high = map(ctypes.c_double, c["clip"])
    if dll.cudnnGetVersion() >= 90000:
        return dll.cudnnRNNSetClip_v9(descriptors["RNN"], 1, low, high) == 0
    return dll.cudnnRNNSetClip_v8(descriptors["RNN"], 1, 1, low, high) == 0


def our_rnn(lib, c, *, padded_io=True):
    """What cuDNN's getters report of our descriptor, and its spec; None where we refuse."""
    words = {name: WORDS[name].get(c[name], f"number {c[name]}") for name in WORDS}
    try:
        spec = RNNSpec(
            words["mode"], c["L"], c["H"], c["I"], words["input"], words["direction"], words["data"], num_proj=c["P"],
            bias_mode=words["bias"], cell_clip=c["clip"], algo=words["algo"], math_type=words["math"],
            compute_dtype=WORDS["data"].get(c["compute"], f"number {c['compute']}"),
        )  # fmt: skip
        with RNNDescriptor(lib, spec, padded_io=padded_io) as descriptor:
            return descriptor.read(), spec
    except (ArgumentError, EngineError):
        return None


@given(rnn_calls(), st.booleans())
@EXAMPLES
def test_rnn_settings(lib, raw, call, padded_io):
    ours = our_rnn(lib, call, padded_io=padded_io)
    agree(real_rnn(raw, call), ours, [applies(call) for applies in STRICTER])
    if not ours:
        return
    got, spec = ours
    names = {
        "algo": "algo", "cellMode": "mode", "biasMode": "bias", "dirMode": "direction", "inputMode": "input",
        "dataType": "data", "mathPrec": "compute", "mathType": "math", "inputSize": "I", "hiddenSize": "H",
        "numLayers": "L",
    }  # fmt: skip
    assert {name: got[name] for name in names} == {name: call[key] for name, key in names.items()}
    assert got["projSize"] == (call["P"] or call["H"])
    assert got["clipMode"].name == ("MINMAX" if call["clip"] else "NONE")
    assert not call["clip"] or (got["lclip"], got["rclip"]) == spec.cell_clip
    assert (bool(got["dropoutDesc"]), got["auxFlags"]) == (False, padded_io)


@pytest.mark.parametrize("layout", cudnnRNNDataLayout_t)
@pytest.mark.parametrize("dtype", DType)
def test_data_settings(lib, dtype, layout):
    with RNNDataDescriptor(lib, dtype, 7, 3, 4, lengths=[7, 2, 1], layout=layout) as descriptor:
        got = descriptor.read()
    names = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "HALF", "bfloat16": "BFLOAT16"}
    assert (got["dataType"].name, got["layout"]) == (names[dtype], layout)
    assert (got["maxSeqLength"], got["batchSize"], got["vectorSize"]) == (7, 3, 4)
    assert (got["seqLengthArray"], got["paddingFill"][: dtype.itemsize]) == ([7, 2, 1], bytes(dtype.itemsize))


def test_dimensions(lib):
    with (
        TensorDescriptor(lib, DType.FLOAT64, [2, 3, 4]) as tensor,
        FilterDescriptor(lib, DType.FLOAT16, [5, 6, 7]) as weights,
    ):
        got, of_weights = tensor.read(), weights.read()
    assert (got["dataType"].name, got["nbDims"], got["dimA"], got["strideA"]) == ("DOUBLE", 3, (2, 3, 4), (12, 4, 1))
    assert (of_weights["dataType"].name, of_weights["nbDims"], of_weights["dimA"]) == ("HALF", 3, (5, 6, 7))


def test_other_lengths_can_be_set_and_none_are_full_and_a_large_batch_passes(lib):
    with RNNDataDescriptor(lib, DType.FLOAT32, 7, 3, 4) as descriptor:
        assert descriptor.read()["seqLengthArray"] == [7, 7, 7]
        descriptor.set_lengths(np.array([7, 2, 1], np.int32))
        got = descriptor.read()
        assert (got["seqLengthArray"], got["maxSeqLength"]) == ([7, 2, 1], 7)
    lengths = np.arange(1_000_000) % 8
    with RNNDataDescriptor(lib, DType.FLOAT32, 7, lengths.size, 4, lengths=lengths) as descriptor:
        assert np.array_equal(descriptor.read()["seqLengthArray"], lengths)


@pytest.mark.parametrize(("T", "B"), [(1, 1), (1, 3), (5, 1), (5, 3)])
def test_the_batch_that_sizes_are_asked_for_is_one_that_cudnn_takes_as_packed_data(lib, T, B):
    schedule = Schedule(T, B, packed=True).longest_ragged()
    got = DataDescriptors(lib, RNNSpec("lstm", 1, 8, 4), schedule).x.read()
    assert got["layout"] is cudnnRNNDataLayout_t.SEQ_MAJOR_PACKED
    assert sum(got["seqLengthArray"]) == T * B - (T > 1 and B > 1)


def test_the_fill_is_a_zero_and_not_null(lib, monkeypatch):
    """NULL would leave what lies past a sequence's end undefined; cuDNN's getter reports both as zeros."""
    fills, bind = [], Function.bind

    def watched(function, *left, **values):
        fills.append(values.get("paddingFill"))
        return bind(function, *left, **values)

    monkeypatch.setattr(Function, "bind", watched)
    RNNDataDescriptor(lib, DType.FLOAT64, 5, 2, 4)
    assert [fill.raw for fill in fills if fill is not None] == [bytes(8)]
