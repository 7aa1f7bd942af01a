"""How much memory a call takes on cuDNN, asked of it call by call; nothing of that size is allocated."""

from __future__ import annotations

from pycudnnrnn.engines import Memory
from pycudnnrnn.engines.cudnn.long_bidirectional import one_direction
from pycudnnrnn.engines.cudnn.runtime import Runtime
from pycudnnrnn.passes import GRADIENTS, RESULTS, CallConfig, nbytes, slots
from pycudnnrnn.schedule import Chunk


def memory(runtime: Runtime, config: CallConfig, chunks: list[Chunk]) -> Memory:
    """Sum up what cuDNN asks for and what the engine allocates around it; see `engines.Engine.memory`."""
    spec, schedule = config.spec, config.schedule
    found = slots(spec, schedule, runtime.layout(spec).size)
    outputs = nbytes(found, RESULTS)
    gradients = nbytes(found, (*GRADIENTS, "d_params")) if config.training else 0
    if len(chunks) > 1 and spec.num_dirs == 2:
        workspace, reserve, checkpoints = _by_direction(runtime, config, chunks)
        return Memory(workspace, reserve, outputs, gradients, checkpoints)
    with runtime.launching() as (handle, _):
        parts = [chunk.within(schedule) for chunk in chunks]
        passes = [runtime.native_calls(handle, config._replace(schedule=part)) for part in parts]
    workspace = max((each.workspace_nbytes for each in passes), default=0)
    reserves = [each.reserve_nbytes for each in passes]
    if len(chunks) <= 1:
        return Memory(workspace, sum(reserves), outputs, gradients)
    data, state = nbytes(found, ("x", "y")), nbytes(found, ("hx", "cx"))
    longest = max(part.T for part in parts) * data // schedule.T
    if config.checkpoint_every is None:  # each chunk's part of x and y, and its states, stay beside its reserve
        kept = (data + len(chunks) * state + sum(reserves)) if config.training else 0
        return Memory(workspace + longest + state, kept, outputs, gradients)
    random = 0 if config.dropout is None else config.dropout.states_nbytes
    checkpoints = len(chunks) * (state + random)
    workspace += 2 * (longest + state) + found["params"].nbytes + random
    return Memory(workspace, checkpoints + max(reserves), outputs, gradients, checkpoints)


def _by_direction(runtime: Runtime, config: CallConfig, chunks: list[Chunk]) -> tuple[int, int, int]:
    """Workspace, reserve and checkpoints where each direction of each layer runs by itself (`long_bidirectional`)."""
    spec, recomputes = config.spec, config.checkpoint_every is not None
    workspace = kept = passing = checkpoints = 0
    for layer in range(spec.num_layers):
        part = config._replace(spec=one_direction(spec, layer))
        found = memory(runtime, part, chunks)
        each = slots(part.spec, config.schedule, runtime.layout(part.spec).size)
        reversed_x, output = each["x"].nbytes, 2 * each["y"].nbytes
        around = found.workspace_nbytes + found.output_nbytes + found.gradient_nbytes + 2 * reversed_x
        workspace = max(workspace, around + output)
        if config.training:  # the backward direction reads its input reversed, and each has its params repacked
            checkpoints += 2 * (found.checkpoint_nbytes + each["params"].nbytes) + reversed_x
            checkpoints += output if layer + 1 < spec.num_layers else 0
            if recomputes:
                passing = max(passing, found.reserve_nbytes - found.checkpoint_nbytes)
            else:
                kept += 2 * found.reserve_nbytes
    return workspace, checkpoints + kept + passing, checkpoints if recomputes else 0
