"""A batch's passes over memory of their own: a forward, and in training both backward passes after it."""

from __future__ import annotations

from typing import Any

from pycudnnrnn.engines.cudnn.device import scratch
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.passes import DataDescriptors, Passes


class Step:
    """Results, gradients and scratch memory are its own, and zeros at first; what a cell does not have is None."""

    def __init__(self, passes: Passes, data: DataDescriptors, params: Any, x: Any, hx: Any, cx: Any) -> None:
        self._passes, self._data = passes, data
        device, dtype = passes.device, passes.spec.dtype.numpy

        def zeros(shape: tuple[int, ...] | None) -> Any:
            return None if shape is None else device.zeros(shape, dtype)

        self.params, self.x, self.hx, self.cx = params, x, hx, cx
        self.y, self.hy, self.cy = zeros(passes.y_shape), zeros(passes.h_shape), zeros(passes.c_shape)
        self.dy = self.dhy = self.dcy = self.dx = self.dhx = self.dcx = self.d_params = None
        if passes.training:
            self.dy, self.dhy, self.dcy = zeros(passes.y_shape), zeros(passes.h_shape), zeros(passes.c_shape)
            self.dx, self.dhx, self.dcx = zeros(passes.x_shape), zeros(passes.h_shape), zeros(passes.c_shape)
            self.d_params = zeros(params.shape)
        self._workspace = scratch(device, passes.workspace_nbytes)
        self._reserve = scratch(device, passes.reserve_nbytes)

    def run(self, handle: Handle) -> None:
        """Put the passes on a handle's stream, which is the current one; nothing here takes memory or waits."""
        passes, call = self._passes, (handle, self._data)
        passes.forward(
            *call, self.params, self.x, self.hx, self.cx, self.y, self.hy, self.cy, self._workspace, self._reserve
        )
        if passes.training:
            passes.backward_data(
                *call, self.params, self.y, self.dy, self.hx, self.dhy, self.dhx, self.cx, self.dcy, self.dcx, self.dx,
                self._workspace, self._reserve,
            )  # fmt: skip
            passes.device.fill_zero(self.d_params)
            passes.backward_weights(*call, self.x, self.hx, self.y, self.d_params, self._workspace, self._reserve)
