"""CUDA graphs: one plan's calls captured once, over memory of their own, and replayed."""

from __future__ import annotations

import contextlib
from typing import Any

from pycudnnrnn.engines.cudnn.device import scratch
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.native import Native
from pycudnnrnn.engines.cudnn.plan import Plan


class CudnnGraph:
    """See `engines.EngineGraph`. Workspace and reserve are the graph's own as well: nobody else runs in them."""

    def __init__(
        self,
        native: Native,
        plan: Plan,
        dropout: CudnnDropout | None,
        params: Any,
        *,
        carry_state: bool,
    ) -> None:
        self._native, self._plan, self._dropout = native, plan, dropout
        self._device = device = plan.device
        spec, schedule = plan.spec, plan.schedule
        self.params = params
        dtype, states = spec.dtype.numpy, (spec.num_pseudo_layers, schedule.B)
        with device.active():
            device.refuse_capture(device.stream(), "capturing a plan")

            def data(width: int) -> Any:
                return device.zeros(schedule.data_shape(width), dtype)

            def h() -> Any:
                return device.zeros((*states, spec.state_size), dtype)

            def c() -> Any:
                return device.zeros((*states, spec.num_units), dtype) if spec.has_cell_state else None

            self.x, self.hx, self.cx = data(spec.input_size), h(), c()
            self.y, self.hy, self.cy = data(spec.output_size), h(), c()
            self.dy = self.dhy = self.dcy = self.dx = self.dhx = self.dcx = self.d_params = None
            if plan.training:
                self.dy, self.dhy, self.dcy = data(spec.output_size), h(), c()
                self.dx, self.dhx, self.dcx = data(spec.input_size), h(), c()
                self.d_params = device.zeros(params.shape, dtype)
            self._workspace, self._reserve = (
                scratch(device, plan.workspace_nbytes),
                scratch(device, plan.reserve_nbytes),
            )
            self._carried = [(self.hx, self.hy), (self.cx, self.cy)] if carry_state else []
            stay = contextlib.nullcontext() if dropout is None else dropout.left_alone(device.stream())
            with stay:
                self._graph = device.capture(self._work)
            for state, _ in self._carried:  # the first run, before the capture, has written there
                if state is not None:
                    device.fill_zero(state)

    def _work(self) -> None:
        """Put on the current stream what a replay does; nothing here takes memory or waits."""
        plan, device = self._plan, self._device
        handle = self._native.handle_on(device.stream())
        plan.forward(
            handle, self.params, self.x, self.hx, self.cx, self.y, self.hy, self.cy, self._workspace, self._reserve
        )
        if plan.training:
            plan.backward_data(
                handle, self.params, self.y, self.dy, self.hx, self.dhy, self.dhx, self.cx, self.dcy, self.dcx, self.dx,
                self._workspace, self._reserve,
            )  # fmt: skip
            device.fill_zero(self.d_params)
            plan.backward_weights(handle, self.x, self.hx, self.y, self.d_params, self._workspace, self._reserve)
        for state, result in self._carried:
            if state is not None:
                device.copy_bytes(state, result)

    def replay(self) -> None:
        self._native.handles.check_process()
        with self._device.active():
            if self._dropout is None:
                self._graph.launch()
            else:
                with self._dropout.forward_on(self._device.stream()):
                    self._graph.launch()
