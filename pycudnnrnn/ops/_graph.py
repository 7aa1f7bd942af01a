"""The calls of a plan as one CUDA graph, on fixed buffers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from pycudnnrnn import _arrays
from pycudnnrnn._arrays import ArrayKind
from pycudnnrnn.engines import Engine, EngineGraph, engine_for, on_callers_stream
from pycudnnrnn.errors import ArgumentTypeError, CaptureError
from pycudnnrnn.passes import GRADIENTS, INPUTS, RESULTS, UPSTREAM, Name
from pycudnnrnn.schedule import Schedule, check_lengths

NAMES: Final[tuple[Name, ...]] = (*INPUTS[1:], *RESULTS, *UPSTREAM, *GRADIENTS, "d_params")
"""A graph's buffers."""

Check = Callable[[], None] | None
"""Raises an error if the op has another dropout than its plan or graph. None without dropout."""


class Graph:
    """A captured CUDA graph: one forward and, in training, both backward passes after it. `plan.capture` returns it.

    Write into the inputs, call `replay`, read the results:

    - inputs: `x`, `hx`, `cx`, and in training the upstream gradients `dy`, `dhy`, `dcy`. All are 0 at first.
    - results: `y`, `hy`, `cy`, and in training the gradients `dx`, `dhx`, `dcx` and `d_params`. Each replay overwrites
      them.
    - `params`: the buffer that was captured. New values in it count from the next replay.

    All are arrays of the same kind as `params`, in the shapes of the plan's calls; None where the cell or the plan has
    no such array. A replay on another stream waits for the replay before. Graphs cannot be pickled.
    """

    def __init__(self, native: EngineGraph, schedule: Schedule, kind: ArrayKind, params: Any, check: Check) -> None:
        self._native, self._schedule, self._kind, self.params, self._check = native, schedule, kind, params, check
        self._replay = native.replay  # on CuPy's current stream
        if kind.library != "cupy":
            self._replay = functools.partial(_replay_on_callers_stream, engine_for(kind.device), kind, native)

        def given(name: Name) -> Any:
            array = native.arrays.get(name)
            return None if array is None else _arrays.to_caller(array, kind)

        self.x, self.hx, self.cx = map(given, INPUTS[1:])
        self.y, self.hy, self.cy = map(given, RESULTS)
        self.dy, self.dhy, self.dcy = map(given, UPSTREAM)
        self.dx, self.dhx, self.dcx = map(given, GRADIENTS)
        self.d_params = given("d_params")

    def replay(self, *, sequence_lengths: Any = None) -> None:
        """Run the graph on the current stream of the library of `params`: torch's for tensors, otherwise CuPy's.

        Args:
            sequence_lengths: the lengths for which the plan was prepared, to have them checked. None: no check.
                Default: None.

        Raises:
            CaptureError: other sequence lengths. They need another plan and another graph.
            StateError: the op's dropout state was set after the plan was prepared.
        """
        if sequence_lengths is not None:
            schedule = self._schedule
            if check_lengths(sequence_lengths, schedule.T, schedule.B) != schedule.lengths:
                raise CaptureError(
                    f"sequence_lengths {sequence_lengths}: the graph was captured with "
                    f"{'equal ones' if schedule.lengths is None else list(schedule.lengths)}; prepare and capture again"
                )
        if self._check:
            self._check()
        self._replay()

    def __repr__(self) -> str:
        shown = [f"{name} {list(array.shape)}" for name in NAMES if (array := getattr(self, name)) is not None]
        return f"<Graph: {', '.join(shown)}; {self._kind.library} on {self._kind.device}>"

    def __reduce__(self) -> Any:
        raise ArgumentTypeError("object to pickle", "the op: a graph holds native objects of this process", "Graph")


def _replay_on_callers_stream(engine: Engine, kind: ArrayKind, native: EngineGraph) -> None:
    with on_callers_stream(engine, kind.library, frozenset({kind.library})):
        native.replay()
