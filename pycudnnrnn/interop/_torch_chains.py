"""Which of dropout's chains a forward is in, by torch's generator of its device; see `StreamStates`.

A chain lasts until the generator is set: `torch.manual_seed` moves its offset back to 0, and leaves no other trace.
So a chain's first forward moves the offset far on, by as much each time: the numbers that torch itself draws on the
device after that are others, and the same ones again in a second run. Later forwards leave the generator alone, since
torch's own RNNs seed their dropout anew wherever its offset was set.
"""

from __future__ import annotations

from typing import Any, Final

from pycudnnrnn import _locks
from pycudnnrnn.errors import MissingDependencyError

try:
    import torch
except ImportError as error:
    raise MissingDependencyError("torch", "torch", "pycudnnrnn.interop.torch") from error

FAR: Final = 2**48
"""What the offset is moved by: more than is ever drawn, and a multiple of 4, as torch wants it."""

_latest: Final[dict[int, tuple[int, int]]] = {}
"""By device: the seed of its generator, and the number of its chain."""

_lock: Final = _locks.lock()

_backward: Final = getattr(torch._C, "_current_graph_task_id", lambda: -1)  # noqa: SLF001
"""Which backward this thread is in; -1 for none. `torch.utils.checkpoint` asks the same."""


def chain_on(device: Any) -> int | None:
    """Return the chain of a forward that is about to run; None in a backward, where it can only be a repetition."""
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
