"""Dropout on the NumPy engine: masks that depend only on a seed, a position and a layer."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import numpy as np

from pycudnnrnn import _locks
from pycudnnrnn.engines import DropoutState
from pycudnnrnn.engines.numpy_engine.weights import Array
from pycudnnrnn.spec import RNNSpec

PHILOX_FLOATS = 8
"""float32 numbers that NumPy draws from one block of Philox-4x64: one from each half of its four words."""


class NumpyDropout:
    """Dropout whose masks depend only on the seed and the position."""

    def __init__(self, state: DropoutState) -> None:
        self._state = state
        self._lock = _locks.lock()

    def state(self) -> DropoutState:
        return self._state

    @contextlib.contextmanager
    def forward(self) -> Iterator[DropoutState]:
        """Give one forward its state, and move on; go back if the forward failed and no other has moved on since."""
        with self._lock:
            taken = self._state
            after = self._state = dataclasses.replace(taken, position=taken.position + 1)
        try:
            yield taken
        except BaseException:
            with self._lock:
                if self._state is after:
                    self._state = taken
            raise


def dropout_mask(state: DropoutState, spec: RNNSpec, layer: int, first_row: int, shape: tuple[int, int]) -> Array:
    """What survives on the way into `layer`, from a packed row on; only seed, position and layer decide."""
    block, skipped = divmod(first_row * shape[1], PHILOX_FLOATS)
    bits = np.random.Philox(key=state.seed, counter=[block, 0, state.position, layer])
    drawn = np.random.Generator(bits).random(skipped + shape[0] * shape[1], np.float32)[skipped:]
    return drawn.reshape(shape) >= spec.dropout


def drop(rows: Array, mask: Array, dropout: float) -> None:
    """Drop, and scale what survives so that inference needs no scaling.

    The factor is a float32 at least: float16 ends at 65504, and infinity would make NaN of what was dropped.
    """
    rows *= mask
    if dropout < 1:
        factor = np.result_type(rows.dtype, np.float32).type(1 / (1 - dropout))
        np.multiply(rows, factor, out=rows, casting="same_kind")
