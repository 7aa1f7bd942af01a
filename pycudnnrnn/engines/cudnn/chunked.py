"""A batch that takes several native calls: chunk by chunk through time, on the sequences that are still running.

All memory is taken before the first launch, so that running out of it changes nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from pycudnnrnn.engines import Results
from pycudnnrnn.engines.cudnn.device import scratch
from pycudnnrnn.engines.cudnn.handles import Handle
from pycudnnrnn.engines.cudnn.parts import Part, states_to_work_on
from pycudnnrnn.engines.cudnn.reserve import CudnnReserve, Gradients, Piece
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.passes import BACKWARD_DATA, FORWARD, Arrays, CallConfig, Pass
from pycudnnrnn.schedule import Chunk

_THROUGH: Final = {
    FORWARD: ("x", ("hx", "cx"), "y", ("hy", "cy")),
    BACKWARD_DATA: ("dy", ("dhy", "dcy"), "dx", ("dhx", "dcx")),
}
"""By pass: the data that it reads, the states before it, the data that it writes, and the states after it."""


def forward(runtime: Runtime, config: CallConfig, chunks: Sequence[Chunk], inputs: Arrays) -> Results:
    """Run the chunks; "auto" runs the standard algorithm, and nothing is tuned. See `engines.Engine.forward`."""
    x = inputs["x"]
    device, spec, schedule, dropout = runtime.device, *config[:2], config.dropout
    with runtime.launching("a batch in parts, which takes memory") as (handle, stream):
        y = device.zeros(schedule.data_shape(spec.output_size), spec.dtype.numpy)
        h, c = states_to_work_on(device, spec, schedule, inputs["hx"], inputs["cx"])
        pieces, results = [], []
        for chunk in chunks:
            part = runtime.part(schedule, chunk, stream)
            passes = runtime.native_calls(handle, config._replace(schedule=part.schedule))
            arrays: Arrays = {"params": inputs["params"], "x": part.buffer(x), "y": part.buffer(y)}
            arrays |= {"hx": part.state_buffer(h), "cx": part.state_buffer(c)}
            arrays["reserve"] = scratch(device, passes.reserve_nbytes)
            pieces.append(ChunkPiece(passes, part.schedule, arrays, part))
            results.append({"hy": part.state_buffer(h), "cy": part.state_buffer(c)})
        reserve = ChunkedReserve(runtime, spec, schedule, pieces, (stream,))
        workspace = reserve.workspace()
        with contextlib.nullcontext() if dropout is None else dropout.forward_on(stream):
            for piece, final in zip(pieces, results, strict=True):
                piece.through(FORWARD, handle, workspace, final, x, (h, c), y)
        return y, h, c, reserve if config.keep_reserve else None


@dataclasses.dataclass
class ChunkPiece(Piece):
    """A chunk's forward, and its place in the batch."""

    part: Part

    def through(
        self, which: Pass, handle: Handle, workspace: Any, own: Arrays, source: Any, states: tuple[Any, Any],
        target: Any,
    ) -> None:  # fmt: skip
        """Run a pass on this part of `source`, writing that of `target`; `states` become those after it."""
        read, before, written, after = _THROUGH[which]
        arrays = self.arrays | own
        self.part.cut(source, arrays[read])
        for whole, name in zip(states, before, strict=True):
            self.part.cut_states(whole, arrays[name])
        self.run(which, handle, workspace, own)
        self.part.put(target, arrays[written])
        for whole, name in zip(states, after, strict=True):
            self.part.put_states(whole, arrays[name])


@dataclasses.dataclass
class ChunkedReserve(CudnnReserve[ChunkPiece]):
    """The reserves of the chunks, in time order."""

    def _back(self, handle: Handle, given: Arrays, workspace: Any | None) -> Gradients:
        """Go back through the chunks, from the gradients of the final states to those of the initial ones."""
        device, dy = self.runtime.device, given["dy"]
        dx = device.zeros(self.schedule.data_shape(self.spec.input_size), self.spec.dtype.numpy)
        dh, dc = (None if s is None else device.copy(s) for s in (given["dhy"], given["dcy"]))
        backwards: list[tuple[ChunkPiece, Arrays]] = []
        for piece in reversed(self.pieces):
            arrays: Arrays = {"dy": piece.part.buffer(dy), "dx": piece.part.buffer(dx)}
            arrays |= {name: piece.part.state_buffer(dh) for name in ("dhy", "dhx")}
            arrays |= {name: piece.part.state_buffer(dc) for name in ("dcy", "dcx")}
            backwards.append((piece, arrays))
        self.touched = True
        for piece, arrays in backwards:
            piece.through(BACKWARD_DATA, handle, workspace, arrays, dy, (dh, dc), dx)
        return dx, dh, dc
