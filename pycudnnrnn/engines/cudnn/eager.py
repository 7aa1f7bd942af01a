"""Eager forwards of batches that one native call takes: fresh results, everything else made before."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final

from pycudnnrnn.engines.cudnn.device import addresses, scratch
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.passes import Passes
from pycudnnrnn.engines.cudnn.reserve import CudnnReserve, Piece
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.schedule import Schedule

_NOTHING: Final = contextlib.nullcontext()

Results = tuple[Any, Any, Any | None, CudnnReserve[Piece] | None]


class CudnnForward:
    """Run one kind of batch again and again; see `engines.Engine.forward` for what it returns."""

    def __init__(self, runtime: Runtime, passes: Passes, *, dropout: CudnnDropout | None, keep_reserve: bool) -> None:
        self._runtime, self._passes, self._dropout, self._keep_reserve = runtime, passes, dropout, keep_reserve
        self._device = passes.device
        self._dtype = passes.spec.dtype.numpy
        self._plain = passes.recogniser("x", "hx", "cx", "params", apart=False)

    def run_if_plain(self, schedule: Schedule, params: Any, x: Any, hx: Any | None, cx: Any | None) -> Results | None:
        """Run if every array is plainly right; None says that one is not, and the slower checks say why."""
        at = self._plain(x, hx, cx, params)
        return None if at is None else self._run(schedule, params, x, hx, cx, at)

    def run(self, schedule: Schedule, params: Any, x: Any, hx: Any | None, cx: Any | None) -> Results:
        """Run on arrays that have been checked."""
        return self._run(schedule, params, x, hx, cx, addresses(self._device, x, hx, cx, params))

    def _run(
        self, schedule: Schedule, params: Any, x: Any, hx: Any | None, cx: Any | None, at: Sequence[int | None]
    ) -> Results:
        device, passes, dtype, address = self._device, self._passes, self._dtype, self._device.address
        with device.active():
            stream = device.stream()
            device.refuse_capture(stream, "an eager forward, which takes memory")
            handle = self._runtime.handle_on(stream)
            y, hy = device.empty(passes.y_shape, dtype), device.empty(passes.h_shape, dtype)
            cy = None if passes.c_shape is None else device.empty(passes.c_shape, dtype)
            space = scratch(device, passes.reserve_nbytes)
            workspace = scratch(device, passes.workspace_nbytes)
            x_at, hx_at, cx_at, params_at = at
            with _NOTHING if self._dropout is None else self._dropout.forward_on(stream):
                passes.call_forward(
                    handle.pointer, *passes.data(schedule).pointers, None if workspace is None else address(workspace),
                    x_at, address(y), hx_at, address(hy), cx_at, None if cy is None else address(cy),
                    params_at, None if space is None else address(space),
                )  # fmt: skip
            if not self._keep_reserve:
                return y, hy, cy, None
            piece = Piece(passes, schedule, x, hx, cx, y, space)
            return y, hy, cy, CudnnReserve(self._runtime, passes.spec, schedule, params, [piece], (stream,))
