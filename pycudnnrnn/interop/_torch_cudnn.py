"""cuDNN on torch's own memory: tensors' addresses go to it as they are, on torch's current stream.

Results, reserve and workspace are tensors, from torch's allocator, which gives memory again only to the same stream.
So nothing is exchanged, nothing waits, and no device is made current that is. What is not plainly right is turned away,
to the way that arrays of every library take, whose checks say why.
"""

from __future__ import annotations

from typing import Any, Final

from pycudnnrnn import passes
from pycudnnrnn._recent import Recent
from pycudnnrnn.engines import engine_for
from pycudnnrnn.engines.cudnn.checks import ALIGNMENT_NBYTES
from pycudnnrnn.errors import MissingDependencyError
from pycudnnrnn.interop._torch_call import Arguments
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import TIME_MAX

try:
    import torch
except ImportError as error:
    raise MissingDependencyError("torch", "torch", "pycudnnrnn.interop.torch") from error

BATCHES_MAX: Final = 64
"""Kinds of batches that are remembered."""


class Batch:
    """One kind of batch: same spec, T, B and axes, packed or padded, for training or not. Batch sizes may differ."""

    def __init__(self, engine: Any, call: Arguments, T: int, B: int, *, training: bool) -> None:
        packed = call.batch_sizes is not None
        self._schedule = Schedule(T, B, None, call.time_major)
        like = self._schedule.hardly_ragged() if packed and T > 1 else self._schedule
        batch = passes.Batch(call.spec, like, training)
        self._native = engine.addressed(_stream(call.x.device), batch, drops=call.seed is not None)
        self.reserve_nbytes: int = self._native.reserve_nbytes
        self._shapes = {name: (0,) if slot.shape is None else slot.shape for name, slot in self._native.slots.items()}
        self._results, self._packed = [self._shapes[name] for name in passes.RESULTS], packed

    def takes(self, names: tuple[str, ...], tensors: tuple[Any, ...]) -> bool:
        """Whether tensors are plainly right, by the names of their slots, params first and x next."""
        params, x, *_ = tensors
        dtype, device, wanted = x.dtype, x.device, self._shapes
        if self._packed:
            rows = len(x)
            wanted = wanted | {name: (rows, wanted[name][-1]) for name in ("x", "y", "dy")}
        for name, tensor in zip(names, tensors, strict=True):
            if tensor is None:
                if name not in passes.NULLABLE:
                    return False
            elif tensor.shape != wanted[name] or tensor.dtype is not dtype or tensor.device != device:
                return False
        return not params.data_ptr() % ALIGNMENT_NBYTES or not params.is_contiguous()

    def is_reserve(self, tensor: Any) -> bool:
        return tensor.shape == self._shapes["reserve"] and tensor.dtype is torch.uint8

    def forward(self, call: Arguments, *, keep: bool) -> tuple[Any, Any, Any, Any]:
        """Return y, hy, cy and the reserve, without elements where it is not to be kept."""
        native, x = self._native, _aligned(call.padded(call.x))
        hx, cx, params = map(_aligned, (call.hx, call.cx, call.params))
        y, hy, cy = map(x.new_empty, self._results)
        reserve, workspace = _bytes(x, self.reserve_nbytes), _bytes(x, native.workspace_nbytes)
        at = [*map(_at, (params, x, hx, cx, y, hy, cy, reserve))]
        seed = None if call.seed is None else int(call.seed)
        native.forward(_stream(x.device), self._lengths(call), at, _at(workspace), seed=seed)
        return call.packed(y), hy, cy, reserve if keep else _bytes(x, 0)

    def backward(
        self, call: Arguments, dy: Any, dhy: Any, dcy: Any, y: Any, reserve: Any, *, params_too: bool
    ) -> tuple[Any, Any, Any, Any]:
        """Return the gradients of x, hx, cx and params, from a copy of the reserve."""
        native, x = self._native, _aligned(call.padded(call.x))
        hx, cx, params, dhy, dcy = map(_aligned, (call.hx, call.cx, call.params, dhy, dcy))
        y, dy, kept = _aligned(call.padded(y)), _aligned(call.padded(dy)), reserve.clone()
        dx, dhx, dcx, d_params = call.empty_gradients(x, params_too=params_too)
        d_params.zero_()  # cuDNN adds to what is there
        workspace = _bytes(x, native.workspace_nbytes)
        at = [*map(_at, (params, y, dy, hx, dhy, dhx, cx, dcy, dcx, dx, kept))]
        native.backward(_stream(x.device), self._lengths(call), at, *map(_at, (x, d_params, workspace)))
        return call.packed(dx), dhx, dcx, d_params

    def _lengths(self, call: Arguments) -> Schedule:
        packing = call.packing
        return self._schedule if packing is None else packing.schedule


_batches: Recent[Batch] = Recent(BATCHES_MAX)


def batch_of(call: Arguments, *, training: bool) -> Batch | None:
    """Return what runs a call on cuDNN; None where another engine does, or more or less than one native call.

    Numbers may be missing: a compiler asks for sizes before there are any.
    """
    engine = engine_for(str(call.x.device))
    if engine.name != "cudnn" or (call.batch_sizes is None and call.x.dim() != 3):
        return None
    T, B = map(int, call.size)
    drops, packed = call.seed is not None, call.batch_sizes is not None
    key = engine, call.spec_json, call.params.dtype, call.dropout, T, B, call.batch_first, packed, drops, training
    found = _batches.get(key)
    if found is None and 0 < T <= TIME_MAX and B:
        found = _batches.keep(key, Batch(engine, call, T, B, training=training or drops))
    return found


def _bytes(like: Any, count: int) -> Any:
    return like.new_empty(count, dtype=torch.uint8)


def _aligned(tensor: Any) -> Any:
    """Return a tensor as cuDNN takes it: contiguous, and aligned; a copy where it is not."""
    if tensor is None:
        return None
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.data_ptr() % ALIGNMENT_NBYTES else tensor


def _at(tensor: Any) -> int | None:
    """Where a tensor is in memory; None for none, and for one without elements."""
    return None if tensor is None else tensor.data_ptr() or None


def _stream(device: Any) -> int:
    """Return torch's current stream on a device, by its address."""
    address: int = torch.cuda.current_stream(device).cuda_stream
    return address
