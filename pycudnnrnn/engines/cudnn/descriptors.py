"""Owners of cuDNN's descriptors, and the limits of cuDNN in addition to those of every engine.

Arguments are checked first; `read` returns what cuDNN stored.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _libcudnn as c
from pycudnnrnn._libcudnn import Library
from pycudnnrnn.engines.cudnn.owned import Owned
from pycudnnrnn.errors import ArgumentError, EngineError, version_text
from pycudnnrnn.layout import arithmetic_layout
from pycudnnrnn.passes import CallConfig
from pycudnnrnn.spec import (
    INT32_MAX,
    STANDARD_ALGORITHMS,
    Algorithm,
    BiasMode,
    DType,
    MathType,
    RNNMode,
    RNNSpec,
)

BFLOAT16_SINCE: Final = 91300
"""First version whose RNN setters accept CUDNN_DATA_BFLOAT16 (observed: 9.12.0 refuses it, 9.13.0 takes it)."""

ALIGNMENT_NBYTES: Final = 16
"""Alignment of every array passed to cuDNN. Source: the widest load that cuDNN's kernels make; CuPy's and torch's own
arrays have 256. cuDNN does not document the alignment it needs, and a misaligned load makes the device unusable. So an
array that is not aligned is copied, or raises an error in calls that make no copies."""

SMALL_H_TRAINED: Final = {RNNMode.LSTM: 128, RNNMode.GRU: 128, RNNMode.RNN_TANH: 256, RNNMode.RNN_RELU: 256}
"""Most units with which algorithm persist_static_small_h has a backward. Its forward takes half as many again, so cuDNN
might fail only after the forward.

