"""What is checked of sizes and arrays before anything crosses to cuDNN, beyond what every engine checks."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from weakref import ref

import numpy as np

from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import INT32_MAX, STANDARD_ALGORITHMS, Algorithm, RNNMode, RNNSpec

PARAMS_ALIGNMENT_NBYTES: Final = 16
"""Alignment of params. Source: the widest load that cuDNN's kernels make; CuPy's and torch's own arrays have 256."""

DATA_ALIGNMENT_NBYTES: Final = 16
"""Alignment of every other array that crosses. No document says on which elements they may begin, and a kernel that
loads vectors from elsewhere takes the device with it: what is not aligned is copied, or refused where nothing is."""

SMALL_H_TRAINED: Final = {RNNMode.LSTM: 128, RNNMode.GRU: 128, RNNMode.RNN_TANH: 256, RNNMode.RNN_RELU: 256}
"""Most units that algorithm persist_static_small_h has a backward for. It has a forward for half as many again, so that
cuDNN might refuse what cannot be trained only after the forward.

Source: use_rnn_persist_small_h in PyTorch's aten/src/ATen/native/cudnn/RNN.cpp.
"""


def check_matrices(spec: RNNSpec) -> None:
    """Refuse an RNN with a matrix that 32-bit indices cannot hold; its descriptor would be made all the same.

    Raises:
        ArgumentError: more than 2**31 - 1 elements in one matrix.

    Source: cudnnSetRNNDescriptor_v8 takes such sizes, and cudnnSetTensorNdDescriptor refuses them (observed, 9.28).
    """
    widths = {spec.state_size, spec.layer_input_size(0), spec.layer_input_size(spec.num_layers - 1)}
    if spec.num_units * max(widths) > INT32_MAX:
        raise ArgumentError("params", f"at most {INT32_MAX} elements in a matrix", (spec.num_units, max(widths)))


def check_sizes(spec: RNNSpec, schedule: Schedule, *, training: bool = False) -> None:
    """Refuse a batch whose element counts cuDNN's 32-bit indices cannot hold: it accepts some of them silently.

    Raises:
        ArgumentError: more than 2**31 - 1 elements of data, of states or of a matrix, ragged lengths with an algorithm
            that takes equal ones only, or training of more units than the algorithm has a backward for.

    Source: cudnnSetRNNDataDescriptor takes such sizes, and cudnnSetTensorNdDescriptor refuses them (observed, 9.28).
    """
    check_matrices(spec)
    T, B = schedule.T, schedule.B
    for name, width in (("input_data", spec.input_size), ("output", spec.output_size), ("gates", spec.num_units)):
        if T * B * width > INT32_MAX:
            raise ArgumentError(name, f"at most {INT32_MAX} elements", f"T={T} * B={B} * {width}")
    if spec.num_pseudo_layers * B * spec.num_units > INT32_MAX:
        raise ArgumentError(
            "input_h", f"at most {INT32_MAX} elements", (spec.num_pseudo_layers, B, spec.num_units), aspect="shape"
        )
    if schedule.lengths is not None and spec.algo not in STANDARD_ALGORITHMS:
        raise ArgumentError("sequence_lengths", f"equal lengths with algo {str(spec.algo)!r}", "ragged ones")
    if training and spec.algo is Algorithm.PERSIST_STATIC_SMALL_H and spec.num_units > SMALL_H_TRAINED[spec.mode]:
        most = f"at most {SMALL_H_TRAINED[spec.mode]} in training with algo {str(spec.algo)!r}"
        raise ArgumentError("num_units", most, spec.num_units)


def check_array(name: str, array: Any | None, address: int, alignment: int) -> None:
    """Refuse what cuDNN cannot read in place; nothing is copied silently.

    Raises:
        ArgumentError: not contiguous, or not aligned.
    """
    if array is None:
        return
    if not array.flags.c_contiguous:
        raise ArgumentError(name, "a contiguous array (cupy.ascontiguousarray makes one)", f"strides {array.strides}")
    if address % alignment:
        raise ArgumentError(name, f"memory aligned to {alignment} bytes", hex(address))


APART_NBYTES: Final = 2**48
"""Between the places below all addresses where absent arrays are taken to be; each stands apart from all."""


class Wanted(NamedTuple):
    """What one array of a call has to be. Without a shape it has to be None; `optional` allows None beside an array."""

    shape: tuple[int, ...] | None
    strides: tuple[int, ...]
    nbytes: int
    dtype: np.dtype[Any]
    alignment: int
    optional: bool

    @classmethod
    def contiguous(
        cls, shape: tuple[int, ...] | None, dtype: np.dtype[Any], alignment: int = 1, *, optional: bool = False
    ) -> Wanted:
        sizes = shape or ()
        strides = tuple(dtype.itemsize * math.prod(sizes[i + 1 :]) for i in range(len(sizes)))
        return cls(shape, strides, math.prod(sizes) * dtype.itemsize, dtype, alignment, optional)


class PlainArrays:
    """Recognise, in one pass, arrays that may cross as they are.

    It accepts only what the slower checks accept, and gives no reasons: whoever is turned away goes through those,
    which do. An array that came last in the same place is known by its identity, and looked at again only for what can
    change in place, its shape; weak references tell it from a later one with the same `id`.
    """

    __slots__ = ("_apart", "_device", "_last", "_nbytes", "_ndarray", "_places", "_wanted")

    def __init__(self, ndarray: Any, device: int, wanted: Sequence[Wanted], *, apart: bool) -> None:
        """Describe the arrays, in the order of `addresses`; `apart` refuses any two that share memory."""
        self._ndarray, self._device, self._wanted, self._apart = ndarray, device, wanted, apart
        self._places, self._nbytes = range(len(wanted)), [w.nbytes for w in wanted]
        places = len(wanted)
        self._last: tuple[list[Any], list[int | None], list[int]] = [_nobody] * places, [None] * places, [0] * places

    def addresses(self, arrays: Sequence[Any]) -> Sequence[int | None] | None:
        """Return where the arrays are, None for what is absent; or None if one of them is not plainly right."""
        known, where, starts = self._last
        found = None
        for place, array, last, wanted in zip(self._places, arrays, known, self._wanted, strict=True):
            if last() is not array:
                if found is None:
                    known, found, starts = [*known], [*where], [*starts]
                if array is None:
                    if not wanted.optional:
                        return None
                    known[place], found[place], starts[place] = _nothing, None, -(place + 1) * APART_NBYTES
                else:
                    shape, strides, _, dtype, alignment, _ = wanted
                    if (
                        type(array) is not self._ndarray
                        or array.dtype is not dtype
                        or array.strides != strides
                        or array.shape != shape
                    ):
                        return None
                    memory = array.data
                    found[place] = starts[place] = address = memory.ptr
                    if memory.device_id != self._device or address % alignment:
                        return None
                    known[place] = ref(array)
            elif array is not None and array.shape != wanted.shape:
                return None
        if found is None:
            return where
        if self._apart and self._overlap(starts):
            return None
        self._last = known, found, starts
        return found

    def _overlap(self, starts: Sequence[int]) -> bool:
        """Whether any two share memory; if none do, each ends before the next begins."""
        ends, starts = sorted(map(operator.add, starts, self._nbytes)), sorted(starts)
        del starts[0]
        return any(map(operator.gt, ends, starts))


def _nothing() -> None:
    """Stand for a reference to no array."""


def _nobody() -> object:
    """Stand for a reference to an array that nobody can give."""
    return _nobody
