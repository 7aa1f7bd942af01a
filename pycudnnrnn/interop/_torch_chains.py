"""The dropout chain that a forward belongs to, found by torch's generator of its device; see `StreamStates`.

A chain lasts until the generator is set. `torch.manual_seed` moves its offset back to 0, and leaves no other trace. So
a chain's first forward moves the offset far ahead, always by the same amount. The numbers that torch itself draws on
the device after that are different ones, and the same in each run. Later forwards do not touch the generator, since
torch's own RNNs seed their dropout again whenever its offset was set.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from pycudnnrnn import _locks

FAR: Final = 2**48
"""The amount that the offset is moved by: more than is ever drawn, and a multiple of 4, as torch requires."""

_latest: Final[dict[int, tuple[int, int]]] = {}
"""By device: the seed of its generator, and the number of its chain."""

_lock: Final = _locks.lock()

_backward: Final = getattr(torch._C, "_current_graph_task_id", lambda: -1)  # noqa: SLF001
"""Returns the number of this thread's present backward, or -1. `torch.utils.checkpoint` uses it, too."""


def chain_on(device: Any) -> int | None:
    """Return the chain of a forward that is about to run; None in a backward, which can only repeat a forward."""
    generator = _generator(device)
    with _lock:
        seed: int = generator.initial_seed()
        offset: int = generator.get_offset()
        if offset < FAR:
            generator.set_offset(offset + FAR)
        if _backward() != -1:
            return None
        known, chain = _latest.get(device.index, (seed, 0))
        if offset < FAR or seed != known:
            chain += 1
        _latest[device.index] = seed, chain
        return chain


def _generator(device: Any) -> Any:
    return torch.cuda.default_generators[device.index]