Source: use_rnn_persist_small_h in PyTorch's aten/src/ATen/native/cudnn/RNN.cpp.
"""

RANK_MAX: Final = 8
"""The largest rank of a tensor or filter. Source: CUDNN_DIM_MAX (cudnn_graph.h, 9.28)."""

DATA_TYPES: Final = {
    DType.FLOAT16: c.cudnnDataType_t.HALF,
    DType.BFLOAT16: c.cudnnDataType_t.BFLOAT16,
    DType.FLOAT32: c.cudnnDataType_t.FLOAT,
    DType.FLOAT64: c.cudnnDataType_t.DOUBLE,
}

BIAS_MODES: Final = {
    BiasMode.NONE: c.cudnnRNNBiasMode_t.NO_BIAS,
    BiasMode.SINGLE_INPUT: c.cudnnRNNBiasMode_t.SINGLE_INP_BIAS,
    BiasMode.DOUBLE: c.cudnnRNNBiasMode_t.DOUBLE_BIAS,
    BiasMode.SINGLE_RECURRENT: c.cudnnRNNBiasMode_t.SINGLE_REC_BIAS,
}


def rnn_arguments(spec: RNNSpec) -> dict[str, Any]:
    """Return a spec as arguments of cudnnSetRNNDescriptor_v8, by name and in order, up to the dropout descriptor."""
    return {
        "algo": c.cudnnRNNAlgo_t[spec.algo.name],
        "cellMode": c.cudnnRNNMode_t[spec.mode.name],
        "biasMode": BIAS_MODES[spec.bias_mode],
        "dirMode": c.cudnnDirectionMode_t[spec.direction.name],
        "inputMode": c.cudnnRNNInputMode_t[spec.input_mode.name],
        "dataType": DATA_TYPES[spec.dtype],
        "mathPrec": DATA_TYPES[spec.compute_dtype],
        "mathType": c.cudnnMathType_t[_MATH[spec.math_type]],
        "inputSize": spec.input_size,
        "hiddenSize": spec.num_units,
        "projSize": spec.num_proj or spec.num_units,  # 0 is refused, although the header says it disables projection
        "numLayers": spec.num_layers,
    }


_MATH: Final = {m: "TENSOR_OP_MATH_ALLOW_CONVERSION" if "allow" in m else f"{m.name}_MATH" for m in MathType}


class TensorDescriptor(Owned, kind="TensorDescriptor"):
    """Describe a packed tensor in device memory.

    Source: cudnnSetTensorNdDescriptor (cudnn_ops.h, 9.28).
    """

    def __init__(self, library: Library, dtype: DType, dims: Sequence[int]) -> None:
        strides = [math.prod(dims[i + 1 :]) for i in range(len(dims))]
        super().__init__(library)
        self._configure(library.cudnnSetTensorNdDescriptor, self, DATA_TYPES[dtype], len(dims), dims, strides)

    def read(self) -> dict[str, Any]:
        """Ask cuDNN what it holds."""
        dims, strides = (ctypes.c_int * RANK_MAX)(), (ctypes.c_int * RANK_MAX)()
        answer = self.library.cudnnGetTensorNdDescriptor.read(self, RANK_MAX, dimA=dims, strideA=strides)
        rank = answer["nbDims"]
        return answer | {"dimA": tuple(dims[:rank]), "strideA": tuple(strides[:rank])}


class FilterDescriptor(Owned, kind="FilterDescriptor"):
    """Describe weights for the layout queries of cuDNN 8.x: the buffer as an argument, one matrix or bias as a result.

    Source: cudnnSetFilterNdDescriptor, cudnnGetRNNLinLayerMatrixParams (cudnn_ops_infer.h, cudnn_adv_infer.h, 8.9.7).
    """

    def __init__(self, library: Library, dtype: DType, dims: Sequence[int]) -> None:
        super().__init__(library)
        form = c.cudnnTensorFormat_t.NCHW
        self._configure(library.cudnnSetFilterNdDescriptor, self, DATA_TYPES[dtype], form, len(dims), dims)

    def read(self) -> dict[str, Any]:
        """Ask cuDNN what it holds."""
        dims = (ctypes.c_int * RANK_MAX)()
        answer = self.library.cudnnGetFilterNdDescriptor.read(self, RANK_MAX, filterDimA=dims)
        return answer | {"dimA": tuple(dims[: answer["nbDims"]])}


class DropoutDescriptor(Owned, kind="DropoutDescriptor"):
    """Hold a dropout probability and the random states in device memory, which `states` keeps alive.

    With `restore` cuDNN uses the states that are in memory, and ignores the seed. Otherwise it writes new states from
    the seed, which takes time and synchronises.

    Source: cudnnSetDropoutDescriptor, cudnnRestoreDropoutDescriptor (cudnn_ops.h, 9.28).
    """

    def __init__(
        self, handle: Owned, dropout: float, states: Any, *, address: int, states_nbytes: int, seed: int,
        restore: bool = False,
    ) -> None:  # fmt: skip
        library = handle.library
        super().__init__(library)
        self.states = states
        self._settings = dropout, address, states_nbytes
        setter = library.cudnnRestoreDropoutDescriptor if restore else library.cudnnSetDropoutDescriptor
        self._configure(setter, self, handle, dropout, address, states_nbytes, seed)

    def seed(self, handle: Owned, seed: int) -> None:
        """Write new states from a seed, on the handle's stream, in the same memory."""
        self.library.cudnnSetDropoutDescriptor(self, handle, *self._settings, seed)

    def restore(self, handle: Owned) -> None:
        """Continue from the states that are in memory now."""
        self.library.cudnnRestoreDropoutDescriptor(self, handle, *self._settings, 0)

    @classmethod
    def of_none(cls, handle: Owned) -> DropoutDescriptor:
        """Describe dropout of 0, without states. This takes no time.

        RNN descriptors get it instead of NULL, as in PyTorch, JAX and TensorFlow: no document says that cuDNN allows
        NULL.
        """
        return cls(handle, 0.0, None, address=0, states_nbytes=0, seed=0)


