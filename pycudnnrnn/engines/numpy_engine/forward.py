"""The forward of the NumPy engine.

A call works on packed rows (`schedule`), so that padding costs nothing and cannot leak. The input product of a
direction is a GEMM over each block of rows, and so are the gradients; the only Python loop is the one over time
(`cells`). 16-bit data is computed in the spec's compute dtype, and results are rounded.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np

from pycudnnrnn.engines import Results
from pycudnnrnn.engines.numpy_engine.dropout import drop
from pycudnnrnn.engines.numpy_engine.kernels_in_use import cell_of
from pycudnnrnn.engines.numpy_engine.packing import NO_OUTS, Outs, new_rows, pack, results, sorted_states
from pycudnnrnn.engines.numpy_engine.reserve import make_reserve
from pycudnnrnn.engines.numpy_engine.tape import Tape
from pycudnnrnn.engines.numpy_engine.walk import directions_of, run
from pycudnnrnn.engines.numpy_engine.weights import Array, Weights, load_weights
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.passes import Arrays, CallConfig


@np.errstate(all="ignore")  # NaN and infinity are data
def forward(
    config: CallConfig, layout: ParamLayout, inputs: Arrays, *, weights: list[Weights] | None = None,
    buffer: Array | None = None, outs: Outs = NO_OUTS,
) -> Results:  # fmt: skip
    """Run a forward. `weights`: the params, if they have been read already.

    The reserve is in `buffer` and the results in `outs`, or in new memory where these are None.
    """
    spec, schedule, dropout = config.spec, config.schedule, config.dropout
    with nullcontext() if dropout is None else dropout.forward() as masks:
        dtype, cell = spec.compute_dtype.numpy, cell_of(spec, schedule.num_rows)
        weights = load_weights(layout, inputs["params"], spec) if weights is None else weights
        h, c = sorted_states(spec, schedule, inputs.get("hx"), inputs.get("cx"), outs)
        rows = pack(inputs["x"], schedule, dtype)
        reserve = make_reserve(config, layout, weights, rows, buffer) if config.keep_reserve else None
        for layer in range(spec.num_layers):
            last = layer + 1 == spec.num_layers
            if reserve and not last:
                above = reserve.inputs[layer + 1]
            else:
                above = new_rows(schedule, spec.output_size, dtype, outs[0] if last else None)
            for direction, steps in directions_of(spec, schedule):
                p = layer * spec.num_dirs + direction
                out = above[:, direction * spec.state_size : (direction + 1) * spec.state_size]
                tape = reserve.tapes[p] if reserve else Tape()
                # The prepared weights get no name, so that they are gone before the next layer's are made.
                run(cell, cell.forward_weights(weights[p], schedule), rows, tape, steps, h[p], c[p], out)
            if masks and not last:
                mask = masks.of(spec, layer + 1, above.shape)
                drop(above, mask, spec.dropout)
                if reserve:
                    reserve.masks[layer + 1][:] = mask  # type: ignore[index]  # masks exist if there is dropout
            rows = above
        return *results(rows, h, c, spec, schedule, outs), reserve
