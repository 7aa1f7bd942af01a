"""Calls on the NumPy engine: bound to arrays, then run straight down.

A call works on packed rows (`schedule`), so that padding costs nothing and cannot leak. The input product of a
direction is a GEMM over each block of rows, and so are the gradients; the only Python loop is the one over time
(`cells`). 16-bit data is computed in the spec's compute dtype, and results are rounded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from pycudnnrnn import passes
from pycudnnrnn._arrays import address, aligned
from pycudnnrnn.engines import EngineGraph, Results
from pycudnnrnn.engines.numpy_engine.calls import Calls
from pycudnnrnn.engines.numpy_engine.cells import Array, Tape, Weights
from pycudnnrnn.engines.numpy_engine.dropout import drop
from pycudnnrnn.engines.numpy_engine.packing import Copy, copy_all
from pycudnnrnn.engines.numpy_engine.reserve import NumpyReserve
from pycudnnrnn.errors import CaptureError
from pycudnnrnn.passes import Arrays, CallConfig, Pass
from pycudnnrnn.schedule import Schedule

NO_TAPE: Final = Tape()


class NumpyCalls:
    """See `engines.Calls`. Each call still allocates scratch memory: there is no workspace."""

    workspace_nbytes = 0

    def __init__(self, make: Callable[[CallConfig], Calls], config: CallConfig, *, plans: bool) -> None:
        """`make` returns what depends on sizes and lengths; with ragged lengths each eager call has its own."""
        self._make, self._config, self._dropout, self.spec = make, config, config.dropout, config.spec
        calls: Any = make(config) if plans or not config.schedule.is_ragged else None
        self._calls: Any = calls
        self.reserve_nbytes: int = calls.reserve_nbytes if calls else 0
        self._held: Array | None = None
        self._held_weights: dict[Pass, list[Weights]] = {}

    def forward(self, schedule: Schedule, inputs: Arrays, at: Sequence[int | None]) -> Results:  # noqa: ARG002
        calls: Calls = self._calls or self._make(self._config._replace(schedule=schedule))
        y, hy, cy = calls.new(passes.RESULTS)
        # One allocation: the system gives a large one large pages, whose first use is faster.
        reserve = aligned((calls.reserve_nbytes,), np.dtype(np.uint8)) if calls.keeps else None
        bound = BoundForward(calls, self._dropout, {**inputs, "y": y, "hy": hy, "cy": cy, "reserve": reserve})
        bound.run(calls.read(inputs["params"]))
        return y, hy, cy, bound.reserve

    def capture(self, params: Array, *, carry_state: bool) -> EngineGraph:  # noqa: ARG002
        raise CaptureError("a plan on the CPU: what is captured is a stream of CUDA calls, and here there are none")

    @np.errstate(all="ignore")  # NaN and infinity are data
    def hold(self, params: Array | None) -> None:
        calls, self._held = self._calls, None
        if params is not None:
            weights, cell = calls.read(params), calls.cell
            self._held_weights = {passes.FORWARD: [*map(cell.held_weights, weights)]}
            if calls.keeps:
                self._held_weights[passes.BACKWARD_DATA] = [*map(cell.backward_weights, weights)]
        self._held = params  # at the end: if memory runs out before, params are read in each call

    def bind(self, which: Pass, arrays: Arrays, at: Sequence[int | None]) -> Callable[..., None]:  # noqa: ARG002
        """See `engines.Calls`. A backward reads neither y, hx nor cx: the reserve contains what it needs."""
        calls, get = self._calls, arrays.get
        if which is passes.BACKWARD_WEIGHTS:
            before = list[Copy]()
            reserve = NumpyReserve(calls, arrays["reserve"], calls.packing.read(arrays["x"], before))
            return functools.partial(reserve.backward_weights, arrays["d_params"], before=before)
        params = arrays["params"]
        if which is passes.FORWARD:
            run = BoundForward(calls, self._dropout, arrays).run
        else:
            reserve = NumpyReserve(calls, arrays["reserve"])
            upstream, outs = [*map(get, passes.UPSTREAM)], [*map(get, passes.GRADIENTS)]
            run = functools.partial(reserve.write_gradients, upstream=upstream, outs=outs)
        views = calls.views(params) if calls.reads_in_place else None

        def run_with_weights() -> None:
            held = self._held
            if held is params or (held is not None and address(held) == address(params)):
                run(self._held_weights[which], ready=True)
            else:
                run(views or calls.read(params))

        return run_with_weights


class BoundForward:
    """A forward on the caller's arrays. It may run again: each run reads their values again."""

    def __init__(self, calls: Calls, dropout: Any | None, arrays: Arrays) -> None:
        """Divide the arrays among the steps."""
        packing, get, L = calls.packing, arrays.get, calls.spec.num_layers
        self._calls, self._dropout, self._before, self._after = calls, dropout, list[Copy](), list[Copy]()
        rows = packing.read(arrays["x"], self._before)
        self.reserve = NumpyReserve(calls, arrays["reserve"], rows, arrays["params"]) if calls.keeps else None
        copies = self._before, self._after
        states = [packing.states(get(x), get(y), width, *copies) for x, y, width in calls.states]
        h, c = states[0], states[-1]  # a cell without c does not look at it
        self._walks: list[list[list[tuple[Any, ...]]]] = []
        """For each layer and direction the arguments of its blocks."""
        self._inputs, D = [rows], len(calls.directions)
        for layer in range(1, L + 1):
            if layer == L:
                above = packing.write(arrays["y"], self._after)
            elif self.reserve:
                above = self.reserve.inputs[layer]
            else:  # every other layer has the same input
                above = packing.new_rows(calls.spec.output_size) if layer < 3 else self._inputs[layer - 2]
            self._walks.append([])
            for p, (columns, blocks) in enumerate(calls.directions, (layer - 1) * D):
                out = above if columns is None else above[:, columns]
                tape = self.reserve.tapes[p] if self.reserve else NO_TAPE
                walk = [
                    (rows[part], tape.at(part) if tape and len(blocks) > 1 else tape, steps, h[p], c[p], out[part])
                    for part, steps in blocks
                ]
                self._walks[-1].append(walk)
            self._inputs.append(above)
            rows = above

    @np.errstate(all="ignore")  # NaN and infinity are data
    def run(self, weights: Sequence[Weights], masks: Any | None = None, *, ready: bool = False) -> None:
        """Run it with weights of `Calls.read`, or with those that are `ready`: as the cell reads them in a forward."""
        if self._dropout is not None and masks is None:
            with self._dropout.forward() as next_masks:
                self.run(weights, next_masks, ready=ready)
            return
        cell, rows, following = self._calls.cell, self._calls.packing.num_rows, iter(weights)
        copy_all(self._before)
        for layer, walks in enumerate(self._walks):
            if masks and layer:
                inputs, dropout = self._inputs[layer], self._calls.spec.dropout
                mask = masks.of(self._calls.spec, layer, inputs.shape)
                drop(inputs, mask, dropout)
                if self.reserve:  # a backward needs it
                    self.reserve.masks[layer][:] = mask  # type: ignore[index]  # masks exist if there is dropout
            directions = [(next(following), walk) for walk in walks]
            cell.run(cell.forward_weights, cell.forward, directions, rows, ready=ready)
        copy_all(self._after)
