"""Prepared calls on the NumPy engine: they use the caller's arrays and reserve."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pycudnnrnn._arrays import address
from pycudnnrnn.engines import EngineGraph
from pycudnnrnn.engines.numpy_engine.forward import forward
from pycudnnrnn.engines.numpy_engine.packing import pack
from pycudnnrnn.engines.numpy_engine.reserve import make_reserve, reserve_nbytes
from pycudnnrnn.engines.numpy_engine.weights import Array, Weights, load_weights
from pycudnnrnn.errors import CaptureError
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.passes import BACKWARD_DATA, FORWARD, GRADIENTS, RESULTS, UPSTREAM, Arrays, CallConfig, Pass


class NumpyPlan:
    """See `engines.EnginePlan`. Each call still allocates scratch memory: it has no workspace."""

    workspace_nbytes = 0

    def __init__(self, config: CallConfig, layout: ParamLayout) -> None:
        self._config, self._layout, self.spec = config, layout, config.spec
        self._held: tuple[Array | None, list[Weights]] = None, []
        rows = config.schedule.num_rows if config.keep_reserve else 0
        self.reserve_nbytes = reserve_nbytes(config.spec, rows, drops=config.dropout is not None)

    def capture(self, params: Array, *, carry_state: bool) -> EngineGraph:  # noqa: ARG002
        raise CaptureError("a plan on the CPU: what is captured is a stream of CUDA calls, and here there are none")

    def hold(self, params: Array | None) -> None:
        self._held = params, [] if params is None else load_weights(self._layout, params, self.spec)

    def run(self, which: Pass, arrays: Arrays, at: Sequence[int | None], *, accumulate: bool = False) -> None:  # noqa: ARG002
        """Run a pass. A backward does not read y, hx and cx, as cuDNN's does: the reserve contains what it needs."""
        config, layout, spec, get = self._config, self._layout, self.spec, arrays.get
        held, weights = self._held
        if "params" in which.names and (held is None or address(arrays["params"]) != address(held)):
            weights = load_weights(layout, arrays["params"], spec)
        if which is FORWARD:
            outs = [*map(get, RESULTS)]
            forward(config, layout, arrays, weights=weights, buffer=get("reserve"), outs=outs)
            return
        kept = make_reserve(config, layout, weights, np.empty((0, spec.input_size)), arrays["reserve"])
        if which is BACKWARD_DATA:
            dy, dhy, dcy = map(get, UPSTREAM)
            kept.backward_data(dy, dhy, dcy, [*map(get, GRADIENTS)])
        else:
            kept.inputs[0] = pack(arrays["x"], config.schedule, spec.compute_dtype.numpy)
            kept.backward_weights(arrays["d_params"], accumulate=accumulate)
