"""Prepared calls on cuDNN: the caller's arrays, a workspace made once, and nothing else on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pycudnnrnn.engines.cudnn.checks import DATA_ALIGNMENT_NBYTES, PARAMS_ALIGNMENT_NBYTES, check_array
from pycudnnrnn.engines.cudnn.device import scratch
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.graphs import CudnnGraph
from pycudnnrnn.engines.cudnn.passes import Passes
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.schedule import Schedule


class CudnnPlan:
    """See `engines.EnginePlan`. Calls use one workspace, so that they belong on one stream at a time."""

    def __init__(self, runtime: Runtime, passes: Passes, schedule: Schedule, dropout: CudnnDropout | None) -> None:
        self._runtime, self._passes, self._schedule, self._dropout = runtime, passes, schedule, dropout
        self._device = passes.device
        self.spec = passes.spec
        self.workspace_nbytes, self.reserve_nbytes = passes.workspace_nbytes, passes.reserve_nbytes
        self._training = passes.training
        self._plain_forward = passes.recogniser("forward")
        if passes.training:
            self._plain_backward_data = passes.recogniser("backward_data")
            self._plain_backward_weights = passes.recogniser("backward_weights")
        self._workspace = scratch(self._device, passes.workspace_nbytes)
        self._workspace_at = None if self._workspace is None else self._device.address(self._workspace)

    def forward_if_plain(self, params: Any, x: Any, hx: Any, cx: Any, y: Any, hy: Any, cy: Any, reserve: Any) -> bool:
        reserve = reserve if self._training else None
        at = self._plain_forward.addresses((x, y, hx, hy, cx, cy, params, reserve))
        if at is not None:
            self._forward(at)
        return at is not None

    def backward_data_if_plain(
        self, params: Any, y: Any, dy: Any, hx: Any, dhy: Any, dhx: Any, cx: Any, dcy: Any, dcx: Any, dx: Any,
        reserve: Any,
    ) -> bool:  # fmt: skip
        if not self._training:
            return False
        at = self._plain_backward_data.addresses((y, dy, dx, hx, dhy, dhx, cx, dcy, dcx, params, reserve))
        if at is not None:
            self._backward_data(dx, at)
        return at is not None

    def backward_weights_if_plain(
        self, x: Any, hx: Any, y: Any, d_params: Any, reserve: Any, *, accumulate: bool
    ) -> bool:
        if not self._training:
            return False
        at = self._plain_backward_weights.addresses((x, hx, y, d_params, reserve))
        if at is not None:
            self._backward_weights(d_params, at, accumulate=accumulate)
        return at is not None

    def hold(self, params: Any | None) -> None:
        """Do nothing: cuDNN reads params as they are."""

    def forward(
        self, params: Any, x: Any, hx: Any | None, cx: Any | None, y: Any, hy: Any | None, cy: Any | None,
        reserve: Any | None,
    ) -> None:  # fmt: skip
        self._forward(self._at(x=x, y=y, hx=hx, hy=hy, cx=cx, cy=cy, params=params, reserve=reserve))

    def backward_data(
        self, params: Any, y: Any, dy: Any, hx: Any | None, dhy: Any, dhx: Any | None, cx: Any | None,
        dcy: Any | None, dcx: Any | None, dx: Any, reserve: Any,
    ) -> None:  # fmt: skip
        at = self._at(
            y=y, dy=dy, dx=dx, hx=hx, dhy=dhy, dhx=dhx, cx=cx, dcy=dcy, dcx=dcx, params=params, reserve=reserve
        )
        self._backward_data(dx, at)

    def backward_weights(
        self, x: Any, hx: Any | None, y: Any, d_params: Any, reserve: Any, *, accumulate: bool
    ) -> None:
        at = self._at(x=x, hx=hx, y=y, d_params=d_params, reserve=reserve)
        self._backward_weights(d_params, at, accumulate=accumulate)

    def capture(self, params: Any, *, carry_state: bool) -> CudnnGraph:
        check_array("params", params, self._device.address(params), PARAMS_ALIGNMENT_NBYTES)
        return CudnnGraph(self._runtime, self._passes, self._schedule, self._dropout, params, carry_state=carry_state)

    def _at(self, **arrays: Any) -> list[int | None]:
        """Addresses of arrays whose shapes were checked, after the check that cuDNN can read them in place."""
        found: list[int | None] = []
        for name, array in arrays.items():
            if array is None:
                found.append(None)
                continue
            address = self._device.address(array)
            params = name in {"params", "d_params"}
            check_array(name, array, address, PARAMS_ALIGNMENT_NBYTES if params else DATA_ALIGNMENT_NBYTES)
            found.append(address)
        return found

    def _forward(self, at: Sequence[int | None]) -> None:
        x, y, hx, hy, cx, cy, params, reserve = at
        with self._device.active():
            stream = self._device.stream()
            handle = self._runtime.handle_on(stream)
            x_desc, y_desc = self._passes.data(self._schedule).pointers
            call = handle.pointer, x_desc, x, y_desc, y, hx, hy, cx, cy, params, self._workspace_at, reserve
            if self._dropout is None:
                self._passes.call_forward(*call)
            else:
                with self._dropout.forward_on(stream):
                    self._passes.call_forward(*call)

    def _backward_data(self, dx: Any, at: Sequence[int | None]) -> None:
        y, dy, *others, reserve = at
        with self._device.active():
            handle = self._runtime.handle_on(self._device.stream())
            x_desc, y_desc = self._passes.data(self._schedule).pointers
            if self._passes.ragged:
                self._device.fill_zero(dx)
            self._passes.call_backward_data(handle.pointer, y_desc, y, dy, x_desc, *others, self._workspace_at, reserve)

    def _backward_weights(self, d_params: Any, at: Sequence[int | None], *, accumulate: bool) -> None:
        x, hx, y, d_params_at, reserve = at
        with self._device.active():
            handle = self._runtime.handle_on(self._device.stream())
            x_desc, y_desc = self._passes.data(self._schedule).pointers
            if not accumulate:
                self._device.fill_zero(d_params)
            self._passes.call_backward_weights(
                handle.pointer, x_desc, x, hx, y_desc, y, d_params_at, self._workspace_at, reserve
            )
