"""What a descriptor holds: the spec's words in C's constants, and the values that cuDNN's getters tell."""

from __future__ import annotations

from typing import Final, NamedTuple

from pycudnnrnn._libcudnn import (
    cudnnDataType_t,
    cudnnDirectionMode_t,
    cudnnMathType_t,
    cudnnRNNAlgo_t,
    cudnnRNNBiasMode_t,
    cudnnRNNDataLayout_t,
    cudnnRNNInputMode_t,
    cudnnRNNMode_t,
    cudnnRNNPaddingMode_t,
)
from pycudnnrnn.spec import Algorithm, BiasMode, Direction, DType, InputMode, MathType, RNNMode

DATA_TYPES: Final = {
    DType.FLOAT16: cudnnDataType_t.HALF,
    DType.BFLOAT16: cudnnDataType_t.BFLOAT16,
    DType.FLOAT32: cudnnDataType_t.FLOAT,
    DType.FLOAT64: cudnnDataType_t.DOUBLE,
}

MODES: Final = {ours: cudnnRNNMode_t[ours.name] for ours in RNNMode}

BIAS_MODES: Final = {
    BiasMode.NONE: cudnnRNNBiasMode_t.NO_BIAS,
    BiasMode.SINGLE_INPUT: cudnnRNNBiasMode_t.SINGLE_INP_BIAS,
    BiasMode.DOUBLE: cudnnRNNBiasMode_t.DOUBLE_BIAS,
    BiasMode.SINGLE_RECURRENT: cudnnRNNBiasMode_t.SINGLE_REC_BIAS,
}

DIRECTIONS: Final = {ours: cudnnDirectionMode_t[ours.name] for ours in Direction}

INPUT_MODES: Final = {ours: cudnnRNNInputMode_t[ours.name] for ours in InputMode}

MATH_TYPES: Final = {
    MathType.DEFAULT: cudnnMathType_t.DEFAULT_MATH,
    MathType.TENSOR_OP: cudnnMathType_t.TENSOR_OP_MATH,
    MathType.TENSOR_OP_ALLOW_CONVERSION: cudnnMathType_t.TENSOR_OP_MATH_ALLOW_CONVERSION,
    MathType.FMA: cudnnMathType_t.FMA_MATH,
}

ALGORITHMS: Final[dict[Algorithm, cudnnRNNAlgo_t]] = {
    ours: cudnnRNNAlgo_t[ours.name] for ours in Algorithm if ours is not Algorithm.AUTO
}


class RNNSettings(NamedTuple):
    """What an RNN descriptor holds, as cuDNN's getters tell it; `dropout` is the dropout descriptor's address, or 0."""

    algo: cudnnRNNAlgo_t
    mode: cudnnRNNMode_t
    bias_mode: cudnnRNNBiasMode_t
    direction: cudnnDirectionMode_t
    input_mode: cudnnRNNInputMode_t
    dtype: cudnnDataType_t
    compute_dtype: cudnnDataType_t
    math_type: cudnnMathType_t
    input_size: int
    num_units: int
    proj_size: int
    num_layers: int
    dropout: int
    padded_io: cudnnRNNPaddingMode_t
    cell_clip: tuple[float, float] | None


class RNNDataSettings(NamedTuple):
    """What an RNN data descriptor holds; `padding_fill` is one element's bytes."""

    dtype: cudnnDataType_t
    layout: cudnnRNNDataLayout_t
    time: int
    batch: int
    vector_size: int
    lengths: list[int]
    padding_fill: bytes


class TensorSettings(NamedTuple):
    """What a tensor or filter descriptor holds; a filter has no strides."""

    dtype: cudnnDataType_t
    dims: tuple[int, ...]
    strides: tuple[int, ...] = ()


class DropoutSettings(NamedTuple):
    """What a dropout descriptor holds; `states` is a device address."""

    dropout: float
    states: int
    seed: int
