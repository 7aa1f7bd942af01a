"""The algorithms and the math type that torch's own modules use in cuDNN, and their kind of error. Pure functions.

Source: RNN.cpp (PyTorch aten/src/ATen/native/cudnn/RNN.cpp @00fc08a): `get_algo` and what it calls; Descriptors.h
(ATen/cudnn/Descriptors.h of PyTorch 2.13): `RNNDescriptor::set`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pycudnnrnn.engines.cudnn.descriptors import SMALL_H_TRAINED
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.spec import Algorithm, BiasMode, DType, MathType, RNNMode, RNNSpec

STATIC_UNITS_MAX: Final = 1024
"""Source: use_persist_common_heuristics (RNN.cpp)."""

STATIC_MULTIPROCESSORS: Final = 98
"""Fewest multiprocessors, from compute capability 8.0 on. Source: use_persist_device_heuristics (RNN.cpp)."""

VOLTA_STEPS: Final = ((40, 128), (20, 96), (10, 32))
"""Fewest steps for batches of at most this many sequences, on compute capability 7.x. Source: the same."""


class TorchArgumentError(ArgumentError, RuntimeError):
    """An argument error of a torch module; also a `RuntimeError`, as torch itself raises for most of them."""


class Gpu(NamedTuple):
    """The facts of a GPU that torch's rules use: its compute capability and its number of multiprocessors."""

    major: int
    minor: int
    multiprocessors: int


def algorithm(spec: RNNSpec, T: int, B: int, gpu: Gpu, *, packed: bool, backward: bool) -> Algorithm:
    """Return the algorithm that torch takes for a forward, or for both passes of a backward.

    It is the standard one for bias modes other than double: cuDNN has no other for them. torch never has this case,
    because it adds biases of zero to a module that has none.
    """
    if spec.num_proj or packed or spec.bias_mode is not BiasMode.DOUBLE:
        return Algorithm.STANDARD
    trained = SMALL_H_TRAINED[spec.mode]
    small_h = spec.num_units <= (trained if backward else trained * 3 // 2)
    if small_h and gpu.major >= 6 and spec.dtype is not DType.FLOAT64:
        return Algorithm.PERSIST_STATIC_SMALL_H
    multiples = spec.num_units % 128 == 0 and spec.input_size % 128 == 0
    static = spec.num_pseudo_layers == 1 and spec.num_units <= STATIC_UNITS_MAX and multiples
    if spec.dtype is DType.FLOAT16 and static and _runs_static(spec, T, B, gpu):
        return Algorithm.PERSIST_STATIC
    return Algorithm.STANDARD


def _runs_static(spec: RNNSpec, T: int, B: int, gpu: Gpu) -> bool:
    """Return whether this GPU is faster with the static algorithm, as PyTorch's authors measured."""
    if gpu.major == 7:
        batches = (B % 16 == 0 and B not in (80, 112)) or B == 8
        long = any(fewest <= T and most >= B for fewest, most in VOLTA_STEPS)
        return gpu.minor != 5 and batches and long
    if gpu.major < 8 or gpu.multiprocessors < STATIC_MULTIPROCESSORS or gpu.minor == 6 or spec.mode is RNNMode.GRU:
        return False
    slow = spec.mode is not RNNMode.LSTM and B >= 96 and spec.num_units >= 896
    return B % 8 == 0 and B <= 128 and not slow


def math_type(dtype: DType, gpu: Gpu, *, tf32: bool) -> MathType:
    """Return the math type that torch takes. `tf32` is whether the user allows TF32 for RNNs on CUDA."""
    if gpu.major < 7:
        return MathType.DEFAULT
    if dtype is DType.FLOAT16:
        return MathType.TENSOR_OP
    return MathType.DEFAULT if tf32 else MathType.FMA
