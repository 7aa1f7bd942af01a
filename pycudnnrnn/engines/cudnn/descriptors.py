"""cuDNN's descriptors as owned objects: made from a spec or from lengths, checked first, and readable again."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from pycudnnrnn._checks import check_int
from pycudnnrnn._libcudnn import (
    cudnnDataType_t,
    cudnnDirectionMode_t,
    cudnnDropoutDescriptor_t,
    cudnnFilterDescriptor_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnRNNAlgo_t,
    cudnnRNNBiasMode_t,
    cudnnRNNClipMode_t,
    cudnnRNNDataDescriptor_t,
    cudnnRNNDataLayout_t,
    cudnnRNNDescriptor_t,
    cudnnRNNInputMode_t,
    cudnnRNNMode_t,
    cudnnRNNPaddingMode_t,
    cudnnTensorDescriptor_t,
    cudnnTensorFormat_t,
)
from pycudnnrnn.engines.cudnn.owned import Owned
from pycudnnrnn.engines.cudnn.settings import (
    ALGORITHMS,
    BIAS_MODES,
    DATA_TYPES,
    DIRECTIONS,
    INPUT_MODES,
    MATH_TYPES,
    MODES,
    DropoutSettings,
    RNNDataSettings,
    RNNSettings,
    TensorSettings,
)
from pycudnnrnn.errors import ArgumentError, VersionError, version_text
from pycudnnrnn.schedule import check_lengths
from pycudnnrnn.spec import (
    INT32_MAX,
    TIME_MAX,
    Algorithm,
    DType,
    RNNSpec,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pycudnnrnn._libcudnn import Library

BFLOAT16_SINCE: Final = 91300
"""First version whose RNN setters accept CUDNN_DATA_BFLOAT16 (observed: 9.12.0 refuses it, 9.13.0 takes it)."""

RANKS: Final = range(3, 9)
"""Ranks that the tensor and filter setters accept in every version (observed, 8.9.7 to 9.28)."""


class TensorDescriptor(Owned):
    """Describe a packed tensor in device memory.

    Raises:
        ArgumentError: not 3 to 8 dimensions, one below 1, or more than 2**31 - 1 elements.

    Source: cudnnSetTensorNdDescriptor (cudnn_ops.h, 9.28).
    """

    def __init__(self, library: Library, dtype: DType, dims: Sequence[int]) -> None:
        dims = _checked_dims(dims)
        if math.prod(dims) > INT32_MAX:
            raise ArgumentError("dims", f"at most {INT32_MAX} elements", dims)
        strides = [math.prod(dims[i + 1 :]) for i in range(len(dims))]
        super().__init__(
            library, cudnnTensorDescriptor_t(), "cudnnCreateTensorDescriptor", "cudnnDestroyTensorDescriptor"
        )
        self._configure(library.cudnnSetTensorNdDescriptor, self, DATA_TYPES[dtype], len(dims), dims, strides)

    def read(self) -> TensorSettings:
        """Ask cuDNN what it holds."""
        most = RANKS[-1]
        dtype, rank, dims, strides = ctypes.c_int(), ctypes.c_int(), (ctypes.c_int * most)(), (ctypes.c_int * most)()
        self.library.cudnnGetTensorNdDescriptor(self, most, dtype, rank, dims, strides)
        return TensorSettings(cudnnDataType_t(dtype.value), tuple(dims[: rank.value]), tuple(strides[: rank.value]))


class FilterDescriptor(Owned):
    """Describe weights for the query calls of cuDNN 8.x: their size as an argument, one matrix as a result.

    Raises:
        ArgumentError: not 3 to 8 dimensions, or one below 1.

    Source: cudnnSetFilterNdDescriptor, cudnnGetRNNLinLayerMatrixParams (cudnn_ops_infer.h, cudnn_adv_infer.h, 8.9.7).
    """

    def __init__(self, library: Library, dtype: DType, dims: Sequence[int]) -> None:
        dims = _checked_dims(dims)
        super().__init__(
            library, cudnnFilterDescriptor_t(), "cudnnCreateFilterDescriptor", "cudnnDestroyFilterDescriptor"
        )
        self._configure(
            library.cudnnSetFilterNdDescriptor, self, DATA_TYPES[dtype], cudnnTensorFormat_t.NCHW, len(dims), dims
        )

    def read(self) -> TensorSettings:
        """Ask cuDNN what it holds."""
        most = RANKS[-1]
        dtype, form, rank, dims = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), (ctypes.c_int * most)()
        self.library.cudnnGetFilterNdDescriptor(self, most, dtype, form, rank, dims)
        return TensorSettings(cudnnDataType_t(dtype.value), tuple(dims[: rank.value]))


class DropoutDescriptor(Owned):
    """Hold a dropout probability and the random states in device memory, which `states` keeps alive.

    With `restore` the states continue where they were saved, and cuDNN ignores the seed; otherwise they are written
    anew from the seed, which takes time and synchronises.

    Source: cudnnSetDropoutDescriptor, cudnnRestoreDropoutDescriptor (cudnn_ops.h, 9.28).
    """

    def __init__(
        self,
        handle: Owned,
        dropout: float,
        states: Any,
        *,
        address: int,
        states_nbytes: int,
        seed: int,
        restore: bool = False,
    ) -> None:
        library = handle.library
        super().__init__(
            library, cudnnDropoutDescriptor_t(), "cudnnCreateDropoutDescriptor", "cudnnDestroyDropoutDescriptor"
        )
        self.states = states
        self._settings = dropout, address, states_nbytes
        setter = library.cudnnRestoreDropoutDescriptor if restore else library.cudnnSetDropoutDescriptor
        self._configure(setter, self, handle, dropout, address, states_nbytes, seed)

    def seed(self, handle: Owned, seed: int) -> None:
        """Write the states anew from a seed, on the handle's stream; nothing is made anew."""
        self.library.cudnnSetDropoutDescriptor(self, handle, *self._settings, seed)

    def restore(self, handle: Owned) -> None:
        """Go on from the states as they are in memory by now."""
        self.library.cudnnRestoreDropoutDescriptor(self, handle, *self._settings, 0)

    @classmethod
    def of_none(cls, handle: Owned) -> DropoutDescriptor:
        """Describe that nothing is dropped: without states, which takes no time.

        An RNN descriptor gets one where it could have NULL, which no document says that cuDNN never reads. PyTorch, JAX
        and TensorFlow do so.
        """
        return cls(handle, 0.0, None, address=0, states_nbytes=0, seed=0)

    def read(self, handle: Owned) -> DropoutSettings:
        """Ask cuDNN what it holds."""
        dropout, states, seed = ctypes.c_float(), ctypes.c_void_p(), ctypes.c_ulonglong()
        self.library.cudnnGetDropoutDescriptor(self, handle, dropout, states, seed)
        return DropoutSettings(dropout.value, states.value or 0, seed.value)


