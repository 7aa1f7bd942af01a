"""CUDA graphs: one batch's passes captured once, over memory of their own, and replayed."""

from __future__ import annotations

import contextlib
from typing import Any

from pycudnnrnn.engines.cudnn.device import scratch
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.owned import keep
from pycudnnrnn.engines.cudnn.passes import Passes
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.schedule import Schedule


class CudnnGraph:
    """See `engines.EngineGraph`. Workspace and reserve are the graph's own as well: nobody else runs in them."""

    def __init__(
        self,
        runtime: Runtime,
        passes: Passes,
        schedule: Schedule,
        dropout: CudnnDropout | None,
        params: Any,
        *,
        carry_state: bool,
    ) -> None:
        self._runtime, self._passes, self._dropout = runtime, passes, dropout
        self._data = passes.data_of_its_own(schedule)
        self._device = device = passes.device
        self.params = params
        dtype = passes.spec.dtype.numpy
        with device.active():
            device.refuse_capture(device.stream(), "capturing a plan")

            def zeros(shape: tuple[int, ...] | None) -> Any:
                return None if shape is None else device.zeros(shape, dtype)

            x, y, h, c = passes.x_shape, passes.y_shape, passes.h_shape, passes.c_shape
            self.x, self.hx, self.cx = zeros(x), zeros(h), zeros(c)
            self.y, self.hy, self.cy = zeros(y), zeros(h), zeros(c)
            self.dy = self.dhy = self.dcy = self.dx = self.dhx = self.dcx = self.d_params = None
            if passes.training:
                self.dy, self.dhy, self.dcy = zeros(y), zeros(h), zeros(c)
                self.dx, self.dhx, self.dcx = zeros(x), zeros(h), zeros(c)
                self.d_params = zeros(params.shape)
            self._workspace, self._reserve = (
                scratch(device, passes.workspace_nbytes),
                scratch(device, passes.reserve_nbytes),
            )
            self._carried = [(self.hx, self.hy), (self.cx, self.cy)] if carry_state else []
            stay = contextlib.nullcontext() if dropout is None else dropout.left_alone(device.stream())
            with stay:
                self._graph = device.capture(self._work)
                keep(self, self._graph)
            for state, _ in self._carried:  # the first run, before the capture, has written there
                if state is not None:
                    device.fill_zero(state)

    def _work(self) -> None:
        """Put on the current stream what a replay does; nothing here takes memory or waits."""
        passes, device = self._passes, self._device
        call = self._runtime.handle_on(device.stream()), self._data
        passes.forward(
            *call, self.params, self.x, self.hx, self.cx, self.y, self.hy, self.cy, self._workspace, self._reserve
        )
        if passes.training:
            passes.backward_data(
                *call, self.params, self.y, self.dy, self.hx, self.dhy, self.dhx, self.cx, self.dcy, self.dcx, self.dx,
                self._workspace, self._reserve,
            )  # fmt: skip
            device.fill_zero(self.d_params)
            passes.backward_weights(*call, self.x, self.hx, self.y, self.d_params, self._workspace, self._reserve)
        for state, result in self._carried:
            if state is not None:
                device.copy_bytes(state, result)

    def replay(self) -> None:
        self._runtime.handles.check_process()
        with self._device.active():
            if self._dropout is None:
                self._graph.launch()
            else:
                with self._dropout.forward_on(self._device.stream()):
                    self._graph.launch()
