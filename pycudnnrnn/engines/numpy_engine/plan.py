"""Calls of one configuration on the NumPy engine: run once, or bound to the caller's arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from pycudnnrnn._arrays import address
from pycudnnrnn.engines import EngineGraph
from pycudnnrnn.engines.numpy_engine.calls import Calls
from pycudnnrnn.engines.numpy_engine.forward import BoundForward
from pycudnnrnn.engines.numpy_engine.packing import Copy, copy_all
from pycudnnrnn.engines.numpy_engine.reserve import NumpyReserve
from pycudnnrnn.engines.numpy_engine.weights import Array, Weights
from pycudnnrnn.errors import ArgumentError, CaptureError
from pycudnnrnn.passes import BACKWARD_DATA, BACKWARD_WEIGHTS, FORWARD, GRADIENTS, UPSTREAM, Arrays, CallConfig, Pass


class NumpyPlan:
    """See `engines.EnginePlan`. Each call still allocates scratch memory: it has no workspace."""

    workspace_nbytes = 0

    def __init__(self, calls: Calls, config: CallConfig) -> None:
        self._calls, self._dropout, self.spec = calls, config.dropout, config.spec
        self._held: Array | None = None
        self._held_weights: dict[Pass, list[Weights]] = {}
        self.reserve_nbytes = calls.reserve_nbytes

    def capture(self, params: Array, *, carry_state: bool) -> EngineGraph:  # noqa: ARG002
        raise CaptureError("a plan on the CPU: what is captured is a stream of CUDA calls, and here there are none")

    @np.errstate(all="ignore")  # NaN and infinity are data
    def hold(self, params: Array | None) -> None:
        calls, self._held = self._calls, None
        if params is not None:
            weights = calls.read(params)
            self._held_weights = {FORWARD: calls.held_weights(weights)}
            if calls.keeps:
                self._held_weights[BACKWARD_DATA] = list(calls.backward_weights(weights))
        self._held = params  # at the end: if memory runs out before, params are read in each call

    def bind(self, which: Pass, arrays: Arrays, at: Sequence[int | None]) -> Callable[..., None]:  # noqa: ARG002
        """See `engines.EnginePlan`. A backward reads neither y, hx nor cx: the reserve contains what it needs."""
        arrays = dict.fromkeys(which.names) | arrays
        for name, nbytes in (("reserve", self.spec.compute_dtype.itemsize), ("dx", self.spec.dtype.itemsize)):
            array = arrays.get(name)  # products are written to it
            if array is not None and address(array) % nbytes:
                raise ArgumentError(name, f"memory aligned to {nbytes} bytes", hex(address(array)))
        if which is BACKWARD_WEIGHTS:
            return self._bind_weights(arrays)
        calls, params = self._calls, arrays["params"]
        if which is FORWARD:
            run, ready = BoundForward(calls, self._dropout, arrays).run, calls.forward_weights
        else:
            reserve, ready = NumpyReserve(calls, arrays["reserve"]), calls.backward_weights
            upstream, outs = [*map(arrays.get, UPSTREAM)], [*map(arrays.get, GRADIENTS)]
            run = functools.partial(reserve.write_gradients, upstream=upstream, outs=outs)
        views = calls.read(params) if calls.reads_in_place else None

        def run_with_weights() -> None:
            held = self._held
            if held is params or (held is not None and address(held) == address(params)):
                run(self._held_weights[which])
            else:
                run(ready(views or calls.read(params)))

        return run_with_weights

    def _bind_weights(self, arrays: Arrays) -> Callable[..., None]:
        before = list[Copy]()
        reserve = NumpyReserve(self._calls, arrays["reserve"], self._calls.packing.read(arrays["x"], before))

        def run(*, accumulate: bool = False) -> None:
            copy_all(before)
            reserve.backward_weights(arrays["d_params"], accumulate=accumulate)

        return run