class RNNDescriptor(Owned):
    """Describe an RNN to cuDNN.

    `algo` replaces the spec's, which may be "auto". Without a `dropout` descriptor the RNN has no dropout, whatever the
    spec says. `padded_io` must be on for the unpacked layouts.

    Raises:
        ArgumentError: algorithm "auto", which has to be decided before.
        VersionError: bfloat16 before cuDNN 9.13.

    Source: cudnnSetRNNDescriptor_v8, cudnnRNNSetClip_v9 (cudnn_adv.h, 9.28).
    """

    def __init__(
        self,
        library: Library,
        spec: RNNSpec,
        dropout: DropoutDescriptor | None = None,
        *,
        algo: Algorithm | None = None,
        padded_io: bool = True,
    ) -> None:
        spec = spec if algo is None else spec.replace(algo=algo)
        if spec.algo is Algorithm.AUTO:
            raise ArgumentError("algo", "one algorithm ('auto' is decided before a descriptor is made)", "'auto'")
        data_type = _rnn_data_type(library, spec.dtype)
        parents = () if dropout is None else (dropout,)
        super().__init__(
            library, cudnnRNNDescriptor_t(), "cudnnCreateRNNDescriptor", "cudnnDestroyRNNDescriptor", *parents
        )
        self._configure(
            library.cudnnSetRNNDescriptor_v8,
            self,
            ALGORITHMS[spec.algo],
            MODES[spec.mode],
            BIAS_MODES[spec.bias_mode],
            DIRECTIONS[spec.direction],
            INPUT_MODES[spec.input_mode],
            data_type,
            DATA_TYPES[spec.compute_dtype],
            MATH_TYPES[spec.math_type],
            spec.input_size,
            spec.num_units,
            spec.num_proj or spec.num_units,  # 0 is refused, although the header says that it disables projection
            spec.num_layers,
            dropout,
            cudnnRNNPaddingMode_t.ENABLED if padded_io else cudnnRNNPaddingMode_t.DISABLED,
        )
        if spec.cell_clip is not None:  # after the setter above, which resets it
            self._set_clip(*spec.cell_clip)

    def _set_clip(self, low: float, high: float) -> None:
        if self.library.version >= 90000:
            self._configure(self.library.cudnnRNNSetClip_v9, self, cudnnRNNClipMode_t.MINMAX, low, high)
        else:
            nan = cudnnNanPropagation_t.PROPAGATE_NAN
            self._configure(self.library.cudnnRNNSetClip_v8, self, cudnnRNNClipMode_t.MINMAX, nan, low, high)

    def read(self) -> RNNSettings:
        """Ask cuDNN what it holds."""
        algo, mode, bias, direction, input_mode, dtype, compute, math_type = enums = [ctypes.c_int() for _ in range(8)]
        input_size, hidden_size, proj_size, num_layers = sizes = [ctypes.c_int() for _ in range(4)]
        dropout, flags = cudnnDropoutDescriptor_t(), ctypes.c_uint()
        self.library.cudnnGetRNNDescriptor_v8(self, *enums, *sizes, dropout, flags)
        return RNNSettings(
            cudnnRNNAlgo_t(algo.value),
            cudnnRNNMode_t(mode.value),
            cudnnRNNBiasMode_t(bias.value),
            cudnnDirectionMode_t(direction.value),
            cudnnRNNInputMode_t(input_mode.value),
            cudnnDataType_t(dtype.value),
            cudnnDataType_t(compute.value),
            cudnnMathType_t(math_type.value),
            input_size.value,
            hidden_size.value,
            proj_size.value,
            num_layers.value,
            ctypes.cast(dropout, ctypes.c_void_p).value or 0,
            cudnnRNNPaddingMode_t(flags.value),
            self._read_clip(),
        )

    def _read_clip(self) -> tuple[float, float] | None:
        mode, low, high = ctypes.c_int(), ctypes.c_double(), ctypes.c_double()
        if self.library.version >= 90000:
            self.library.cudnnRNNGetClip_v9(self, mode, low, high)
        else:
            self.library.cudnnRNNGetClip_v8(self, mode, ctypes.c_int(), low, high)
        return (low.value, high.value) if mode.value == cudnnRNNClipMode_t.MINMAX else None


