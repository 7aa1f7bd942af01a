"""One call of torch's operators: its arguments, and values derived from them."""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple

import numpy as np

from pycudnnrnn._recent import Recent
from pycudnnrnn.interop._torch_rules import TorchArgumentError
from pycudnnrnn.passes import RESULTS, UPSTREAM, shapes
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec

SCHEDULES_MAX: Final = 64
"""Most sets of batch sizes, and most sizes of padded batches, whose steps are kept."""


_schedules: Recent[Schedule] = Recent(SCHEDULES_MAX)


class Arguments(NamedTuple):
    """The arguments of one call, which `_torch_ops` explains, and values derived from them."""

    x: Any
    batch_sizes: Any
    hx: Any
    cx: Any
    params: Any
    seed: Any | None
    spec_json: str
    dropout: float
    batch_first: bool

    @property
    def spec(self) -> RNNSpec:
        return _spec(self.spec_json, self.params.dtype, self.dropout)

    @property
    def time_major(self) -> bool:
        return self.batch_sizes is not None or not self.batch_first

    @property
    def size(self) -> tuple[Any, Any]:
        """T and B, which a compiler may give as symbols."""
        if self.batch_sizes is not None:
            return self.batch_sizes.shape[0], self.hx.shape[1]
        T, B = self.x.shape[:2]
        return (B, T) if self.batch_first else (T, B)

    @property
    def num_rows(self) -> Any:
        """The packed rows: all valid steps of all sequences."""
        return self.x.shape[0] if self.batch_sizes is not None else self.x.shape[0] * self.x.shape[1]

    def empty_results(self, x: Any) -> list[Any]:
        """Return tensors for y, over the axes of `x`, for hy and for cy, which is empty if the cell has none."""
        found = shapes(self.spec, x.shape[:-1], self.size[1])
        return [x.new_empty(found[name] or 0) for name in RESULTS]

    def upstream(self, *given: Any) -> list[Any]:
        """Return the gradients of y, hy and cy, zeros for those that are None."""
        found = shapes(self.spec, self.x.shape[:-1], self.size[1])
        return [self.x.new_zeros(found[n] or 0) if g is None else g for n, g in zip(UPSTREAM, given, strict=True)]

    def empty_gradients(self, x: Any, *, params_too: bool) -> list[Any]:
        """Return tensors for the gradients of `x`, hx, cx and params; empty for those not given or not wanted."""
        wanted = x, self.hx, self.cx, self.params if params_too else None
        return [x.new_empty(0 if a is None else a.shape) for a in wanted]

    @property
    def schedule(self) -> Schedule:
        """The steps of the batch.

        Raises:
            TorchArgumentError: batch sizes that do not fit the data. torch would use them unchecked to access memory.
        """
        sizes, (T, B) = self.batch_sizes, self.size
        if sizes is None:
            return _padded(T, B, self.time_major)
        key = sizes.dtype, sizes.numpy().tobytes(), B, len(self.x)
        return _schedules.get(key) or _schedules.keep(key, self._schedule_of_packed(T, B))

    def _schedule_of_packed(self, T: int, B: int) -> Schedule:
        """Return the steps of packed data, from the number of sequences at each step."""
        running = self.batch_sizes.tolist()
        falling = [B, *running, min(B, 1)]  # a step without sequences does not count
        if running[:1] != falling[:1] or sum(running) != len(self.x) or falling != sorted(falling, reverse=True):
            expected = f"positive numbers that do not rise, from B={B} on, {len(self.x)} in all"
            raise TorchArgumentError("batch_sizes", expected, running[:8])
        lengths = tuple((np.array(running)[:, None] > np.arange(B)).sum(axis=0).tolist())
        return Schedule(T, B, None if set(lengths) == {T} else lengths, packed=True)


@functools.lru_cache(maxsize=SCHEDULES_MAX)
def _padded(T: int, B: int, time_major: bool) -> Schedule:
    return Schedule(T, B, None, time_major)


@functools.lru_cache(maxsize=256)
def _spec(spec_json: str, dtype: Any, dropout: float) -> RNNSpec:
    return RNNSpec.from_json(spec_json).replace(dtype=dtype, dropout=dropout)
