"""Dropout on the NumPy engine: masks that depend only on a seed, a position and a layer."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np

from pycudnnrnn.engines import DropoutState
from pycudnnrnn.engines.numpy_engine.weights import Array
from pycudnnrnn.spec import RNNSpec

PHILOX_FLOATS = 8
"""float32 numbers that NumPy draws from one block of Philox-4x64: one from each half of its four words."""


class NumpyDropout:
    """Dropout whose masks depend only on the seed and the position."""

    def __init__(self, state: DropoutState) -> None:
        self._state = state
        self._lock = threading.Lock()

    def state(self) -> DropoutState:
        return self._state

    def take(self) -> DropoutState:
        """Return the state of this forward, and move on."""
        with self._lock:
            taken = self._state
            self._state = dataclasses.replace(taken, position=taken.position + 1)
        return taken


def dropout_mask(state: DropoutState, spec: RNNSpec, layer: int, first_row: int, shape: tuple[int, int]) -> Array:
    """What survives on the way into `layer`, from a packed row on; only seed, position and layer decide."""
    block, skipped = divmod(first_row * shape[1], PHILOX_FLOATS)
    bits = np.random.Philox(key=state.seed, counter=[block, 0, state.position, layer])
    drawn = np.random.Generator(bits).random(skipped + shape[0] * shape[1], np.float32)[skipped:]
    return drawn.reshape(shape) >= spec.dropout


def drop(rows: Array, mask: Array, dropout: float) -> None:
    """Drop, and scale what survives so that inference needs no scaling."""
    rows *= mask
    if dropout < 1:
        rows *= rows.dtype.type(1 / (1 - dropout))
