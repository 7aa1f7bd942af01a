"""CUDA graphs: one batch's passes captured once, over memory of their own, and replayed."""

from __future__ import annotations

import contextlib
from typing import Any

from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.passes import DataDescriptors, Passes
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.engines.cudnn.step import Step
from pycudnnrnn.engines.cudnn.turns import Turns


class CudnnGraph(Step):
    """See `engines.EngineGraph`."""

    def __init__(
        self,
        runtime: Runtime,
        passes: Passes,
        data: DataDescriptors,
        dropout: CudnnDropout | None,
        params: Any,
        *,
        carry_state: bool,
    ) -> None:
        self._runtime, self._dropout, self._device = runtime, dropout, passes.device
        device, dtype = passes.device, passes.spec.dtype.numpy
        with device.active():
            device.refuse_capture(device.stream(), "capturing a plan")
            x, h, c = (
                None if shape is None else device.zeros(shape, dtype)
                for shape in (passes.x_shape, passes.h_shape, passes.c_shape)
            )
            super().__init__(passes, data, params, x, h, c)
            self._carried = [(self.hx, self.hy), (self.cx, self.cy)] if carry_state else []
            stay = contextlib.nullcontext() if dropout is None else dropout.left_alone(device.stream())
            with stay:
                self._graph = device.capture(self._work)
                self._turns = Turns(device, self, *vars(self).values())
            for state, _ in self._carried:  # the first run, before the capture, has written there
                if state is not None:
                    device.fill_zero(state)

    def _work(self) -> None:
        """Put on the current stream what a replay does; nothing here takes memory or waits."""
        self.run(self._runtime.handle_on(self._device.stream()))
        for state, result in self._carried:
            if state is not None:
                self._device.copy_bytes(state, result)

    def replay(self) -> None:
        self._runtime.handles.check_process()
        with self._device.active():
            stream = self._device.stream()
            self._turns.on(stream)
            if self._dropout is None:
                self._graph.launch()
            else:
                with self._dropout.forward_on(stream):
                    self._graph.launch()
