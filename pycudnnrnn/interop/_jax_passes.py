"""What XLA calls for an RNN: what is fixed while it is traced, what runs it, and how that reaches XLA's buffers.

A pass gets XLA's inputs and outputs where they are, and takes no other memory on a GPU: what an engine needs beside the
results are outputs of bytes, some kept for the backward, the rest dropped by XLA.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import jax
import numpy as np

from pycudnnrnn.passes import GRADIENTS, RESULTS, slots
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec

try:
    _buffer_callback: Any = importlib.import_module("jax.experimental.buffer_callback").buffer_callback
except ImportError:
    _buffer_callback = None

HAS_BUFFERS: Final = _buffer_callback is not None
"""Whether XLA's buffers can be used in place: JAX has had that since 0.6.2. If not, there is only the host path."""

Aliases = dict[int, int] | None
"""Inputs whose memory is that of an output."""


class Shape(Protocol):
    """What an output will be, as XLA has to know it."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...


def _shape(shape: tuple[int, ...], dtype: Any) -> Shape:
    found: Shape = jax.ShapeDtypeStruct(shape, dtype)
    return found


def scratch(nbytes: int) -> Shape:
    return _shape((nbytes,), np.uint8)


@dataclasses.dataclass(frozen=True)
class Traced:
    """What is fixed about a call while it is traced; hashable.

    Its first argument is dropout's: the position, or, where it `carries` them, the states, and then the moved ones are
    its last result. `position` is the position where that has to be known.
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

    @functools.cached_property
    def shapes(self) -> dict[str, Shape]:
        """What each array of a call is, by name; those of c are there for LSTM alone."""
        size, dtype = self.runner.engine.layout(self.spec).size, self.spec.dtype.numpy
        found = slots(self.spec, self.schedule, size)
        return {name: _shape(slot.shape, dtype) for name, slot in found.items() if slot.shape is not None}

    def there(self, *names: str) -> list[str]:
        """Those of the names that this cell has."""
        return [name for name in names if name in self.shapes]

    def gradients(self, *, weights: bool) -> list[str]:
        """What a backward writes, by name; that of params first, where it is asked for."""
        return [*(["d_params"] if weights else []), *self.there(*GRADIENTS)]

    @property
    def results(self) -> list[Shape]:
        carried = [scratch(self.runner.states_nbytes)] if self.carries else []
        return [*map(self.shapes.__getitem__, self.there(*RESULTS)), *carried]

    def widened(self, count: int) -> Traced:
        """The call on `count` batches side by side."""
        lengths, batch = self.schedule.lengths, self.schedule.B * count
        wide = dataclasses.replace(self.schedule, B=batch, lengths=None if lengths is None else lengths * count)
        return dataclasses.replace(self, schedule=wide)


Pass = Callable[..., None]
"""What XLA calls with its context, outputs and inputs; it compiles equal ones once."""


class Runner(Protocol):
    """An engine at work on XLA's buffers; hashable."""

    @property
    def engine(self) -> Any: ...

    @property
    def states_nbytes(self) -> int:
        """The bytes of dropout's states as a value."""

    def states_from(self, seed: int) -> Any:
        """Return the dropout states of a model's first forward."""

    def forward(self, call: Traced, dropout: Any, arguments: Sequence[Any], *, keep: bool) -> tuple[Any, Any]:
        """Return the results, and what a backward needs beside them and the arguments."""

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
        """Return the gradients of the arguments: params, where `weights` are asked for, input_data and the states."""


def varying_like(results: Sequence[Any], arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Say of results that they vary over the mesh axes that any argument varies over; XLA's calls do not."""
    return tuple(map(functools.partial(varying, axes=axes_of(arguments)), results))


def axes_of(arrays: Sequence[Any]) -> frozenset[Any]:
    """The mesh axes that any of the arrays varies over, under `shard_map`."""
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
    call = _buffer_callback(run, tuple(shapes), vmap_method="sequential", input_output_aliases=aliases)
    return varying_like(call(*arrays), arrays)


@functools.cache
def wait_at_exit() -> None:
    """Let the interpreter's exit wait for all arrays of JAX's that are still being computed.

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
