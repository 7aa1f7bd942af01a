"""cuDNN on torch's own memory: tensors' addresses go to it as they are, on torch's current stream.

Results, reserve and workspace are tensors, from torch's allocator, which gives memory again only to the same stream.
So nothing is exchanged, nothing waits, and no device is made current that is. What is not plainly right is turned away,
to the way that arrays of every library take, whose checks say why.
"""

from __future__ import annotations

from typing import Any, Final

from pycudnnrnn._recent import Recent
from pycudnnrnn.engines import engine_for
from pycudnnrnn.engines.cudnn.checks import DATA_ALIGNMENT_NBYTES, PARAMS_ALIGNMENT_NBYTES
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
        spec, packed = call.spec, call.batch_sizes is not None
        self._schedule = Schedule(T, B, None, call.time_major)
        like = self._schedule.hardly_ragged() if packed and T > 1 else self._schedule
        stream, drops = _stream(call.x.device), call.seed is not None
        self._native = engine.addressed(stream, spec, like, training=training, drops=drops)
        self.reserve_nbytes: int = self._native.reserve_nbytes
        self._params, self._widths = (self._native.params_size,), (spec.input_size, spec.output_size)
        self._x, self._y = (None if packed else self._schedule.data_shape(width) for width in self._widths)
        self._h = (spec.num_pseudo_layers, B, spec.state_size)
        self._c = (spec.num_pseudo_layers, B, spec.num_units) if spec.has_cell_state else None
        self._results = self._schedule.data_shape(spec.output_size), self._h, self._c or (0,)

    def takes(self, call: Arguments) -> bool:
        """Whether the arguments are plainly right."""
        x, params = call.x, call.params
        return (
            self._is_data(x, self._x, 0, x)
            and (call.hx is None or self._is_right(call.hx, self._h, x))
            and (call.cx is None or self._is_right(call.cx, self._c, x))
            and self._is_right(params, self._params, x)
            and (not params.data_ptr() % PARAMS_ALIGNMENT_NBYTES or not params.is_contiguous())
        )

    def takes_back(self, call: Arguments, dy: Any, dhy: Any, dcy: Any, y: Any, reserve: Any) -> bool:
        """Whether the arguments are plainly right, and what comes to the backward beside them."""
        x = call.x
        return (
            self.takes(call)
            and self._is_data(dy, self._y, 1, x)
            and self._is_data(y, self._y, 1, x)
            and self._is_right(dhy, self._h, x)
            and self._is_right(dcy, self._c or (0,), x)
            and (reserve.shape, reserve.dtype, reserve.device) == ((self.reserve_nbytes,), torch.uint8, x.device)
        )

    def _is_data(self, tensor: Any, shape: Any, side: int, x: Any) -> bool:
        return self._is_right(tensor, shape or (len(x), self._widths[side]), x)

    def _is_right(self, tensor: Any, shape: Any, x: Any) -> bool:
        """Whether a tensor has this shape, x's dtype and device."""
        return tensor is not None and tensor.shape == shape and tensor.dtype is x.dtype and tensor.device == x.device

    def forward(self, call: Arguments, *, keep: bool) -> tuple[Any, Any, Any, Any]:
        """Return y, hy, cy and the reserve, without elements where it is not to be kept."""
        native, packing, x = self._native, call.packing, _aligned(call.padded(call.x))
        hx, cx, params = map(_aligned, (call.hx, call.cx, call.params))
        y, hy, cy = map(x.new_empty, self._results)
        reserve, workspace = _bytes(x, self.reserve_nbytes), _bytes(x, native.workspace_nbytes)
        native.forward(
            _stream(x.device),
            self._schedule if packing is None else packing.schedule,
            *map(_at, (x, y, hx, hy, cx, cy, params, workspace, reserve)),
            seed=None if call.seed is None else int(call.seed),
        )
        return call.packed(y), hy, cy, reserve if keep else _bytes(x, 0)

    def backward(
        self, call: Arguments, dy: Any, dhy: Any, dcy: Any, y: Any, reserve: Any, *, params_too: bool
    ) -> tuple[Any, Any, Any, Any]:
        """Return the gradients of x, hx, cx and params, from a copy of the reserve."""
        native, packing, x = self._native, call.packing, _aligned(call.padded(call.x))
        hx, cx, params, dhy, dcy = map(_aligned, (call.hx, call.cx, call.params, dhy, dcy))
        y, dy, kept = _aligned(call.padded(y)), _aligned(call.padded(dy)), reserve.clone()
        dx, dhx, dcx, d_params = call.empty_gradients(x, params_too=params_too)
        d_params.zero_()  # cuDNN adds to what is there
        workspace = _bytes(x, native.workspace_nbytes)
        native.backward(
            _stream(x.device),
            self._schedule if packing is None else packing.schedule,
            *map(_at, (x, y, dy, dx, hx, dhy, dhx, cx, dcy, dcx, params, d_params, workspace, kept)),
        )
        return call.packed(dx), dhx, dcx, d_params


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
    return tensor.clone() if tensor.data_ptr() % DATA_ALIGNMENT_NBYTES else tensor


def _at(tensor: Any) -> int | None:
    """Where a tensor is in memory; None for none, and for one without elements."""
    return None if tensor is None else tensor.data_ptr() or None


def _stream(device: Any) -> int:
    """Return torch's current stream on a device, by its address."""
    address: int = torch.cuda.current_stream(device).cuda_stream
    return address
