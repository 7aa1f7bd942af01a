"""Forwards on the NumPy engine: bound to arrays, then run straight down.

A call works on packed rows (`schedule`), so that padding costs nothing and cannot leak. The input product of a
direction is a GEMM over each block of rows, and so are the gradients; the only Python loop is the one over time
(`cells`). 16-bit data is computed in the spec's compute dtype, and results are rounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from pycudnnrnn.engines import Results
from pycudnnrnn.engines.numpy_engine.calls import Calls
from pycudnnrnn.engines.numpy_engine.dropout import drop
from pycudnnrnn.engines.numpy_engine.packing import Copy, copy_all
from pycudnnrnn.engines.numpy_engine.reserve import NumpyReserve
from pycudnnrnn.engines.numpy_engine.tape import Tape
from pycudnnrnn.engines.numpy_engine.weights import Array, Weights
from pycudnnrnn.passes import RESULTS, Arrays

NO_TAPE: Final = Tape()


def forward(calls: Calls, dropout: Any | None, inputs: Arrays) -> Results:
    """Run a forward once, with new arrays for its results and its reserve."""
    y, hy, cy = calls.new(RESULTS)
    # One allocation: the system gives a large one large pages, whose first use is faster.
    reserve = np.empty(calls.reserve_nbytes, np.uint8) if calls.keeps else None
    bound = BoundForward(calls, dropout, {**inputs, "y": y, "hy": hy, "cy": cy, "reserve": reserve})
    bound.run(calls.forward_weights(calls.read(inputs["params"])))
    return y, hy, cy, bound.reserve


class BoundForward:
    """A forward on the caller's arrays. It may run again: each run reads their values again."""

    def __init__(self, calls: Calls, dropout: Any | None, arrays: Arrays) -> None:
        """Divide the arrays among the steps. `arrays` has an entry, which may be None, for each one of the pass."""
        spec, packing, get = calls.spec, calls.packing, arrays.get
        self._calls, self._dropout, self._before, self._after = calls, dropout, list[Copy](), list[Copy]()
        rows = packing.read(arrays["x"], self._before)
        self.reserve = NumpyReserve(calls, arrays["reserve"], rows, arrays["params"]) if calls.keeps else None
        copies = self._before, self._after
        states = [packing.states(get(x), get(y), width, *copies) for x, y, width in calls.states]
        h, c = states[0], states[-1]  # a cell without c does not look at it
        self._walks: list[tuple[list[tuple[Any, ...]], int]] = []
        """For each pseudo-layer the arguments of its blocks, and after a layer's last one the layer above (else 0)."""
        self._inputs = [rows]
        L, D = spec.num_layers, len(calls.directions)
        for layer in range(1, L + 1):
            above = self._above(layer, arrays["y"])
            for direction, (columns, blocks) in enumerate(calls.directions):
                p = (layer - 1) * D + direction
                out = above if columns is None else above[:, columns]
                tape = self.reserve.tapes[p] if self.reserve else NO_TAPE
                walk = [
                    (rows[part], tape.at(part) if tape else tape, steps, h[p], c[p], out[part])
                    for part, steps in blocks
                ]
                self._walks.append((walk, layer if direction + 1 == D and layer < L else 0))
            self._inputs.append(above)
            rows = above

    def _above(self, layer: int, y: Array) -> Array:
        """Return the array with the input of a layer. Without a reserve, every other layer has the same one."""
        spec, packing = self._calls.spec, self._calls.packing
        if layer == spec.num_layers:
            return packing.write(y, self._after)
        if self.reserve:
            return self.reserve.inputs[layer]
        return packing.new_rows(spec.output_size) if layer < 3 else self._inputs[layer - 2]

    @np.errstate(all="ignore")  # NaN and infinity are data
    def run(self, weights: Iterable[Weights], masks: Any | None = None) -> None:
        """Run it with `Calls.forward_weights`, or with what these contained at an earlier time."""
        if self._dropout is not None and masks is None:
            with self._dropout.forward() as next_masks:
                self.run(weights, next_masks)
            return
        forward = self._calls.cell.forward
        copy_all(self._before)
        following = iter(weights)
        for walk, layer in self._walks:
            w = next(following)
            for block in walk:
                forward(w, *block)
            del w  # before the next ones are made
            if masks and layer:
                self._drop(masks, layer)
        copy_all(self._after)

    def _drop(self, masks: Any, layer: int) -> None:
        """Drop parts of a layer's input, and keep the mask for a backward."""
        spec, rows = self._calls.spec, self._inputs[layer]
        mask = masks.of(spec, layer, rows.shape)
        drop(rows, mask, spec.dropout)
        if self.reserve:
            self.reserve.masks[layer][:] = mask  # type: ignore[index]  # masks exist if there is dropout
