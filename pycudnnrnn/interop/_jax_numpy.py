"""The NumPy engine on XLA's arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import jax
import numpy as np
import numpy.typing as npt

from pycudnnrnn import _locks
from pycudnnrnn._checks import check_int
from pycudnnrnn.engines import POSITION_MAX, DropoutState, EnginePlan
from pycudnnrnn.errors import EngineError
from pycudnnrnn.interop._jax_passes import Aliases, Pass, Shape, Traced, in_place, scratch, varying_like
from pycudnnrnn.passes import BACKWARD_DATA, BACKWARD_WEIGHTS, FORWARD, INPUTS, RESULTS, UPSTREAM, CallConfig

Array = npt.NDArray[Any]

_STATES: Final = np.dtype(np.uint64)
"""The dropout states are a seed and a position, as bytes, since JAX may have no 64-bit numbers."""


@dataclasses.dataclass(frozen=True)
class NumpyRunner:
    """The NumPy engine: in the buffers of XLA's CPU, or on copies of any XLA device's buffers."""

    engine: Any
    copies: bool = False

    @property
    def states_nbytes(self) -> int:
        return 2 * _STATES.itemsize

    def states_from(self, seed: int) -> Any:
        return jax.numpy.asarray(np.array([seed, 0], _STATES).view(np.uint8))

    def forward(self, call: Traced, dropout: Any, arguments: Sequence[Any], *, keep: bool) -> tuple[Any, Any]:
        run = _NumpyForward(call, keep)
        kept = [scratch(run.plan.reserve_nbytes)] if keep else []
        ins = [dropout, *arguments] if call.drops else arguments
        found = self._run(run, [*call.results, *kept], ins)
        results = len(call.results)
        return found[:results], found[results:]

    def backward(
        self,
        call: Traced,
        arguments: Sequence[Any],
        output: Any,
        upstream: Sequence[Any],
        kept: Sequence[Any],
        *,
        weights: bool,
    ) -> Sequence[Any]:
        del output  # the reserve has the part of it that is needed
        params, x, *_ = arguments
        run = _NumpyBackward(call, weights)
        ins = (params, x, *upstream, *kept)
        shapes = [*map(call.shapes.__getitem__, run.gradients), scratch(kept[0].size)]
        found: Sequence[Any] = self._run(run, shapes, ins, {len(ins) - 1: len(run.gradients)})
        return found[: len(run.gradients)]

    def _run(self, run: Pass, shapes: Sequence[Shape], ins: Sequence[Any], aliases: Aliases = None) -> Any:
        if not self.copies:
            return in_place(run, shapes, ins, aliases)
        on_copies = _OnCopies(run, tuple(shapes), tuple((aliases or {}).items()))
        return varying_like(jax.pure_callback(on_copies, on_copies.shapes, *ins, vmap_method="sequential"), ins)


@dataclasses.dataclass(frozen=True)
class _OnCopies:
    """A pass on copies of the arrays in host memory. XLA compiles equal ones once."""

    run: Pass
    shapes: tuple[Shape, ...]
    aliases: tuple[tuple[int, int], ...]

    def __call__(self, *ins: Any) -> list[Array]:
        arrays = [np.asarray(array) for array in ins]
        outs = [np.empty(shape.shape, shape.dtype) for shape in self.shapes]
        for source, target in self.aliases:
            outs[target] = arrays[source].copy()
        self.run(None, outs, *arrays)
        return outs


def _numpy(buffers: Sequence[Any]) -> list[Array]:
    """Return NumPy views of buffers in host memory."""
    try:
        return [np.asarray(buffer) for buffer in buffers]
    except jax.errors.JaxRuntimeError as error:
        raise EngineError("this was traced for the CPU and runs on another device: platform= says which") from error


@dataclasses.dataclass(frozen=True)
class _NumpyPass:
    call: Traced

    def _plan(self, dropout: DropoutState | None = None, *, keep: bool) -> EnginePlan:
        call, engine = self.call, self.call.runner.engine
        state = dropout or DropoutState("numpy", call.spec.seed)
        drawn = engine.dropout(call.spec, state) if call.drops else None
        plan: EnginePlan = engine.plan(CallConfig(call.spec, call.schedule, keep, drawn))
        return plan


@dataclasses.dataclass(frozen=True)
class _NumpyForward(_NumpyPass):
    keep: bool

    @_locks.cached_property
    def plan(self) -> EnginePlan:
        """The plan of all calls like this one. Only the dropout position differs."""
        return self._plan(keep=self.keep)

    @_locks.cached_property
    def names(self) -> tuple[list[str], list[str]]:
        """Return the arrays that it reads, and those that it writes."""
        return self.call.there(*INPUTS), self.call.there(*RESULTS)

    def __call__(self, _: Any, outs: Sequence[Any], *ins: Any) -> None:
        arrays, plan = _numpy(ins), self.plan
        if self.call.drops:  # each call needs its own dropout position
            state = self._state(arrays.pop(0))
            plan = self._plan(state, keep=self.keep)
        read, written = self.names
        found = _numpy(outs)
        if self.call.carries:
            found.pop(len(written)).view(_STATES)[:] = state.seed, state.position + 1
        plan.bind(FORWARD, dict(zip((*read, *written, "reserve"), (*arrays, *found), strict=False)), ())()

    def _state(self, dropout: Array) -> DropoutState:
        """Return the dropout position that the call was given."""
        if self.call.carries:
            seed, position = map(int, dropout.view(_STATES))
            check_int("position in dropout_states", position, 0, POSITION_MAX)
            return DropoutState("numpy", seed, position)
        position = check_int("dropout_position", int(dropout), 0, POSITION_MAX)
        return DropoutState("numpy", self.call.spec.seed, position)


@dataclasses.dataclass(frozen=True)
class _NumpyBackward(_NumpyPass):
    weights: bool

    @_locks.cached_property
    def plan(self) -> EnginePlan:
        """The plan of all calls like this one. The masks are in the reserve."""
        return self._plan(keep=True)

    @_locks.cached_property
    def gradients(self) -> list[str]:
        return self.call.gradients(weights=self.weights)

    @_locks.cached_property
    def names(self) -> list[str]:
        """The arrays that it reads, except the reserve, which it reads in place."""
        return self.call.there("params", "x", *UPSTREAM)

    def __call__(self, _: Any, outs: Sequence[Any], *ins: Any) -> None:
        *read, _kept = _numpy(ins)
        names = (*self.names, *self.gradients, "reserve")
        arrays = dict(zip(names, (*read, *_numpy(outs)), strict=True))
        self.plan.bind(BACKWARD_DATA, arrays, ())()
        if self.weights:
            self.plan.bind(BACKWARD_WEIGHTS, arrays, ())()
