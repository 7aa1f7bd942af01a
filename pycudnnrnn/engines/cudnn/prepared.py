"""A prepared call on cuDNN: the caller's arrays, a workspace made once, and nothing else on the way."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.plan import Plan

if TYPE_CHECKING:
    from pycudnnrnn.engines.cudnn.engine import CudnnEngine


class PreparedPlan:
    """See `engines.EnginePlan`. Calls use one workspace, so that they belong on one stream at a time."""

    def __init__(self, engine: CudnnEngine, plan: Plan, dropout: CudnnDropout | None, workspace: Any | None) -> None:
        self._engine, self._plan, self._dropout, self._workspace = engine, plan, dropout, workspace
        self.workspace_nbytes, self.reserve_nbytes = plan.workspace_nbytes, plan.reserve_nbytes

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
        lock = contextlib.nullcontext() if self._dropout is None else self._dropout.lock
        with lock, self._engine.launching() as (handle, stream):
            if self._dropout is not None:
                self._dropout.launched_on(stream)
            self._plan.forward(handle, params, x, hx, cx, y, hy, cy, self._workspace, reserve)
            if self._dropout is not None:
                self._dropout.position += 1

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
        with self._engine.launching() as (handle, _):
            self._plan.backward_data(handle, params, y, dy, hx, dhy, dhx, cx, dcy, dcx, dx, self._workspace, reserve)

    def backward_weights(
        self, x: Any, hx: Any | None, y: Any, d_params: Any, reserve: Any, *, accumulate: bool
    ) -> None:
        with self._engine.launching() as (handle, _):
            if not accumulate:
                self._engine.fill_zero(d_params)
            self._plan.backward_weights(handle, x, hx, y, d_params, self._workspace, reserve)
