"""A prepared call on the NumPy engine: the caller's arrays in and out, what is kept in the caller's reserve."""

from __future__ import annotations

from pycudnnrnn.engines.numpy_cells import Array
from pycudnnrnn.engines.numpy_engine import NumpyDropout, NumpyEngine
from pycudnnrnn.engines.numpy_reserve import NumpyReserve, reserve_nbytes
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec


class NumpyPlan:
    """See `engines.EnginePlan`. Scratch memory is still taken call by call: NumPy has no workspace to give."""

    workspace_nbytes = 0

    def __init__(
        self, engine: NumpyEngine, spec: RNNSpec, schedule: Schedule, *, training: bool, dropout: NumpyDropout | None
    ) -> None:
        self._engine, self._spec, self._schedule = engine, spec, schedule
        self._training, self._dropout = training, dropout
        self.reserve_nbytes = reserve_nbytes(spec, schedule.num_rows, drops=dropout is not None) if training else 0

    def forward(
        self,
        params: Array,
        x: Array,
        hx: Array | None,
        cx: Array | None,
        y: Array,
        hy: Array | None,
        cy: Array | None,
        reserve: Array | None,
    ) -> None:
        results = self._engine.forward(
            self._spec, self._schedule, params, x, hx, cx,
            dropout=self._dropout, keep_reserve=self._training, buffer=reserve,
        )  # fmt: skip
        for target, result in zip((y, hy, cy), results, strict=False):
            if target is not None:
                target[...] = result

    def backward_data(
        self,
        params: Array,
        y: Array,  # noqa: ARG002
        dy: Array,
        hx: Array | None,  # noqa: ARG002  cuDNN reads y, hx and cx again; here they are in the reserve
        dhy: Array | None,
        dhx: Array | None,
        cx: Array | None,  # noqa: ARG002
        dcy: Array | None,
        dcx: Array | None,
        dx: Array,
        reserve: Array,
    ) -> None:
        kept = self._kept(params, dx, reserve)  # dx: of x's shape; the values of x are not read here
        results = self._engine.backward_data(kept, dy, dhy, dcy)
        for target, result in zip((dx, dhx, dcx), results, strict=True):
            if target is not None:
                target[...] = result

    def backward_weights(
        self,
        x: Array,
        hx: Array | None,  # noqa: ARG002
        y: Array,  # noqa: ARG002
        d_params: Array,
        reserve: Array,
        *,
        accumulate: bool,
    ) -> None:
        self._engine.backward_weights(self._kept(d_params, x, reserve), d_params, accumulate=accumulate)

    def _kept(self, params: Array, x: Array, reserve: Array) -> NumpyReserve:
        drops = self._dropout is not None
        return self._engine.reserve_in(self._spec, self._schedule, params, x, reserve, drops=drops)
