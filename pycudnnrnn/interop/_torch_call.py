"""One call of torch's operators: its arguments, and values derived from them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pycudnnrnn.interop._torch_rules import TorchArgumentError
from pycudnnrnn.interop._torch_weights import KNOWN_MAX, engine_on, places_of, spec_of
from pycudnnrnn.passes import RESULTS, shapes
from pycudnnrnn.schedule import Schedule


class Arguments:
    """The arguments of one call, which `_torch_ops` explains, and values derived from them."""

    def __init__(
        self, x: Any, batch_sizes: Any, hx: Any, cx: Any, seed: Any | None, spec_text: str, dropout: float,
        weights: Sequence[Any],
    ) -> None:  # fmt: skip
        self.x, self.batch_sizes, self.hx, self.cx, self.seed = x, batch_sizes, hx, cx, seed
        self.weights = weights
        self.spec = spec_of(spec_text, x.dtype, dropout)
        self.engine = engine_on(str(x.device))
        self.places = places_of(self.engine, spec_text, x.dtype)
        T, B, *_ = x.shape
        self.size = (T, B) if batch_sizes is None else (batch_sizes.shape[0], hx.shape[1])
        """T and B, which a compiler may give as symbols."""

    def empty_results(self) -> list[Any]:
        """Return tensors for y, for hy and for cy, which is empty if the cell has none."""
        sizes = shapes(self.spec, self.x.shape[:-1], self.size[1])
        return [self.x.new_empty(sizes[name] or 0) for name in RESULTS]

    def empty_gradients(self, *, params_too: bool) -> list[Any]:
        """Return tensors for the gradients of x, hx, cx and params; empty for those not given or not requested."""
        dx = torch.empty_like(self.x, memory_format=torch.contiguous_format)
        states = [self.x.new_empty(0 if state is None else state.shape) for state in (self.hx, self.cx)]
        return [dx, *states, self.x.new_empty(self.places.size if params_too else 0)]

    @property
    def schedule(self) -> Schedule:
        """The steps of the batch.

        Raises:
            TorchArgumentError: batch sizes that do not fit the data. torch would use them unchecked to access memory.
        """
        sizes, (T, B) = self.batch_sizes, self.size
        if sizes is None:
            return _padded(T, B)
        if sizes.dim() != 1 or sizes.dtype != torch.int64:
            raise TorchArgumentError(
                "batch_sizes", "int64 numbers, one per step", f"{tuple(sizes.shape)} of {sizes.dtype}"
            )
        return _packed(T, B, len(self.x), sizes.numpy().tobytes())


@functools.lru_cache(maxsize=KNOWN_MAX)
def _padded(T: int, B: int) -> Schedule:
    return Schedule(T, B)


@functools.lru_cache(maxsize=KNOWN_MAX)
def _packed(T: int, B: int, rows: int, batch_sizes: bytes) -> Schedule:
    """Return the steps of packed data, from the number of sequences at each step."""
    running = np.frombuffer(batch_sizes, np.int64)
    falling = [B, *running.tolist(), min(B, 1)]  # a step without sequences does not count
    if falling[1:2] != [B] or running.sum() != rows or falling != sorted(falling, reverse=True):
        raise TorchArgumentError(
            "batch_sizes", f"positive numbers that do not rise, from B={B} on, {rows} in all", falling[1:9]
        )
    lengths = tuple((running[:, None] > np.arange(B)).sum(axis=0).tolist())
    return Schedule(T, B, None if set(lengths) == {T} else lengths, packed=True)
