"""How much memory a call takes on the NumPy engine: sums over its arrays, without making any.

Held against what is measured by `tests/numpy_engine/test_memory.py`.
"""

from __future__ import annotations

import itertools
from typing import Final

from pycudnnrnn.engines import Memory
from pycudnnrnn.engines.numpy_engine.arithmetic import Sizes
from pycudnnrnn.engines.numpy_engine.gradients import blocks
from pycudnnrnn.engines.numpy_engine.kernels_in_use import cell_of, tape_widths
from pycudnnrnn.engines.numpy_engine.recompute import Strand, running, walks
from pycudnnrnn.engines.numpy_engine.reserve import reserve_nbytes
from pycudnnrnn.passes import CallConfig
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import InputMode, RNNSpec

STEP_NBYTES: Final = 130
"""What a step takes in a schedule's lists: a tuple, its integers, and references. Measured with CPython 3.11."""


def memory(config: CallConfig, params_size: int) -> Memory:
    """Return what a forward takes, and in training its backward; see `engines.Memory`."""
    spec, schedule, every, drops = config.spec, config.schedule, config.checkpoint_every, config.dropout is not None
    rows, states = schedule.num_rows, spec.num_pseudo_layers * schedule.B
    inner, outer = spec.compute_dtype.numpy.itemsize, spec.dtype.numpy.itemsize
    rounded = inner != outer
    c_width = spec.num_units if spec.has_cell_state else 0
    outputs = (rows * spec.output_size + states * (spec.state_size + c_width)) * outer
    between = rows * spec.output_size * inner
    fixed = STEP_NBYTES * schedule.T + _weights_nbytes(spec, schedule, params_size, every)
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
    kept = checkpoints = passing = sums = 0
    if every is None:
        kept = reserve_nbytes(spec, rows, drops=drops)
        levels = range(spec.num_layers)
    else:
        plan = list(walks(spec, schedule, every))
        chunk, passing = max(_chunk_nbytes(spec, strand, drops=drops) for level in plan for strand in level)
        checkpoints = sum(_saved_nbytes(spec, strand) for level in plan for strand in level)
        checkpoints += (len(plan) - 1) * between
        kept = checkpoints + chunk
        sums = params_size * inner
        levels = range(len(plan))
    dropping = rows * spec.output_size * 5 if drops and every is None else 0  # a float32 and a bool each
    below = [rows * spec.layer_input_size(level) * inner for level in levels]
    pairs = max(a + b for a, b in zip(below, [*below[1:], top], strict=True))
    walking = (cell_of(spec).made_back(block, schedule.B) + block * max(map(spec.layer_input_size, levels))) * inner
    weights = 2 * max(spec.num_units * spec.num_gates, 1) * max(spec.input_size, spec.output_size) * inner
    back = pairs + walking + states * (spec.state_size + c_width) * inner + passing + sums
    end = gradients + sums + weights + (below[0] if rounded else 0)
    peak = fixed + packed + max(product + top + dropping, back, end)
    return Memory(max(0, peak - gradients), kept, outputs, gradients, checkpoints)


def _weights_nbytes(spec: RNNSpec, schedule: Schedule, params_size: int, every: int | None) -> int:
    """Copies of params: all of them in another dtype, and those that the cell works with, all or in turn."""
    gates, units = spec.num_gates * spec.num_units, spec.num_units
    copied = [
        cell_of(spec).copied(Sizes(gates * width, gates * spec.state_size, units * (spec.num_proj or 0)), schedule)
        for width in map(spec.layer_input_size, range(spec.num_layers))
    ]
    found = max(map(max, copied)) if every is None else sum(map(sum, copied)) * spec.num_dirs
    return (found + (params_size if spec.compute_dtype != spec.dtype else 0)) * spec.compute_dtype.numpy.itemsize


def _saved_nbytes(spec: RNNSpec, strand: Strand) -> int:
    width = spec.state_size + (spec.num_units if spec.has_cell_state else 0)
    each = len(strand.pseudo_layers) * width * spec.compute_dtype.numpy.itemsize
    return sum(running(chunk) * each for chunk in strand.chunks)


def _chunk_nbytes(spec: RNNSpec, strand: Strand, *, drops: bool) -> tuple[int, int]:
    """What a chunk leaves for its backward, and what passes: its output, or gradients between at most two layers."""
    between = len(strand.pseudo_layers) - 1
    columns = (between + 1) * sum(tape_widths(spec).values()) + between * spec.state_size
    inner = spec.compute_dtype.numpy.itemsize
    rows = max((sum(last - first for first, last in chunk) for chunk in strand.chunks), default=0)
    passing = max(1, min(2, between)) * spec.state_size * inner
    return rows * (columns * inner + between * spec.state_size * drops), rows * passing
