"""The calls that XLA makes for an RNN: the part fixed while JAX traces, the engines, and the use of XLA's buffers.

A pass uses XLA's inputs and outputs in place, and allocates nothing on a GPU. Other memory that an engine needs is an
output of bytes. XLA keeps some of these for the backward, and drops the others.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np
from jax.experimental.buffer_callback import buffer_callback

from pycudnnrnn import _locks
from pycudnnrnn.passes import GRADIENTS, RESULTS, slots
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec

Aliases = dict[int, int] | None
"""The number of an input, to the number of the output that shares its memory."""


Shape = Any
"""The shape and dtype of an output, for XLA: a `jax.ShapeDtypeStruct`."""


def scratch(nbytes: int) -> Shape:
    """Return the shape of so many bytes."""
    return jax.ShapeDtypeStruct((nbytes,), np.uint8)


@dataclasses.dataclass(frozen=True)
class Traced:
    """The part of a call that is fixed while JAX traces; hashable.

    The call's first argument is the dropout position; with `carries` it is the dropout states, and the last result is
    the updated ones. `position` is set if it has to be known while JAX traces.
    """

    spec: RNNSpec
    schedule: Schedule
    training: bool
    runner: Runner
    position: int | None = None
    carries: bool = False

    @property
    def drops(self) -> bool:
        return self.training and self.spec.dropout > 0 and self.spec.num_layers > 1

    @_locks.cached_property
    def shapes(self) -> dict[str, Shape]:
        """The shape and dtype of each array of a call, by name. Only an LSTM has arrays of c."""
        size, dtype = self.runner.engine.layout(self.spec).size, self.spec.dtype.numpy
        found = slots(self.spec, self.schedule, size)
        return {name: jax.ShapeDtypeStruct(slot.shape, dtype) for name, slot in found.items() if slot.shape is not None}

    def there(self, *names: str) -> list[str]:
        """Return those of the names that this cell has."""
        return [name for name in names if name in self.shapes]

    def gradients(self, *, weights: bool) -> list[str]:
        """The arrays that a backward writes, by name; the gradient of params first, if requested."""
        return [*(["d_params"] if weights else []), *self.there(*GRADIENTS)]

    @property
    def results(self) -> list[Shape]:
        carried = [scratch(self.runner.states_nbytes)] if self.carries else []
        return [*map(self.shapes.__getitem__, self.there(*RESULTS)), *carried]

    def widened(self, count: int) -> Traced:
        """Return the call on `count` batches next to each other."""
        lengths, batch = self.schedule.lengths, self.schedule.B * count
        wide = dataclasses.replace(self.schedule, B=batch, lengths=None if lengths is None else lengths * count)
        return dataclasses.replace(self, schedule=wide)


Pass = Callable[..., None]
"""The function that XLA calls with its context, outputs and inputs. XLA compiles equal ones once."""


class Runner(Protocol):
    """An engine that runs on XLA's buffers; hashable."""

    @property
    def engine(self) -> Any: ...

    @property
    def states_nbytes(self) -> int:
        """The size of the dropout states in bytes."""

    def states_from(self, seed: int) -> Any:
        """Return the dropout states of a model's first forward."""

    def forward(self, call: Traced, dropout: Any, arguments: Sequence[Any], *, keep: bool) -> tuple[Any, Any]:
        """Return the results, and the reserve for a backward."""

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
        """Return the gradients of params (if `weights`), input_data and the states."""


def varying_like(results: Sequence[Any], arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Mark results as varying over the mesh axes that any argument varies over, which XLA's calls do not do."""
    return tuple(map(functools.partial(varying, axes=axes_of(arguments)), results))


def axes_of(arrays: Sequence[Any]) -> frozenset[Any]:
    """Return the mesh axes that any of the arrays varies over, under `shard_map`."""
    return frozenset().union(*map(_axes, arrays))


def _axes(array: Any) -> frozenset[Any]:
    kind: Any = jax.typeof(array)
    axes: frozenset[Any] = kind.manual_axis_type.varying if hasattr(kind, "manual_axis_type") else kind.vma  # 0.10.2
    return axes


def varying(array: Any, axes: frozenset[Any]) -> Any:
    missing = axes - _axes(array)
    return jax.lax.pcast(array, tuple(missing), to="varying") if missing else array


def in_place(run: Pass, shapes: Sequence[Shape], arrays: Sequence[Any], aliases: Aliases = None) -> Any:
    """Run on XLA's own buffers."""
    call = buffer_callback(run, tuple(shapes), vmap_method="sequential", input_output_aliases=aliases)
    return varying_like(call(*arrays), arrays)


@functools.cache
def wait_at_exit() -> None:
    """Make the interpreter's exit wait for all JAX arrays that are still being computed.

    XLA calls Python for them, and the process aborts if it does so after the exit. JAX waits only for computations that
    the exiting thread has started. This is registered after JAX's own handlers, so it runs before them.

    Source: RuntimeTokenSet, which belongs to one thread, and wait_for_tokens (jax/_src/dispatch.py, 0.10.2).
    """
    atexit.register(_wait)


def _wait() -> None:
    for platform in (None, "cpu"):
        with contextlib.suppress(RuntimeError):  # a JAX without it
            for array in jax.live_arrays(platform):
                with contextlib.suppress(RuntimeError):  # it failed, or was deleted
                    array.block_until_ready()