class RNNDataDescriptor(Owned):
    """Describe a batch of sequences; `lengths` of None stands for `time` each.

    What lies past a sequence's end is filled with zeros: a NULL fill would leave it undefined.

    Raises:
        ArgumentError: a size below 1, more than 65535 time steps, a length outside 0 to `time`, or lengths that the
            packed layout does not allow.
        ArgumentTypeError: lengths that are not integers on the host.
        VersionError: bfloat16 before cuDNN 9.13.

    Source: cudnnSetRNNDataDescriptor (cudnn_adv.h, 9.28).
    """

    def __init__(
        self,
        library: Library,
        dtype: DType,
        time: int,
        batch: int,
        vector_size: int,
        *,
        lengths: Any = None,
        layout: cudnnRNNDataLayout_t = cudnnRNNDataLayout_t.SEQ_MAJOR_UNPACKED,
    ) -> None:
        data_type = _rnn_data_type(library, dtype)
        check_int("time", time, 1, TIME_MAX)
        check_int("batch", batch, 1, INT32_MAX)
        check_int("vector_size", vector_size, 1, INT32_MAX)
        checked = check_lengths(lengths, time, batch)
        lengths = np.full(batch, time, np.int32) if checked is None else np.array(checked, np.int32)
        if layout == cudnnRNNDataLayout_t.SEQ_MAJOR_PACKED:
            _check_packed(lengths, time)
        super().__init__(
            library, cudnnRNNDataDescriptor_t(), "cudnnCreateRNNDataDescriptor", "cudnnDestroyRNNDataDescriptor"
        )
        self.pointer = self._pointer
        self._layout, self._lengths = layout, lengths
        self._set = library.cudnnSetRNNDataDescriptor.bind(
            rnnDataDesc=self, dataType=data_type, layout=layout, maxSeqLength=time, batchSize=batch,
            vectorSize=vector_size, seqLengthArray=(ctypes.c_int * batch).from_buffer(lengths),
            paddingFill=(ctypes.c_char * 8)(),
        )  # fmt: skip
        self._configure(self._set)

    def set_lengths(self, lengths: npt.NDArray[np.int32]) -> None:
        """Describe a batch of the same size with other lengths, which were checked; nothing is made anew."""
        if self._layout == cudnnRNNDataLayout_t.SEQ_MAJOR_PACKED:
            raise ArgumentError("layout", "an unpacked one: packed lengths decide the size", self._layout)
        self._lengths[:] = lengths
        self._set()

    def read(self) -> RNNDataSettings:
        """Ask cuDNN what it holds."""
        dtype, layout, time, batch, vector_size = sizes = [ctypes.c_int() for _ in range(5)]
        fill = (ctypes.c_char * 8)()
        get = self.library.cudnnGetRNNDataDescriptor
        get(self, *sizes, 0, (ctypes.c_int * 0)(), fill)  # how many lengths there are
        lengths = (ctypes.c_int * batch.value)()
        get(self, *sizes, batch.value, lengths, fill)
        kind = cudnnDataType_t(dtype.value)
        itemsize = next(ours for ours, native in DATA_TYPES.items() if native is kind).itemsize
        return RNNDataSettings(
            kind,
            cudnnRNNDataLayout_t(layout.value),
            time.value,
            batch.value,
            vector_size.value,
            list(lengths),
            fill.raw[:itemsize],
        )


def _check_packed(lengths: np.ndarray[Any, np.dtype[np.int32]], time: int) -> None:
    if lengths[0] != time or lengths[-1] < 1 or bool((np.diff(lengths) > 0).any()):
        raise ArgumentError(
            "sequence_lengths", f"{time} first, then never longer ones, none of 0, in the packed layout", lengths
        )


def _checked_dims(dims: Sequence[int]) -> list[int]:
    if len(dims) not in RANKS:
        raise ArgumentError("dims", f"{RANKS[0]} to {RANKS[-1]} dimensions", len(dims))
    return [check_int(f"dims[{i}]", size, 1, INT32_MAX) for i, size in enumerate(dims)]


def _rnn_data_type(library: Library, dtype: DType) -> cudnnDataType_t:
    if dtype is DType.BFLOAT16 and library.version < BFLOAT16_SINCE:
        raise VersionError(
            f"bfloat16 needs cuDNN {version_text(BFLOAT16_SINCE)} or newer; this is {version_text(library.version)}"
        )
    return DATA_TYPES[dtype]
