"""What is checked of sizes and arrays before anything crosses to cuDNN, beyond what every engine checks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import INT32_MAX, STANDARD_ALGORITHMS, RNNSpec

PARAMS_ALIGNMENT_NBYTES: Final = 16
"""Alignment of params. Source: the widest load that cuDNN's kernels make; CuPy's and torch's own arrays have 256."""


def check_matrices(spec: RNNSpec) -> None:
    """Refuse an RNN with a matrix that 32-bit indices cannot hold; its descriptor would be made all the same.

    Raises:
        ArgumentError: more than 2**31 - 1 elements in one matrix.

    Source: cudnnSetRNNDescriptor_v8 takes such sizes, and cudnnSetTensorNdDescriptor refuses them (observed, 9.28).
    """
    widths = {spec.state_size, spec.layer_input_size(0), spec.layer_input_size(spec.num_layers - 1)}
    if spec.num_units * max(widths) > INT32_MAX:
        raise ArgumentError("params", f"at most {INT32_MAX} elements in a matrix", (spec.num_units, max(widths)))


def check_sizes(spec: RNNSpec, schedule: Schedule) -> None:
    """Refuse a batch whose element counts cuDNN's 32-bit indices cannot hold: it accepts some of them silently.

    Raises:
        ArgumentError: more than 2**31 - 1 elements of data, of states or of a matrix, or ragged lengths with an
            algorithm that takes equal ones only.

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


class Wanted(NamedTuple):
    """What one array of a call has to be. Without a shape it has to be None; `optional` allows None beside an array."""

    shape: tuple[int, ...] | None
    dtype: np.dtype[Any]
    alignment: int = 1
    optional: bool = False


class PlainArrays:
    """Recognise, in one pass, arrays that may cross as they are.

    It accepts only what the slower checks accept, and gives no reasons: arrays that are turned away go through those
    checks, which do. Whether contiguous arrays of known sizes overlap depends only on their addresses, so addresses
    once found apart are remembered.
    """

    KNOWN_MAX: Final = 64
    """Sets of addresses remembered; a pool of memory gives few, and comes back to them."""

    __slots__ = ("_apart", "_device", "_nbytes", "_ndarray", "_wanted")

    def __init__(self, ndarray: Any, device: int, wanted: Sequence[Wanted], *, apart: bool) -> None:
        """Describe the arrays, in the order of `addresses`; `apart` refuses any two that share memory."""
        self._ndarray, self._device = ndarray, device
        self._wanted = tuple(
            (w.shape, _strides(w.shape or (), w.dtype.itemsize), w.dtype, w.alignment, w.optional) for w in wanted
        )
        self._nbytes = [math.prod(w.shape or ()) * w.dtype.itemsize for w in wanted]
        self._apart: set[tuple[int | None, ...]] | None = set() if apart else None

    def addresses(self, arrays: Sequence[Any]) -> tuple[int | None, ...] | None:
        """Return where the arrays are, None for what is absent; or None if one of them is not plainly right."""
        ndarray, index = self._ndarray, self._device
        found: list[int | None] = []
        for array, (shape, strides, dtype, alignment, optional) in zip(arrays, self._wanted, strict=True):
            if array is None:
                if not optional:
                    return None
                found.append(None)
                continue
            if (
                type(array) is not ndarray
                or array.dtype is not dtype
                or array.strides != strides
                or array.shape != shape
            ):
                return None
            memory = array.data
            address = memory.ptr
            if memory.device_id != index or address % alignment:
                return None
            found.append(address)
        where = tuple(found)
        if self._apart is not None and where not in self._apart:
            if self._overlap(where):
                return None
            if len(self._apart) >= self.KNOWN_MAX:
                self._apart.clear()
            self._apart.add(where)
        return where

    def _overlap(self, where: Sequence[int | None]) -> bool:
        end = 0
        for start, nbytes in sorted([(a, n) for a, n in zip(where, self._nbytes, strict=True) if a is not None]):
            if start < end:
                return True
            end = start + nbytes
        return False


def _strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple(itemsize * math.prod(shape[i + 1 :]) for i in range(len(shape)))
