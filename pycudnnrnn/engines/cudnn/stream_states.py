"""Dropout's random states on one stream: carried from forward to forward, and kept by seed, so that masks come again.

To write states from a seed, cuDNN initialises a random generator for each thread of the device, which takes longer than
many a forward, and may wait. Each forward moves its states on, so that the next one can go on from there. A copy of a
few megabytes takes microseconds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, NamedTuple

from pycudnnrnn import _locks
from pycudnnrnn._recent import Recent
from pycudnnrnn.engines.cudnn.device import BYTES, CudaDevice
from pycudnnrnn.engines.cudnn.dropout import DropoutAt, put_back
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.errors import EngineError

KEPT_MAX: Final = 16
"""Forwards of a stream whose states are kept: as many may run between a forward and its repetition. A model has a few
layers that drop, and each can be repeated in the backward of a step. About 6 MB each on a large GPU, 100 MB in all."""


class Masks(NamedTuple):
    """What a forward's masks follow from, where the states are a stream's own.

    `chain()` names the forwards whose states are carried from one to the next; it is asked as the forward's turn comes.
    The first one of a chain on a stream has states written from its `seed`. None is for a forward that can only be the
    repetition of one before, with its seed. A chain of one's own makes masks a function of the seed.
    """

    seed: int
    chain: Callable[[], Hashable | None]


class _Kept(NamedTuple):
    chain: Hashable
    states: Any


class StreamStates:
    """The random states of one stream, and copies of them as its latest forwards found them, by seed.

    Work on one stream is done in its order, so that states there are written and read in turns.
    """

    def __init__(self, device: CudaDevice, stream: int, nbytes: int) -> None:
        self._device, self._stream = device, device.stream_at(stream)
        with device.using(self._stream):  # what the stream's memory is taken from
            self._states = device.empty((nbytes,), BYTES)
        self.address = device.address(self._states)
        self._lock = _locks.rlock()
        self._chain: Hashable = None
        self._kept: Recent[_Kept] = Recent(KEPT_MAX)

    @contextlib.contextmanager
    def forward(self, handle: Handle, dropout: DropoutAt, masks: Masks) -> Iterator[None]:
        """Launch one forward in the block; `dropout` describes these states.

        A seed that is kept in its chain has the states that it had, and the chain goes on from there. A repetition
        leaves the chain where it is.

        Raises:
            EngineError: the repetition of a forward that is not kept.
        """
        device, states = self._device, self._states
        with self._lock, device.using(self._stream):
            chain, kept = masks.chain(), self._kept.get(masks.seed)
            if chain is None:
                with put_back(device, states):
                    device.copy_bytes(states, _found(kept))
                    yield
                return
            if kept is not None and kept.chain == chain:
                device.copy_bytes(states, kept.states)
            else:
                if chain != self._chain:
                    dropout.start(handle, masks.seed)
                self._kept.keep(masks.seed, _Kept(chain, device.copy(states)))
            self._chain = chain
            yield


def _found(kept: _Kept | None) -> Any:
    if kept is None:
        raise EngineError(
            "dropout in a forward inside a backward: only a forward that runs again (activation checkpointing) has "
            f"masks there, those of its seed, which are kept for the latest {KEPT_MAX} forwards on a stream. This seed "
            "is not among them: run the backward after fewer forwards, with preserve_rng_state=True, or without "
            "checkpointing this module"
        )
    return kept.states
