"""A prepared call on the NumPy engine: the caller's arrays in and out, what is kept in the caller's reserve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pycudnnrnn.engines import EngineGraph
from pycudnnrnn.engines.numpy_engine.dropout import NumpyDropout
from pycudnnrnn.engines.numpy_engine.reserve import NumpyReserve, reserve_nbytes
from pycudnnrnn.engines.numpy_engine.weights import Array, Weights
from pycudnnrnn.errors import CaptureError
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec

if TYPE_CHECKING:
    from pycudnnrnn.engines.numpy_engine.engine import NumpyEngine


class NumpyPlan:
    """See `engines.EnginePlan`. Scratch memory is still taken call by call: NumPy has no workspace to give."""

    workspace_nbytes = 0

    def __init__(
        self, engine: NumpyEngine, spec: RNNSpec, schedule: Schedule, *, training: bool, dropout: NumpyDropout | None
    ) -> None:
        self._engine, self._spec, self._schedule = engine, spec, schedule
        self.spec = spec
        self._training, self._dropout = training, dropout
        self._held: tuple[Array, list[Weights]] | None = None
        self.reserve_nbytes = reserve_nbytes(spec, schedule.num_rows, drops=dropout is not None) if training else 0

    def forward_if_plain(self, *_: object) -> bool:
        return False  # the checks take no time worth saving beside the arithmetic

    def backward_data_if_plain(self, *_: object) -> bool:
        return False

    def backward_weights_if_plain(self, *_: object, accumulate: bool) -> bool:  # noqa: ARG002
        return False

    def capture(self, params: Array, *, carry_state: bool) -> EngineGraph:  # noqa: ARG002
        raise CaptureError("a plan on the CPU: what is captured is a stream of CUDA calls, and here there are none")

    def hold(self, params: Array | None) -> None:
        self._held = None if params is None else (params, self._engine.weights(self._spec, params))

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
        self._engine.forward(
            self._spec, self._schedule, params, x, hx, cx,
            dropout=self._dropout, keep_reserve=self._training, weights=self._weights(params), buffer=reserve,
            outs=(y, hy, cy),
        )  # fmt: skip

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
        kept = self._kept(self._weights(params), None, reserve)
        self._engine.backward_data(kept, dy, dhy, dcy, outs=(dx, dhx, dcx))

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
        self._engine.backward_weights(self._kept([], x, reserve), d_params, accumulate=accumulate)

    def _weights(self, params: Array) -> list[Weights]:
        if self._held is not None and self._held[0] is params:
            return self._held[1]
        return self._engine.weights(self._spec, params)

    def _kept(self, weights: list[Weights], x: Array | None, reserve: Array) -> NumpyReserve:
        drops = self._dropout is not None
        return self._engine.reserve_in(self._spec, self._schedule, weights, x, reserve, drops=drops)
