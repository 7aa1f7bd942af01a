"""The memory that a call takes on the NumPy engine: sums over its arrays, without allocating any.

`tests/numpy_engine/test_memory.py` compares it with measurements.
"""

from __future__ import annotations

from typing import Final

from pycudnnrnn.engines import Memory
from pycudnnrnn.engines.numpy_engine.calls import blocks_of, reserve_nbytes
from pycudnnrnn.engines.numpy_engine.kernels_in_use import cell_of
from pycudnnrnn.passes import GRADIENTS, RESULTS, CallConfig, nbytes, slots
from pycudnnrnn.spec import RNNMode

STEP_NBYTES: Final = 360
"""What a step takes in a schedule's lists: a tuple, its integers, and references. Measured with CPython 3.11."""


def memory(config: CallConfig, params_size: int, *, adds: bool) -> Memory:
    """Return what a forward takes and, in training, its backward; see `engines.Memory` and `engines.Engine.memory`."""
    spec, schedule, drops = config.spec, config.schedule, config.dropout is not None
    rows, of_call = schedule.num_rows, slots(spec, schedule, params_size)
    cell = cell_of(spec, rows, len(schedule.steps))
    inner, outer = spec.compute_dtype.numpy.itemsize, spec.dtype.numpy.itemsize
    rounded = inner != outer
    repacked = rounded or schedule.lengths is not None
    outputs = nbytes(of_call, RESULTS)
    layers = [spec.layer_input_size(layer) for layer in range(spec.num_layers)]
    parts = [part.stop - part.start for part, _ in blocks_of(spec, schedule.steps)]
    block = max(parts, default=0)
    scratch = cell.scratch(block, max(layers), adds=len(parts) > 1)
    # The weights that a forward or a backward reads, in the compute dtype and as the cell takes them.
    weights = (scratch.copies + (params_size if rounded else 0)) * inner
    fixed = STEP_NBYTES * schedule.T
    packed = rows * spec.input_size * inner if repacked else 0
    top = rows * spec.output_size * inner if repacked else 0
    picked = 0 if schedule.lengths is None else rows * spec.input_size * outer  # NumPy's copy of the rows that it picks
    widest = max(schedule.batch_sizes, default=0)
    step = 3 * widest * cell.width * inner  # a step's gates and two intermediate results of their size
    if not config.training:
        between = [rows * width * inner for width in layers[1:]]
        running = max(picked, step + scratch.forward * inner)
        return Memory(fixed + weights + running + packed + sum(between[:2]) + top, 0, outputs)

    gradients, states = nbytes(of_call, (*GRADIENTS, "d_params")), nbytes(of_call, ("hx", "cx")) // outer
    dropping = rows * spec.output_size * 5 if drops else 0  # a float32 and a bool each
    below = [rows * width * inner for width in layers]
    pairs = max(a + b for a, b in zip(below, [*below[1:], top], strict=True))
    # A second product for the same input rows is added: of the other direction, or of a GRU's n gate.
    added = block * max(layers) if spec.num_dirs == 2 or spec.mode is RNNMode.GRU else 0
    back = pairs + (scratch.backward + added + states) * inner
    back += params_size * outer if adds else 0
    end = gradients + (scratch.product + (params_size if rounded else 0)) * inner + (below[0] if repacked else 0)
    peak = fixed + packed + max(weights + max(picked, step + top + dropping), weights + back, end)
    return Memory(max(0, peak - gradients), reserve_nbytes(spec, rows, drops=drops), outputs, gradients)
