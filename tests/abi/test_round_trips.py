"""What a descriptor was given is what the real library's getters give back."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn._libcudnn import (
    cudnnDataType_t,
    cudnnRNNClipMode_t,
    cudnnRNNDataLayout_t,
    cudnnRNNPaddingMode_t,
    cudnnTensorFormat_t,
)
from pycudnnrnn._libcudnn_abi import PROTOTYPES, Prototype
from pycudnnrnn.engines.cudnn.descriptors import FilterDescriptor, RNNDataDescriptor, RNNDescriptor, TensorDescriptor
from pycudnnrnn.engines.cudnn.native_calls import DataDescriptors
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import Algorithm, BiasMode, Direction, DType, InputMode, MathType, RNNMode, RNNSpec
from tests.helpers.examples import examples

EXAMPLES = examples(2000)

C_NAMES = {
    RNNMode.LSTM: "LSTM", RNNMode.GRU: "GRU", RNNMode.RNN_TANH: "RNN_TANH", RNNMode.RNN_RELU: "RNN_RELU",
    BiasMode.NONE: "NO_BIAS", BiasMode.DOUBLE: "DOUBLE_BIAS", BiasMode.SINGLE_INPUT: "SINGLE_INP_BIAS",
    BiasMode.SINGLE_RECURRENT: "SINGLE_REC_BIAS",
    Direction.UNIDIRECTIONAL: "UNIDIRECTIONAL", Direction.BIDIRECTIONAL: "BIDIRECTIONAL",
    InputMode.LINEAR_INPUT: "LINEAR_INPUT", InputMode.SKIP_INPUT: "SKIP_INPUT",
    DType.FLOAT16: "HALF", DType.BFLOAT16: "BFLOAT16", DType.FLOAT32: "FLOAT", DType.FLOAT64: "DOUBLE",
    MathType.DEFAULT: "DEFAULT_MATH", MathType.FMA: "FMA_MATH", MathType.TENSOR_OP: "TENSOR_OP_MATH",
    MathType.TENSOR_OP_ALLOW_CONVERSION: "TENSOR_OP_MATH_ALLOW_CONVERSION",
    Algorithm.STANDARD: "STANDARD", Algorithm.PERSIST_STATIC: "PERSIST_STATIC",
    Algorithm.PERSIST_DYNAMIC: "PERSIST_DYNAMIC", Algorithm.PERSIST_STATIC_SMALL_H: "PERSIST_STATIC_SMALL_H",
}  # fmt: skip

SIZES = st.integers(1, 12) | st.sampled_from([192, 384, 1023, 1024, 65536, 2**31 - 1])


def dtypes(lib):
    return st.sampled_from([dtype for dtype in DType if dtype is not DType.BFLOAT16 or lib.version >= 91300])


def choices(values):
    return st.sampled_from(list(values))


@st.composite
def rnn_specs(draw, lib):
    """Draw a spec from all that `RNNSpec` allows."""
    mode, dtype, units = draw(choices(RNNMode)), draw(dtypes(lib)), draw(SIZES)
    compute = draw(st.sampled_from([None, DType.FLOAT16])) if dtype is DType.FLOAT16 else None
    bias = draw(choices(BiasMode))
    lstm = mode is RNNMode.LSTM
    proj = draw(st.none() | st.integers(1, units - 1)) if lstm and units > 1 else None
    algorithms = [a for a in Algorithm if a is not Algorithm.AUTO]
    if dtype is DType.FLOAT64:
        algorithms = [Algorithm.STANDARD, Algorithm.PERSIST_DYNAMIC]
    if compute or proj or bias is not BiasMode.DOUBLE:
        algorithms = [Algorithm.STANDARD]
    bound = st.floats(allow_nan=False)
    skip = draw(st.booleans())
    return RNNSpec(
        mode,
        draw(SIZES),
        units,
        units if skip else draw(SIZES),
        InputMode.SKIP_INPUT if skip else InputMode.LINEAR_INPUT,
        draw(choices(Direction)),
        dtype,
        num_proj=proj,
        bias_mode=bias,
        cell_clip=draw(st.none() | st.tuples(bound, bound).map(lambda pair: tuple(sorted(pair)))) if lstm else None,
        algo=draw(choices(algorithms)),
        math_type=draw(choices(MathType)),
        compute_dtype=compute,
    )


@given(st.data(), st.booleans())
@EXAMPLES
def test_an_rnn_descriptor_gives_back_its_spec(lib, data, padded_io):
    spec = data.draw(rnn_specs(lib))
    with RNNDescriptor(lib, spec, padded_io=padded_io) as descriptor:
        got = descriptor.read()
    words = {
        "algo": spec.algo, "cellMode": spec.mode, "biasMode": spec.bias_mode, "dirMode": spec.direction,
        "inputMode": spec.input_mode, "dataType": spec.dtype, "mathPrec": spec.compute_dtype,
        "mathType": spec.math_type,
    }  # fmt: skip
    assert {name: got[name].name for name in words} == {name: C_NAMES[word] for name, word in words.items()}
    sizes = got["inputSize"], got["hiddenSize"], got["numLayers"]
    assert sizes == (spec.input_size, spec.num_units, spec.num_layers)
    assert got["projSize"] == (spec.num_units if spec.num_proj is None else spec.num_proj)
    if spec.cell_clip is None:
        assert got["clipMode"] is cudnnRNNClipMode_t.NONE
    else:
        assert got["clipMode"] is cudnnRNNClipMode_t.MINMAX
        assert (got["lclip"], got["rclip"]) == spec.cell_clip
    assert not got["dropoutDesc"]
    assert got["auxFlags"] == cudnnRNNPaddingMode_t(padded_io)


@given(st.data())
@EXAMPLES
def test_an_rnn_data_descriptor_gives_back_its_lengths_and_a_zero_fill(lib, data):
    layout, dtype = data.draw(choices(cudnnRNNDataLayout_t)), data.draw(dtypes(lib))
    time = data.draw(st.integers(1, 9) | st.sampled_from([255, 4096, 65535]))
    batch, width = data.draw(st.integers(1, 9)), data.draw(SIZES)
    lengths = data.draw(st.lists(st.integers(0, time), min_size=batch, max_size=batch))
    if layout is cudnnRNNDataLayout_t.SEQ_MAJOR_PACKED:
        lengths = [time, *sorted((max(1, length) for length in lengths[1:]), reverse=True)]
    given_as = data.draw(st.sampled_from([list, tuple, np.array, lambda x: np.array(x, np.uint16)]))(lengths)
    with RNNDataDescriptor(lib, dtype, time, batch, width, lengths=given_as, layout=layout) as descriptor:
        got = descriptor.read()
    assert got["dataType"].name == C_NAMES[dtype]
    assert got["layout"] is layout
    assert (got["maxSeqLength"], got["batchSize"], got["vectorSize"]) == (time, batch, width)
    assert got["seqLengthArray"] == lengths
    assert got["paddingFill"][: dtype.itemsize] == bytes(dtype.itemsize)


@given(st.data(), choices(cudnnRNNDataLayout_t))
@EXAMPLES
def test_an_rnn_data_descriptor_takes_other_lengths(lib, data, layout):
    time, batch = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    packed = layout is cudnnRNNDataLayout_t.SEQ_MAJOR_PACKED
    with RNNDataDescriptor(lib, DType.FLOAT32, time, batch, 4, layout=layout) as descriptor:
        for _ in range(2):
            lengths = data.draw(st.lists(st.integers(1, time), min_size=batch, max_size=batch))
            lengths = [time, *sorted(lengths[1:], reverse=True)] if packed else lengths
            descriptor.set_lengths(np.array(lengths, np.int32))
            got = descriptor.read()
            assert (got["seqLengthArray"], got["layout"], got["maxSeqLength"]) == (lengths, layout, time)


@pytest.mark.parametrize(("T", "B"), list(itertools.product((1, 2, 5), (1, 2, 3))))
def test_the_batch_that_sizes_are_asked_for_is_one_that_cudnn_takes_as_packed_data(lib, T, B):
    """The most steps that lengths which differ have, where there are such."""
    schedule = Schedule(T, B, packed=True).hardly_ragged()
    got = DataDescriptors(lib, RNNSpec("lstm", 1, 8, 4), schedule).x.read()
    assert got["layout"] is cudnnRNNDataLayout_t.SEQ_MAJOR_PACKED
    assert sum(got["seqLengthArray"]) == T * B - (T > 1 and B > 1)


@dataclasses.dataclass
class _Making:
    prototype: Prototype

    def __call__(self, reference):
        ctypes.memset(reference, 1, 8)


def test_the_fill_is_a_zero_and_not_null():
    """NULL would leave what lies past a sequence's end undefined; cuDNN's getter tells both as zeros."""
    calls = []

    class Recording:
        version = 92800

        def __getattr__(self, name):
            if name.startswith("cudnnCreate"):
                return _Making(PROTOTYPES[name])
            if name.startswith("cudnnDestroy"):
                return lambda pointer: None
            return SimpleNamespace(bind=lambda **given: lambda: calls.append((name, given["paddingFill"])))

    RNNDataDescriptor(Recording(), DType.FLOAT64, 5, 2, 4)
    name, fill = calls[0]
    assert (name, fill.raw) == ("cudnnSetRNNDataDescriptor", bytes(8))


def test_lengths_of_none_are_full(lib):
    with RNNDataDescriptor(lib, DType.FLOAT32, 7, 3, 4) as descriptor:
        assert descriptor.read()["seqLengthArray"] == [7, 7, 7]


def test_a_large_batch_passes(lib):
    lengths = np.arange(1_000_000) % 8
    with RNNDataDescriptor(lib, DType.FLOAT32, 7, lengths.size, 4, lengths=lengths) as descriptor:
        assert np.array_equal(descriptor.read()["seqLengthArray"], lengths)


@given(st.data())
@EXAMPLES
def test_tensor_and_filter_descriptors_give_back_their_dimensions(lib, data):
    dtype = data.draw(dtypes(lib))
    dims = data.draw(st.lists(st.integers(1, 14), min_size=3, max_size=8))
    with TensorDescriptor(lib, dtype, dims) as tensor, FilterDescriptor(lib, dtype, dims) as weights:
        got, filtered = tensor.read(), weights.read()
    strides = tuple(math.prod(dims[i + 1 :]) for i in range(len(dims)))
    kind, rank = cudnnDataType_t[C_NAMES[dtype]], len(dims)
    assert got == {"dataType": kind, "nbDims": rank, "dimA": tuple(dims), "strideA": strides}
    assert (filtered["dataType"], filtered["nbDims"], filtered["dimA"]) == (kind, rank, tuple(dims))
    assert filtered["format"] is cudnnTensorFormat_t.NCHW
