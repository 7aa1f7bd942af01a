"""Checks of sizes for cuDNN, in addition to those of every engine."""

from __future__ import annotations

import math
from typing import Final

from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.layout import arithmetic_layout
from pycudnnrnn.passes import CallConfig
from pycudnnrnn.spec import INT32_MAX, STANDARD_ALGORITHMS, Algorithm, RNNMode, RNNSpec

ALIGNMENT_NBYTES: Final = 16
"""Alignment of every array passed to cuDNN. Source: the widest load that cuDNN's kernels make; CuPy's and torch's own
arrays have 256. cuDNN does not document the alignment it needs, and a misaligned load makes the device unusable. So an
array that is not aligned is copied, or raises an error in calls that make no copies."""

SMALL_H_TRAINED: Final = {RNNMode.LSTM: 128, RNNMode.GRU: 128, RNNMode.RNN_TANH: 256, RNNMode.RNN_RELU: 256}
"""Most units with which algorithm persist_static_small_h has a backward. Its forward takes half as many again, so cuDNN
might fail only after the forward.

Source: use_rnn_persist_small_h in PyTorch's aten/src/ATen/native/cudnn/RNN.cpp.
"""


def check_params(spec: RNNSpec) -> None:
    """Raise if all weights together, or all biases, have too many elements for 32-bit indices.

    Raises:
        ArgumentError: more than 2**31 - 1 elements of weights or of biases.

    Source: cudnnGetRNNWeightSpaceSize takes one more, and each cudnnGetRNNWeightParams then fails, in every dtype
    (observed: 8.9.7, 9.0.0, 9.28.0).
    """
    gates = spec.num_pseudo_layers * spec.num_gates * spec.num_units
    biases = gates * (spec.has_input_bias + spec.has_recurrent_bias)
    for kind, size in (("weights", arithmetic_layout(spec).size - biases), ("biases", biases)):
        if size > INT32_MAX:
            raise ArgumentError("params", f"at most {INT32_MAX} elements of all {kind} together on cuDNN", size)


def check_sizes(config: CallConfig) -> None:
    """Raise if cuDNN cannot run a batch. cuDNN itself silently accepts some that are too large for its 32-bit indices.

    Raises:
        ArgumentError: more than 2**31 - 1 elements of data, of states, of weights or of biases, ragged lengths with an
            algorithm that takes equal ones only, or training of more units than the algorithm has a backward for.

    Source: cudnnSetRNNDataDescriptor takes such sizes, and cudnnSetTensorNdDescriptor refuses them (observed, 9.28).
    """
    spec, schedule = config.spec, config.schedule
    check_params(spec)
    T, B = schedule.T, schedule.B
    for name, width in (("input_data", spec.input_size), ("output", spec.output_size), ("gates", spec.num_units)):
        if T * B * width > INT32_MAX:
            raise ArgumentError(name, f"at most {INT32_MAX} elements", f"T={T} * B={B} * {width}")
    states = spec.num_pseudo_layers, B, spec.num_units
    if math.prod(states) > INT32_MAX:
        raise ArgumentError("input_h", f"at most {INT32_MAX} elements", states, aspect="shape")
    if schedule.is_ragged and spec.algo not in STANDARD_ALGORITHMS:
        raise ArgumentError("sequence_lengths", f"equal lengths with algo {str(spec.algo)!r}", "ragged or packed ones")
    backward_algo = config.backward_algo or spec.algo
    trained = SMALL_H_TRAINED[spec.mode]
    if config.training and backward_algo is Algorithm.PERSIST_STATIC_SMALL_H and spec.num_units > trained:
        most = f"at most {trained} in training with algo {str(backward_algo)!r}"
        raise ArgumentError("num_units", most, spec.num_units)
