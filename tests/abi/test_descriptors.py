"""The real setters take what our descriptors set, and it is what the real getters give back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn._libcudnn import Function
from pycudnnrnn._libcudnn_abi import cudnnRNNDataLayout_t
from pycudnnrnn.engines.cudnn.descriptors import FilterDescriptor, RNNDataDescriptor, RNNDescriptor, TensorDescriptor
from pycudnnrnn.engines.cudnn.native import DataDescriptors
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import Algorithm, DType, MathType, RNNSpec
from pycudnnrnn.testing.strategies import specs
from tests.helpers.examples import examples

ALGORITHMS = [algo for algo in Algorithm if algo is not Algorithm.AUTO]
DTYPES = {"float16": "HALF", "bfloat16": "BFLOAT16", "float32": "FLOAT", "float64": "DOUBLE"}
BIASES = {
    "none": "NO_BIAS", "single_input": "SINGLE_INP_BIAS", "double": "DOUBLE_BIAS",
    "single_recurrent": "SINGLE_REC_BIAS",
}  # fmt: skip
MATHS = {
    "default": "DEFAULT_MATH", "tensor_op": "TENSOR_OP_MATH", "fma": "FMA_MATH",
    "tensor_op_allow_conversion": "TENSOR_OP_MATH_ALLOW_CONVERSION",
}  # fmt: skip
EVERY = specs(
    algorithms=ALGORITHMS, dtypes=list(DTYPES), math_types=[None, *MathType], compute_dtypes=[None, *DTYPES],
    max_layers=9, max_units=99,
) | specs(projection=True, max_units=99)  # fmt: skip


@examples(1000)
@given(EVERY, st.booleans())
def test_rnn_settings(lib, spec, padded_io):
    with RNNDescriptor(lib, spec, padded_io=padded_io) as descriptor:
        got = descriptor.read()
    words = {"algo": spec.algo, "cellMode": spec.mode, "dirMode": spec.direction, "inputMode": spec.input_mode}
    assert {name: got[name].name.lower() for name in words} == words
    assert (got["biasMode"].name, got["mathType"].name) == (BIASES[spec.bias_mode], MATHS[spec.math_type])
    sizes = {"inputSize": spec.input_size, "hiddenSize": spec.num_units, "numLayers": spec.num_layers}
    assert {name: got[name] for name in sizes} == sizes
    assert got["projSize"] == (spec.num_proj or spec.num_units)
    assert (got["dataType"].name, got["mathPrec"].name) == (DTYPES[spec.dtype], DTYPES[spec.compute_dtype])
    assert got["clipMode"].name == ("MINMAX" if spec.cell_clip else "NONE")
    assert not spec.cell_clip or (got["lclip"], got["rclip"]) == spec.cell_clip
    assert (bool(got["dropoutDesc"]), got["auxFlags"]) == (False, padded_io)


@pytest.mark.parametrize("layout", cudnnRNNDataLayout_t)
@pytest.mark.parametrize("dtype", DType)
def test_data_settings(lib, dtype, layout):
    with RNNDataDescriptor(lib, dtype, 7, 3, 4, lengths=[7, 2, 1], layout=layout) as descriptor:
        got = descriptor.read()
    assert (got["dataType"].name, got["layout"]) == (DTYPES[dtype], layout)
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


def test_other_lengths_can_be_set_and_a_large_batch_passes(lib):
    with RNNDataDescriptor(lib, DType.FLOAT32, 7, 3, 4, lengths=Schedule(7, 3).lengths_int32) as descriptor:
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
    RNNDataDescriptor(lib, DType.FLOAT64, 5, 2, 4, lengths=[5, 5])
    assert [fill.raw for fill in fills if fill is not None] == [bytes(8)]
