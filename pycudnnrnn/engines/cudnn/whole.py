"""Batches that one native call takes: fresh results, and everything else made before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pycudnnrnn.engines import EagerForward, Results
from pycudnnrnn.engines.cudnn.device import scratch
from pycudnnrnn.engines.cudnn.native_calls import NativeCalls
from pycudnnrnn.engines.cudnn.reserve import CudnnReserve, Piece
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.passes import FORWARD, RESULTS, Arrays, CallConfig
from pycudnnrnn.schedule import Schedule


class Whole:
    """Run one kind of batch again and again; see `engines.EagerForward`."""

    def __init__(
        self,
        runtime: Runtime,
        config: CallConfig,
        resolved: Callable[[CallConfig, Arrays], CallConfig],
        in_parts: EagerForward,
    ) -> None:
        """Compile at the first call, on whose arrays `resolved` may measure; `in_parts` runs empty sequences, too."""
        self._runtime, self._config, self._resolved, self._in_parts = runtime, config, resolved, in_parts
        self._passes: NativeCalls | None = None

    def __call__(self, schedule: Schedule, inputs: Arrays, at: Sequence[int | None]) -> Results:
        if schedule.has_empty:
            return self._in_parts(schedule, inputs, at)
        runtime, device, config = self._runtime, self._runtime.device, self._config
        stream = device.stream()
        device.refuse_capture(stream, "an eager forward, which takes memory")
        handle = runtime.handle_on(stream)
        passes = self._passes
        if passes is None:
            passes = self._passes = runtime.native_calls(handle, self._resolved(config, inputs))
        results = passes.new(*RESULTS)
        y, hy, cy = results["y"], results["hy"], results.get("cy")
        reserve, workspace = scratch(device, passes.reserve_nbytes), scratch(device, passes.workspace_nbytes)
        scratch_at, *results_at = device.addresses(workspace, y, hy, cy, reserve)
        launch = passes.launch if config.dropout is None else config.dropout.launching(stream, passes.launch)
        launch(FORWARD, handle, passes.data(handle, schedule), scratch_at, (*at, *results_at))
        if not config.keep_reserve:
            return y, hy, cy, None
        pieces = [Piece(passes, schedule, inputs | {"y": y, "reserve": reserve})]
        return y, hy, cy, CudnnReserve(runtime, config.spec, schedule, pieces, (stream,))
