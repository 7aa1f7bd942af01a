"""How much memory a call takes on the NumPy engine: sums over its arrays, without making any.

Held against what is measured by `tests/numpy_engine/test_memory.py`.
"""

from __future__ import annotations

import itertools
from typing import Final

from pycudnnrnn.engines import Memory
from pycudnnrnn.engines.numpy_engine.arithmetic import Sizes
from pycudnnrnn.engines.numpy_engine.gradients import blocks
from pycudnnrnn.engines.numpy_engine.kernels_in_use import cell_of
from pycudnnrnn.engines.numpy_engine.reserve import reserve_nbytes
from pycudnnrnn.passes import CallConfig
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import InputMode, RNNSpec

STEP_NBYTES: Final = 130
"""What a step takes in a schedule's lists: a tuple, its integers, and references. Measured with CPython 3.11."""


def memory(config: CallConfig, params_size: int) -> Memory:
    """Return what a forward takes, and in training its backward; see `engines.Memory`."""
    spec, schedule, drops = config.spec, config.schedule, config.dropout is not None
    rows, states = schedule.num_rows, spec.num_pseudo_layers * schedule.B
    inner, outer = spec.compute_dtype.numpy.itemsize, spec.dtype.numpy.itemsize
    rounded = inner != outer
    c_width = spec.num_units if spec.has_cell_state else 0
    outputs = (rows * spec.output_size + states * (spec.state_size + c_width)) * outer
    between = rows * spec.output_size * inner
    fixed = STEP_NBYTES * schedule.T + _weights_nbytes(spec, schedule, params_size)
    packed = rows * spec.input_size * inner if rounded else 0
    top = between if rounded else 0
    block = max((end - base for base, end, _ in blocks(spec, schedule.steps)), default=0)
    product = schedule.B * spec.num_gates * spec.num_units * inner
    if not config.training:
        ahead = cell_of(spec).makes_ahead(schedule, skips=spec.input_mode is InputMode.SKIP_INPUT)
        scratch = block * ahead * spec.num_gates * spec.num_units * inner + product
        layers = [packed, *[between] * (spec.num_layers - 1), top or outputs]
        walking = scratch + max(a + b for a, b in itertools.pairwise(layers))
        return Memory(fixed + max(walking, top + outputs) - outputs, 0, outputs)

    gradients = (rows * spec.input_size + states * (spec.state_size + c_width) + params_size) * outer
    dropping = rows * spec.output_size * 5 if drops else 0  # a float32 and a bool each
    below = [rows * spec.layer_input_size(level) * inner for level in range(spec.num_layers)]
    pairs = max(a + b for a, b in zip(below, [*below[1:], top], strict=True))
    walking = (
        cell_of(spec).made_back(block, schedule.B) + block * max(map(spec.layer_input_size, range(spec.num_layers)))
    ) * inner
    weights = 2 * max(spec.num_units * spec.num_gates, 1) * max(spec.input_size, spec.output_size) * inner
    back = pairs + walking + states * (spec.state_size + c_width) * inner
    end = gradients + weights + (below[0] if rounded else 0)
    peak = fixed + packed + max(product + top + dropping, back, end)
    kept = reserve_nbytes(spec, rows, drops=drops)
    return Memory(max(0, peak - gradients), kept, outputs, gradients)


def _weights_nbytes(spec: RNNSpec, schedule: Schedule, params_size: int) -> int:
    """Copies of params: all of them in another dtype, and those that the cell works with, in turn."""
    gates, units = spec.num_gates * spec.num_units, spec.num_units
    copied = [
        cell_of(spec).copied(Sizes(gates * width, gates * spec.state_size, units * (spec.num_proj or 0)), schedule)
        for width in map(spec.layer_input_size, range(spec.num_layers))
    ]
    return (
        max(map(max, copied)) + (params_size if spec.compute_dtype != spec.dtype else 0)
    ) * spec.compute_dtype.numpy.itemsize
