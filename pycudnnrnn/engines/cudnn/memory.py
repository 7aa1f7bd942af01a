"""How much memory a call takes on cuDNN, asked of it call by call; nothing of that size is allocated."""

from __future__ import annotations

from pycudnnrnn.engines import Memory
from pycudnnrnn.engines.cudnn.dropout import CudnnDropout
from pycudnnrnn.engines.cudnn.long_bidirectional import one_direction
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.schedule import Chunk, Schedule
from pycudnnrnn.spec import RNNSpec


def memory(
    runtime: Runtime,
    spec: RNNSpec,
    schedule: Schedule,
    chunks: list[Chunk],
    *,
    training: bool,
    dropout: CudnnDropout | None,
    recomputes: bool,
) -> Memory:
    """Sum up what cuDNN asks for and what the engine allocates around it; see `engines.Engine.memory`."""
    itemsize, rows = spec.dtype.numpy.itemsize, schedule.T * schedule.B
    state = spec.num_pseudo_layers * (spec.state_size + (spec.num_units if spec.has_cell_state else 0)) * itemsize
    outputs = rows * spec.output_size * itemsize + schedule.B * state
    gradients = 0
    if training:
        gradients = rows * spec.input_size * itemsize + schedule.B * state + runtime.layout(spec).size * itemsize
    if len(chunks) > 1 and spec.num_dirs == 2:
        workspace, reserve, checkpoints = _by_direction(
            runtime, spec, schedule, chunks, training=training, recomputes=recomputes
        )
        return Memory(workspace, reserve, outputs, gradients, checkpoints)
    with runtime.launching() as (handle, _):
        batches = (chunk.within(schedule) for chunk in chunks)
        passes = [runtime.passes(handle, spec, batch, training=training, dropout=dropout) for batch in batches]
    workspace = max((each.workspace_nbytes for each in passes), default=0)
    reserves = [each.reserve_nbytes for each in passes]
    if len(chunks) <= 1:
        return Memory(workspace, sum(reserves), outputs, gradients)
    steps = max(chunk.stop - chunk.start for chunk in chunks)
    data = steps * schedule.B * (spec.input_size + spec.output_size) * itemsize
    states = len(chunks) * schedule.B * state
    if not recomputes:  # each chunk's part of x and y, and its states, stay beside its reserve
        kept = (rows * (spec.input_size + spec.output_size) * itemsize + states + sum(reserves)) if training else 0
        return Memory(workspace + data + schedule.B * state, kept, outputs, gradients)
    checkpoints = states + len(chunks) * (0 if dropout is None else dropout.states_nbytes)
    workspace += 2 * (data + schedule.B * state) + runtime.layout(spec).size * itemsize
    workspace += 0 if dropout is None else dropout.states_nbytes
    return Memory(workspace, checkpoints + max(reserves), outputs, gradients, checkpoints)


def _by_direction(
    runtime: Runtime, spec: RNNSpec, schedule: Schedule, chunks: list[Chunk], *, training: bool, recomputes: bool
) -> tuple[int, int, int]:
    """Workspace, reserve and checkpoints where each direction of each layer runs by itself (`long_bidirectional`)."""
    itemsize, rows = spec.dtype.numpy.itemsize, schedule.T * schedule.B
    workspace = kept = passing = checkpoints = 0
    for layer in range(spec.num_layers):
        part = one_direction(spec, layer)
        found = memory(runtime, part, schedule, chunks, training=training, dropout=None, recomputes=recomputes)
        turned = rows * part.input_size * itemsize
        params = runtime.layout(part).size * itemsize
        around = found.workspace_nbytes + found.output_nbytes + found.gradient_nbytes + 2 * turned
        workspace = max(workspace, around + rows * spec.output_size * itemsize)
        if training:  # the backward direction reads its input reversed, and each has its params repacked
            checkpoints += 2 * (found.checkpoint_nbytes + params) + turned
            checkpoints += rows * spec.output_size * itemsize if layer + 1 < spec.num_layers else 0
            if recomputes:
                passing = max(passing, found.reserve_nbytes - found.checkpoint_nbytes)
            else:
                kept += 2 * found.reserve_nbytes
    return workspace, checkpoints + kept + passing, checkpoints if recomputes else 0