class RNNDescriptor(Owned, kind="RNNDescriptor"):
    """Describe an RNN to cuDNN.

    `algo` replaces the spec's. Without one, "auto" is the standard algorithm. Without a `dropout` descriptor the RNN
    has no dropout, even if the spec has some. `padded_io` must be on for the unpacked layouts; it is off for the packed
    one, as in PyTorch.

    Raises:
        EngineError: bfloat16 before cuDNN 9.13.

    Source: cudnnSetRNNDescriptor_v8, cudnnRNNSetClip_v9 (cudnn_adv.h, 9.28).
    """

    def __init__(
        self, library: Library, spec: RNNSpec, dropout: DropoutDescriptor | None = None, *,
        algo: Algorithm | None = None, padded_io: bool = True,
    ) -> None:  # fmt: skip
        spec = spec.replace(algo=algo or spec.untuned_algo)
        if spec.dtype is DType.BFLOAT16 and library.version < BFLOAT16_SINCE:
            since, got = version_text(BFLOAT16_SINCE), version_text(library.version)
            raise EngineError(f"bfloat16 needs cuDNN {since} or newer; this is {got}")
        super().__init__(library, *(() if dropout is None else (dropout,)))
        padding = c.cudnnRNNPaddingMode_t.ENABLED if padded_io else c.cudnnRNNPaddingMode_t.DISABLED
        self._configure(library.cudnnSetRNNDescriptor_v8, self, *rnn_arguments(spec).values(), dropout, padding)
        if spec.cell_clip is not None:  # after the setter above, which resets it
            mode, nan = c.cudnnRNNClipMode_t.MINMAX, c.cudnnNanPropagation_t.PROPAGATE_NAN
            if library.version >= 90000:
                self._configure(library.cudnnRNNSetClip_v9, self, mode, *spec.cell_clip)
            else:
                self._configure(library.cudnnRNNSetClip_v8, self, mode, nan, *spec.cell_clip)

    def read(self) -> dict[str, Any]:
        """Ask cuDNN what it holds."""
        library = self.library
        clip = (library.cudnnRNNGetClip_v9 if library.version >= 90000 else library.cudnnRNNGetClip_v8).read(self)
        return library.cudnnGetRNNDescriptor_v8.read(self) | clip


class RNNDataDescriptor(Owned, kind="RNNDataDescriptor"):
    """Describe a batch of sequences, whose sizes and lengths have been checked.

    cuDNN fills the output past a sequence's end with zeros. With a NULL fill it would be undefined.

    Source: cudnnSetRNNDataDescriptor (cudnn_adv.h, 9.28).
    """

    def __init__(
        self, library: Library, dtype: DType, time: int, batch: int, vector_size: int, *, lengths: Any,
        layout: c.cudnnRNNDataLayout_t = c.cudnnRNNDataLayout_t.SEQ_MAJOR_UNPACKED,
    ) -> None:  # fmt: skip
        super().__init__(library)
        self.pointer = self._pointer
        self._lengths = lengths = np.array(lengths, np.int32)
        self._set = library.cudnnSetRNNDataDescriptor.bind(
            rnnDataDesc=self, dataType=DATA_TYPES[dtype], layout=layout, maxSeqLength=time, batchSize=batch,
            vectorSize=vector_size, seqLengthArray=(ctypes.c_int * batch).from_buffer(lengths),
            paddingFill=(ctypes.c_char * 8)(),
        )  # fmt: skip
        self._configure(self._set)

    def set_lengths(self, lengths: npt.NDArray[np.int32]) -> None:
        """Set other lengths, already checked, for a batch of the same size."""
        self._lengths[:] = lengths
        self._set()

    def read(self) -> dict[str, Any]:
        """Ask cuDNN what it holds."""
        get, fill = self.library.cudnnGetRNNDataDescriptor, (ctypes.c_char * 8)()
        batch = get.read(self, 0, (ctypes.c_int * 0)(), fill)["batchSize"]  # how many lengths there are
        lengths = (ctypes.c_int * batch)()
        return get.read(self, batch, lengths, fill) | {"seqLengthArray": list(lengths), "paddingFill": fill.raw}


def check_params(spec: RNNSpec) -> None:
    """Raise if all weights together, or all biases, have too many elements for 32-bit indices.

    Raises:
        ArgumentError: more than 2**31 - 1 elements of weights or of biases.

    Source: with one more, the size of cudnnGetRNNWeightSpaceSize has overflowed, with success, and each
    cudnnGetRNNWeightParams fails, in every dtype (observed: 8.9.7, 9.0.0, 9.28.0).
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
