"""A batch that one native call takes: fresh results, and everything else made before."""

from __future__ import annotations

import contextlib
from typing import Final

from pycudnnrnn.engines import Results
from pycudnnrnn.engines.cudnn.device import scratch
from pycudnnrnn.engines.cudnn.reserve import CudnnReserve, Piece
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.passes import FORWARD, RESULTS, Arrays, Batch

_NOTHING: Final = contextlib.nullcontext()


def forward(runtime: Runtime, batch: Batch, inputs: Arrays) -> Results:
    """Run the batch; see `engines.Engine.forward`."""
    device, dropout, schedule = runtime.device, batch.dropout, batch.schedule
    with runtime.launching("an eager forward, which takes memory") as (handle, stream):
        passes = runtime.passes(handle, batch)
        arrays = inputs | passes.new(*RESULTS)
        arrays["reserve"] = scratch(device, passes.reserve_nbytes)
        workspace = scratch(device, passes.workspace_nbytes)
        with _NOTHING if dropout is None else dropout.forward_on(stream):
            passes.run(FORWARD, handle, passes.data(schedule), arrays | {"workspace": workspace})
        reserve = CudnnReserve(runtime, batch.spec, schedule, [Piece(passes, schedule, arrays)], (stream,))
        return arrays["y"], arrays["hy"], arrays.get("cy"), reserve if batch.keeps else None
