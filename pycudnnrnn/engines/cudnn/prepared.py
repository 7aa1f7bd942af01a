"""A prepared call on cuDNN: the caller's arrays, a workspace made once, and nothing else on the way."""

from __future__ import annotations

from typing import Any

from pycudnnrnn.engines.cudnn.checks import PARAMS_ALIGNMENT_NBYTES, PlainArrays, Wanted, check_array
from pycudnnrnn.engines.cudnn.device import BYTES, scratch
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.graphs import CudnnGraph
from pycudnnrnn.engines.cudnn.native import Native
from pycudnnrnn.engines.cudnn.plan import Plan


class PreparedPlan:
    """See `engines.EnginePlan`. Calls use one workspace, so that they belong on one stream at a time."""

    def __init__(
        self,
        native: Native,
        plan: Plan,
        dropout: CudnnDropout | None,
    ) -> None:
        self._native, self._plan, self._dropout = native, plan, dropout
        self._device = device = plan.device
        self.spec = spec = plan.spec
        schedule = plan.schedule
        self.workspace_nbytes, self.reserve_nbytes = plan.workspace_nbytes, plan.reserve_nbytes
        self._workspace = scratch(device, plan.workspace_nbytes)
        self._workspace_at = None if self._workspace is None else device.address(self._workspace)
        dtype = spec.dtype.numpy
        states, align = (spec.num_pseudo_layers, schedule.B), dtype.itemsize
        x = Wanted(schedule.data_shape(spec.input_size), dtype, align)
        y = Wanted(schedule.data_shape(spec.output_size), dtype, align)
        h = Wanted((*states, spec.state_size), dtype, align, optional=True)
        c = Wanted((*states, spec.num_units) if spec.has_cell_state else None, dtype, align, optional=True)
        params = Wanted((native.layout(spec).size,), dtype, PARAMS_ALIGNMENT_NBYTES)
        reserve = Wanted((self.reserve_nbytes,) if plan.training else None, BYTES, optional=not plan.training)
        dh = h._replace(optional=False)
        dc = c._replace(optional=not spec.has_cell_state)
        self._passes = {
            name: PlainArrays(device.xp.ndarray, device.index, wanted, apart=True)
            for name, wanted in {
                "forward": (x, y, h, h, c, c, params, reserve),
                "backward_data": (y, y, x, h, dh, h, c, dc, c, params, reserve),
                "backward_weights": (x, h, y, params, reserve),
            }.items()
        }

    def forward_if_plain(self, params: Any, x: Any, hx: Any, cx: Any, y: Any, hy: Any, cy: Any, reserve: Any) -> bool:
        reserve = reserve if self._plan.training else None
        at = self._passes["forward"].addresses((x, y, hx, hy, cx, cy, params, reserve))
        if at is not None:
            self._forward(*at)
        return at is not None

    def backward_data_if_plain(
        self, params: Any, y: Any, dy: Any, hx: Any, dhy: Any, dhx: Any, cx: Any, dcy: Any, dcx: Any, dx: Any,
        reserve: Any,
    ) -> bool:  # fmt: skip
        if not self._plan.training:
            return False
        at = self._passes["backward_data"].addresses((y, dy, dx, hx, dhy, dhx, cx, dcy, dcx, params, reserve))
        if at is not None:
            self._backward_data(*at)
        return at is not None

    def backward_weights_if_plain(
        self, x: Any, hx: Any, y: Any, d_params: Any, reserve: Any, *, accumulate: bool
    ) -> bool:
        if not self._plan.training:
            return False
        at = self._passes["backward_weights"].addresses((x, hx, y, d_params, reserve))
        if at is not None:
            self._backward_weights(d_params, *at, accumulate=accumulate)
        return at is not None

    def hold(self, params: Any | None) -> None:
        """Do nothing: cuDNN reads params as they are."""

    def forward(
        self,
        params: Any,
        x: Any,
        hx: Any | None,
        cx: Any | None,
        y: Any,
        hy: Any | None,
        cy: Any | None,
        reserve: Any | None,
    ) -> None:
        self._forward(*self._at(x=x, y=y, hx=hx, hy=hy, cx=cx, cy=cy, params=params, reserve=reserve))

    def backward_data(
        self,
        params: Any,
        y: Any,
        dy: Any,
        hx: Any | None,
        dhy: Any,
        dhx: Any | None,
        cx: Any | None,
        dcy: Any | None,
        dcx: Any | None,
        dx: Any,
        reserve: Any,
    ) -> None:
        self._backward_data(
            *self._at(
                y=y, dy=dy, dx=dx, hx=hx, dhy=dhy, dhx=dhx, cx=cx, dcy=dcy, dcx=dcx, params=params, reserve=reserve
            )
        )

    def backward_weights(
        self, x: Any, hx: Any | None, y: Any, d_params: Any, reserve: Any, *, accumulate: bool
    ) -> None:
        at = self._at(x=x, hx=hx, y=y, d_params=d_params, reserve=reserve)
        self._backward_weights(d_params, *at, accumulate=accumulate)

    def capture(self, params: Any, *, carry_state: bool) -> CudnnGraph:
        check_array("params", params, self._device.address(params), PARAMS_ALIGNMENT_NBYTES)
        return CudnnGraph(self._native, self._plan, self._dropout, params, carry_state=carry_state)

    def _at(self, **arrays: Any) -> list[int | None]:
        """Addresses of arrays whose shapes were checked, after the check that cuDNN can read them in place."""
        found: list[int | None] = []
        for name, array in arrays.items():
            if array is None:
                found.append(None)
                continue
            address = self._device.address(array)
            params = name in {"params", "d_params"}
            check_array(name, array, address, PARAMS_ALIGNMENT_NBYTES if params else array.dtype.itemsize)
            found.append(address)
        return found

    def _forward(self, *at: int | None) -> None:
        *arrays, reserve = at
        with self._device.active():
            stream = self._device.stream()
            handle = self._native.handle_on(stream)
            if self._dropout is None:
                self._plan.call_forward(handle.pointer, *arrays, self._workspace_at, reserve)
            else:
                with self._dropout.forward_on(stream):
                    self._plan.call_forward(handle.pointer, *arrays, self._workspace_at, reserve)

    def _backward_data(self, *at: int | None) -> None:
        *arrays, reserve = at
        with self._device.active():
            handle = self._native.handle_on(self._device.stream())
            self._plan.call_backward_data(handle.pointer, *arrays, self._workspace_at, reserve)

    def _backward_weights(self, d_params: Any, *at: int | None, accumulate: bool) -> None:
        *arrays, reserve = at
        with self._device.active():
            handle = self._native.handle_on(self._device.stream())
            if not accumulate:
                self._device.fill_zero(d_params)
            self._plan.call_backward_weights(handle.pointer, *arrays, self._workspace_at, reserve)
