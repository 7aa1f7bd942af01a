"""Dropout on the NumPy engine: masks that depend only on a seed, a position and a layer."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from pycudnnrnn import _locks
from pycudnnrnn.engines import DropoutState
from pycudnnrnn.engines.numpy_engine.cells import Array
from pycudnnrnn.spec import RNNSpec

PHILOX_FLOATS = 8
"""float32 numbers that NumPy draws from one block of Philox-4x64: one from each half of its four words."""


@dataclasses.dataclass(frozen=True)
class Masks:
    """The masks of one forward, starting at a packed row. They depend only on seed, position and layer."""

    state: DropoutState
    first_row: int = 0

    def of(self, spec: RNNSpec, layer: int, shape: tuple[int, int]) -> Array:
        """Return the mask of the input of `layer`: True for what is kept."""
        block, skipped = divmod(self.first_row * shape[1], PHILOX_FLOATS)
        bits = np.random.Philox(key=self.state.seed, counter=[block, 0, self.state.position, layer])
        drawn = np.random.Generator(bits).random(skipped + shape[0] * shape[1], np.float32)[skipped:]
        return drawn.reshape(shape) >= spec.dropout

    def forward(self) -> contextlib.nullcontext[Masks]:
        return contextlib.nullcontext(self)

    def chunk(self, first_row: int) -> tuple[Masks, Callable[[], Masks]]:
        """See `engines.ChunkMasks`."""
        masks = Masks(self.state, first_row)
        return masks, lambda: masks


class NumpyDropout:
    """The running dropout of one model: each forward takes the next position's masks."""

    chunk_nbytes = 0

    def __init__(self, state: DropoutState) -> None:
        self._state = state
        self._lock = _locks.lock()

    def state(self) -> DropoutState:
        return self._state

    @contextlib.contextmanager
    def forward(self) -> Iterator[Masks]:
        """Yield one forward's masks and advance the position; undo that if the forward fails and no other has begun."""
        with self._lock:
            taken = self._state
            after = self._state = dataclasses.replace(taken, position=taken.position + 1)
        try:
            yield Masks(taken)
        except BaseException:
            with self._lock:
                if self._state is after:
                    self._state = taken
            raise

    as_one = forward


def drop(rows: Array, mask: Array, dropout: float) -> None:
    """Apply a mask in place, and scale what is kept by 1 / (1 - dropout), so that inference needs no scaling.

    The factor is at least float32: in float16 it may become infinity, which times 0 is NaN.
    """
    rows *= mask
    if dropout < 1:
        factor = np.result_type(rows.dtype, np.float32).type(1 / (1 - dropout))
        np.multiply(rows, factor, out=rows, casting="same_kind")
