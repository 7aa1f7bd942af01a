"""A plan's calls as one CUDA graph, on buffers that stay where they are."""

from __future__ import annotations

import functools
from typing import Any

from pycudnnrnn import _arrays
from pycudnnrnn._arrays import ArrayKind
from pycudnnrnn.engines import Engine, EngineGraph, engine_for
from pycudnnrnn.errors import ArgumentTypeError, CaptureError
from pycudnnrnn.passes import Name
from pycudnnrnn.schedule import Schedule, check_lengths


class Graph:
    """One forward, and in training both backward passes after it, replayed as a whole. `plan.capture` makes it.

    Write into `x`, `hx` and `cx`, and in training into the upstream gradients `dy`, `dhy` and `dcy`, which all start as
    zeros; `replay`; read `y`, `hy`, `cy`, and in training `dx`, `dhx`, `dcx` and `d_params`, which each replay writes
    anew. `params` is the array that was captured: what is written into it counts from the next replay on. All are
    arrays like `params`, None where there is no such thing, and for one stream at a time: a replay on another stream
    waits for the one before.

    Shapes:
        as in the plan's calls.
    """

    def __init__(self, native: EngineGraph, schedule: Schedule, kind: ArrayKind, params: Any) -> None:
        self._native, self._schedule, self._kind, self.params = native, schedule, kind, params
        self._replay = native.replay  # on CuPy's current stream
        if kind.library != "cupy":
            self._replay = functools.partial(_replay_on_callers_stream, engine_for(kind.device), kind, native)

        def given(*names: Name) -> Any:
            arrays = map(native.arrays.get, names)
            return [None if array is None else _arrays.to_caller(array, kind) for array in arrays]

        self.x, self.hx, self.cx = given("x", "hx", "cx")
        self.y, self.hy, self.cy = given("y", "hy", "cy")
        self.dy, self.dhy, self.dcy = given("dy", "dhy", "dcy")
        self.dx, self.dhx, self.dcx, self.d_params = given("dx", "dhx", "dcx", "d_params")

    def replay(self, *, sequence_lengths: Any = None) -> None:
        """Run what was captured on the current stream of the arrays' library: torch's for tensors, CuPy's otherwise.

        `sequence_lengths` may say again what the plan was made for.

        Raises:
            CaptureError: other sequence lengths, which take a plan and a graph of their own.
        """
        if sequence_lengths is not None:
            schedule = self._schedule
            if check_lengths(sequence_lengths, schedule.T, schedule.B) != schedule.lengths:
                raise CaptureError(
                    f"sequence_lengths {sequence_lengths}: the graph was captured with "
                    f"{'equal ones' if schedule.lengths is None else list(schedule.lengths)}; prepare and capture anew"
                )
        self._replay()

    def __reduce__(self) -> Any:
        raise ArgumentTypeError("object to pickle", "the op: a graph holds native objects of this process", "Graph")


def _replay_on_callers_stream(engine: Engine, kind: ArrayKind, native: EngineGraph) -> None:
    with _arrays.streams(engine, kind.library, frozenset({kind.library})):
        native.replay()
