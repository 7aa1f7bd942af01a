"""Prepared calls on cuDNN: the caller's arrays, a workspace made once, and nothing else on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pycudnnrnn._libcudnn import Bound
from pycudnnrnn.engines.cudnn.checks import DATA_ALIGNMENT_NBYTES, PARAMS_ALIGNMENT_NBYTES, check_array
from pycudnnrnn.engines.cudnn.device import addresses, scratch
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.graphs import CudnnGraph
from pycudnnrnn.engines.cudnn.passes import BACKWARD_DATA, BACKWARD_WEIGHTS, FORWARD, Passes
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.engines.cudnn.turns import Turns
from pycudnnrnn.schedule import Schedule


class CudnnPlan:
    """See `engines.EnginePlan`. Calls use one workspace and one pair of data descriptors, of its own."""

    def __init__(self, runtime: Runtime, passes: Passes, schedule: Schedule, dropout: CudnnDropout | None) -> None:
        self._runtime, self._passes, self._dropout = runtime, passes, dropout
        self._data = passes.data_of_its_own(schedule)
        self._device = passes.device
        self.spec = passes.spec
        self.workspace_nbytes, self.reserve_nbytes = passes.workspace_nbytes, passes.reserve_nbytes
        self._training = passes.training
        self._plain_forward = passes.recogniser(*FORWARD)
        if passes.training:
            self._plain_backward_data = passes.recogniser(*BACKWARD_DATA)
            self._plain_backward_weights = passes.recogniser(*BACKWARD_WEIGHTS)
        self._workspace = scratch(self._device, passes.workspace_nbytes)
        (self._workspace_at,) = addresses(self._device, self._workspace)
        self._turns = Turns(self._device, self, self._workspace)

    def forward_if_plain(self, params: Any, x: Any, hx: Any, cx: Any, y: Any, hy: Any, cy: Any, reserve: Any) -> bool:
        at = self._plain_forward(x, y, hx, hy, cx, cy, params, reserve if self._training else None)
        if at is not None:
            self._launch(self._passes.call_forward, at, drops=self._dropout)
        return at is not None

    def backward_data_if_plain(
        self, params: Any, y: Any, dy: Any, hx: Any, dhy: Any, dhx: Any, cx: Any, dcy: Any, dcx: Any, dx: Any,
        reserve: Any,
    ) -> bool:  # fmt: skip
        if not self._training:
            return False
        at = self._plain_backward_data(y, dy, dx, hx, dhy, dhx, cx, dcy, dcx, params, reserve)
        if at is not None:
            self._go_back(dx, at)
        return at is not None

    def backward_weights_if_plain(
        self, x: Any, hx: Any, y: Any, d_params: Any, reserve: Any, *, accumulate: bool
    ) -> bool:
        if not self._training:
            return False
        at = self._plain_backward_weights(x, hx, y, d_params, reserve)
        if at is not None:
            self._add_gradient(d_params, at, accumulate=accumulate)
        return at is not None

    def hold(self, params: Any | None) -> None:
        """Do nothing: cuDNN reads params as they are."""

    def forward(
        self, params: Any, x: Any, hx: Any | None, cx: Any | None, y: Any, hy: Any | None, cy: Any | None,
        reserve: Any | None,
    ) -> None:  # fmt: skip
        at = self._at(FORWARD, x, y, hx, hy, cx, cy, params, reserve)
        self._launch(self._passes.call_forward, at, drops=self._dropout)

    def backward_data(
        self, params: Any, y: Any, dy: Any, hx: Any | None, dhy: Any, dhx: Any | None, cx: Any | None,
        dcy: Any | None, dcx: Any | None, dx: Any, reserve: Any,
    ) -> None:  # fmt: skip
        at = self._at(BACKWARD_DATA, y, dy, dx, hx, dhy, dhx, cx, dcy, dcx, params, reserve)
        self._go_back(dx, at)

    def backward_weights(
        self, x: Any, hx: Any | None, y: Any, d_params: Any, reserve: Any, *, accumulate: bool
    ) -> None:
        at = self._at(BACKWARD_WEIGHTS, x, hx, y, d_params, reserve)
        self._add_gradient(d_params, at, accumulate=accumulate)

    def capture(self, params: Any, *, carry_state: bool) -> CudnnGraph:
        check_array("params", params, self._device, PARAMS_ALIGNMENT_NBYTES)
        return CudnnGraph(self._runtime, self._passes, self._data, self._dropout, params, carry_state=carry_state)

    def _at(self, names: tuple[str, ...], *arrays: Any) -> list[int | None]:
        """Addresses of arrays whose shapes were checked, after the check that cuDNN can read them in place."""
        for name, array in zip(names, arrays, strict=True):
            params = name in {"params", "d_params"}
            check_array(name, array, self._device, PARAMS_ALIGNMENT_NBYTES if params else DATA_ALIGNMENT_NBYTES)
        return addresses(self._device, *arrays)

    def _launch(self, call: Bound, at: Sequence[int | None], *, drops: CudnnDropout | None = None) -> None:
        """Put a pass on the current stream; a forward that drops is one of its model's, one after the other."""
        device = self._device
        with device.active():
            stream = device.stream()
            self._turns.on(stream)
            handle = self._runtime.handle_on(stream)
            x_desc, y_desc = self._data.pointers
            if drops is None:
                call(handle.pointer, x_desc, y_desc, self._workspace_at, *at)
            else:
                with drops.forward_on(stream):
                    call(handle.pointer, x_desc, y_desc, self._workspace_at, *at)

    def _go_back(self, dx: Any, at: Sequence[int | None]) -> None:
        if self._passes.ragged:
            with self._device.active():
                self._device.fill_zero(dx)
        self._launch(self._passes.call_backward_data, at)

    def _add_gradient(self, d_params: Any, at: Sequence[int | None], *, accumulate: bool) -> None:
        with self._device.active():
            if not accumulate:
                self._device.fill_zero(d_params)
            self._launch(self._passes.call_backward_weights, at)
