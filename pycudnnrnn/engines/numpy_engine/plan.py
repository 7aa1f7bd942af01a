"""A prepared call on the NumPy engine: the caller's arrays in and out, what is kept in the caller's reserve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pycudnnrnn.engines import EngineGraph
from pycudnnrnn.engines.numpy_engine.reserve import NumpyReserve, reserve_nbytes
from pycudnnrnn.engines.numpy_engine.weights import Array, Weights
from pycudnnrnn.errors import CaptureError
from pycudnnrnn.passes import BACKWARD_DATA, FORWARD, Arrays, Batch, Inputs, Pass

if TYPE_CHECKING:
    from pycudnnrnn.engines.numpy_engine.engine import NumpyEngine


class NumpyPlan:
    """See `engines.EnginePlan`. Scratch memory is still taken call by call: NumPy has no workspace to give."""

    workspace_nbytes = 0

    def __init__(self, engine: NumpyEngine, batch: Batch) -> None:
        self._engine, self._batch, self.spec = engine, batch, batch.spec
        self._held: tuple[Array, list[Weights]] | None = None
        drops = batch.dropout is not None
        self.reserve_nbytes = reserve_nbytes(batch.spec, batch.schedule.num_rows, drops=drops) if batch.keeps else 0

    def short_way(self, which: Pass) -> None:
        """None: the checks take no time worth saving beside the arithmetic."""

    def capture(self, params: Array, *, carry_state: bool) -> EngineGraph:  # noqa: ARG002
        raise CaptureError("a plan on the CPU: what is captured is a stream of CUDA calls, and here there are none")

    def hold(self, params: Array | None) -> None:
        self._held = None if params is None else (params, self._engine.weights(self.spec, params))

    def run(self, which: Pass, arrays: Arrays, *, accumulate: bool = False) -> None:
        get = arrays.get
        if which is FORWARD:
            inputs = Inputs(arrays["params"], arrays["x"], get("hx"), get("cx"))
            outs, buffer = (arrays["y"], get("hy"), get("cy")), get("reserve")
            self._engine.forward(self._batch, inputs, weights=self._weights(inputs.params), buffer=buffer, outs=outs)
        elif which is BACKWARD_DATA:  # cuDNN reads y, hx and cx again; here they are in the reserve
            kept = self._kept(self._weights(arrays["params"]), None, arrays["reserve"])
            kept.backward_data(arrays["dy"], get("dhy"), get("dcy"), (arrays["dx"], get("dhx"), get("dcx")))
        else:
            kept = self._kept([], arrays["x"], arrays["reserve"])
            kept.backward_weights(arrays["d_params"], accumulate=accumulate)

    def _weights(self, params: Array) -> list[Weights]:
        if self._held is not None and self._held[0] is params:
            return self._held[1]
        return self._engine.weights(self.spec, params)

    def _kept(self, weights: list[Weights], x: Array | None, reserve: Array) -> NumpyReserve:
        return self._engine.reserve_in(self._batch, weights, x, reserve)
