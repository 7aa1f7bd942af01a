"""Eager forwards of batches that one native call takes: fresh results, everything else made before."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final

from pycudnnrnn.engines import Results
from pycudnnrnn.engines.cudnn.device import addresses, scratch
from pycudnnrnn.engines.cudnn.passes import Passes
from pycudnnrnn.engines.cudnn.reserve import CudnnReserve, Piece
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.passes import FORWARD, RESULTS, Batch
from pycudnnrnn.schedule import Schedule

_NOTHING: Final = contextlib.nullcontext()


class CudnnForward:
    """Run one kind of batch again and again; see `engines.Engine.forward` for what it returns."""

    def __init__(self, runtime: Runtime, passes: Passes, batch: Batch) -> None:
        self._runtime, self._passes, self._dropout, self._keeps = runtime, passes, batch.dropout, batch.keeps
        self._plain = passes.recogniser(("params", "x", "hx", "cx"), apart=False)
        self._call, self._dtype, self._device = passes.calls[FORWARD], passes.spec.dtype.numpy, passes.device
        self._address = passes.device.address
        shapes: list[Any] = [passes.slots[name].shape for name in RESULTS]
        self._y, self._h, self._c = shapes

    def __call__(self, schedule: Schedule, params: Any, x: Any, hx: Any | None, cx: Any | None) -> Results | None:
        """Run if every array is plainly right; None says that one is not, and the slower checks say why."""
        at = self._plain((params, x, hx, cx))
        return None if at is None else self.run(schedule, params, x, hx, cx, at)

    def run(
        self, schedule: Schedule, params: Any, x: Any, hx: Any, cx: Any, at: Sequence[int | None] | None = None
    ) -> Results:
        """Run on arrays that have been checked; `at` is where they are."""
        passes, dtype, device, dropout, address = self._passes, self._dtype, self._device, self._dropout, self._address
        with device.active():
            stream = device.stream()
            device.refuse_capture(stream, "an eager forward, which takes memory")
            handle = self._runtime.handle_on(stream)
            y, hy = device.empty(self._y, dtype), device.empty(self._h, dtype)
            cy = None if self._c is None else device.empty(self._c, dtype)
            space, workspace = scratch(device, passes.reserve_nbytes), scratch(device, passes.workspace_nbytes)
            with _NOTHING if dropout is None else dropout.forward_on(stream):
                self._call(
                    handle.pointer, *passes.data(schedule).pointers, None if workspace is None else address(workspace),
                    *(at or addresses(device, params, x, hx, cx)), address(y), address(hy),
                    None if cy is None else address(cy), None if space is None else address(space),
                )  # fmt: skip
            if not self._keeps:
                return y, hy, cy, None
            kept = {"params": params, "x": x, "hx": hx, "cx": cx, "y": y, "reserve": space}
            pieces = [Piece(passes, schedule, kept)]
            return y, hy, cy, CudnnReserve(self._runtime, passes.spec, schedule, pieces, (stream,))
