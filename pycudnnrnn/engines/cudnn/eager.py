"""Eager forwards of batches that one native call takes: fresh results, everything else made before."""

from __future__ import annotations

import contextlib
from typing import Any

from pycudnnrnn.engines.cudnn.checks import PARAMS_ALIGNMENT_NBYTES, PlainArrays, Wanted
from pycudnnrnn.engines.cudnn.device import scratch
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.native import Native
from pycudnnrnn.engines.cudnn.plan import Plan
from pycudnnrnn.engines.cudnn.reserve import CudnnReserve, Piece

Results = tuple[Any, Any, Any | None, CudnnReserve | None]


class EagerForward:
    """Run one kind of batch again and again; see `engines.Engine.forward` for what it returns."""

    def __init__(
        self,
        native: Native,
        plan: Plan,
        *,
        dropout: CudnnDropout | None,
        keep_reserve: bool,
    ) -> None:
        self._native, self._plan, self._dropout, self._keep_reserve = native, plan, dropout, keep_reserve
        self._device = device = plan.device
        spec, schedule = plan.spec, plan.schedule
        self._dtype = spec.dtype.numpy
        states = (spec.num_pseudo_layers, schedule.B)
        self._y = schedule.data_shape(spec.output_size)
        self._h = (*states, spec.state_size)
        self._c = (*states, spec.num_units) if spec.has_cell_state else None
        align = self._dtype.itemsize
        self._inputs = PlainArrays(
            device.xp.ndarray,
            device.index,
            (
                Wanted(schedule.data_shape(spec.input_size), self._dtype, align),
                Wanted(self._h, self._dtype, align, optional=True),
                Wanted(self._c, self._dtype, align, optional=True),
                Wanted((native.layout(spec).size,), self._dtype, PARAMS_ALIGNMENT_NBYTES),
            ),
            apart=False,
        )

    def run_if_plain(self, params: Any, x: Any, hx: Any | None, cx: Any | None) -> Results | None:
        """Run if every array is plainly right; None says that one is not, and the slower checks say why."""
        at = self._inputs.addresses((x, hx, cx, params))
        return None if at is None else self._run(params, x, hx, cx, *at)

    def run(self, params: Any, x: Any, hx: Any | None, cx: Any | None) -> Results:
        """Run on arrays that have been checked."""
        at = [None if array is None else self._device.address(array) for array in (x, hx, cx, params)]
        return self._run(params, x, hx, cx, *at)

    def _run(
        self,
        params: Any,
        x: Any,
        hx: Any | None,
        cx: Any | None,
        x_at: int | None,
        hx_at: int | None,
        cx_at: int | None,
        params_at: int | None,
    ) -> Results:
        device, plan, dtype, address = self._device, self._plan, self._dtype, self._device.address
        with device.active():
            stream = device.stream()
            device.refuse_capture(stream, "an eager forward, which takes memory")
            handle = self._native.handle_on(stream)
            y, hy = device.empty(self._y, dtype), device.empty(self._h, dtype)
            cy = None if self._c is None else device.empty(self._c, dtype)
            space = scratch(device, plan.reserve_nbytes)
            workspace = scratch(device, plan.workspace_nbytes)
            with contextlib.nullcontext() if self._dropout is None else self._dropout.forward_on(stream):
                plan.call_forward(
                    handle.pointer, x_at, address(y), hx_at, address(hy), cx_at, None if cy is None else address(cy),
                    params_at, None if workspace is None else address(workspace),
                    None if space is None else address(space),
                )  # fmt: skip
            if not self._keep_reserve:
                return y, hy, cy, None
            piece = Piece(plan, x, hx, cx, y, space)
            return y, hy, cy, CudnnReserve(plan.spec, plan.schedule, params, [piece], stream, device)
