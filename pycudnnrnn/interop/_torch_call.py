"""One call of torch's operators: its arguments, and values derived from them."""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple

import numpy as np

from pycudnnrnn._recent import Recent
from pycudnnrnn.errors import MissingDependencyError
from pycudnnrnn.interop._torch_rules import TorchArgumentError
from pycudnnrnn.passes import RESULTS, UPSTREAM, shapes
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec

try:
    import torch
except ImportError as error:
    raise MissingDependencyError("torch", "torch", "pycudnnrnn.interop.torch") from error

PACKINGS_MAX: Final = 64
"""Most sets of batch sizes whose lengths are kept."""


class Packing(NamedTuple):
    """The steps of packed data: as a batch, and as lengths, longest first, for torch's functions."""

    schedule: Schedule
    lengths: Any


_packings: Recent[Packing] = Recent(PACKINGS_MAX)


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
    def packing(self) -> Packing | None:
        """The steps of packed data; None for padded data.

        Raises:
            TorchArgumentError: batch sizes that do not fit the data. torch would use them unchecked to access memory.
        """
        sizes = self.batch_sizes
        if sizes is None:
            return None
        key = sizes.dtype, sizes.numpy().tobytes(), self.size[1], len(self.x)
        return _packings.get(key) or _packings.keep(key, self._packing())

    def _packing(self) -> Packing:
        """Return the sequences' lengths, longest first, from the number of sequences at each step."""
        running, (T, B) = self.batch_sizes.tolist(), self.size
        falling = [B, *running, min(B, 1)]  # a step without sequences does not count
        if running[:1] != falling[:1] or sum(running) != len(self.x) or falling != sorted(falling, reverse=True):
            expected = f"positive numbers that do not rise, from B={B} on, {len(self.x)} in all"
            raise TorchArgumentError("batch_sizes", expected, running[:8])
        lengths = tuple((np.array(running)[:, None] > np.arange(B)).sum(axis=0).tolist())
        schedule = Schedule(T, B, None if set(lengths) == {T} else lengths, packed=True)
        return Packing(schedule, torch.tensor(lengths, dtype=torch.int64))

    def padded(self, data: Any) -> Any:
        """Return packed data [rows, F] padded to [T, B, F], after checking the batch sizes; other data as it is."""
        if self.packing is None:
            return data
        padded, _ = torch.ops.aten._pad_packed_sequence(data, self.batch_sizes, False, 0.0, -1)  # noqa: SLF001
        return padded

    def packed(self, data: Any) -> Any:
        """Undo `padded`."""
        packing = self.packing
        if packing is None:
            return data
        return torch.ops.aten._pack_padded_sequence(data, packing.lengths, False)[0]  # noqa: SLF001


@functools.lru_cache(maxsize=256)
def _spec(spec_json: str, dtype: Any, dropout: float) -> RNNSpec:
    return RNNSpec.from_json(spec_json).replace(dtype=dtype, dropout=dropout)
