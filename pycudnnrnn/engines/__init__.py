"""What an engine is, and which one runs where.

An engine runs an RNN on one kind of memory. Levels above speak to this protocol alone; a layout belongs to an engine.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator
from typing import Any, Protocol

from pycudnnrnn.errors import EngineError
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec


@dataclasses.dataclass(frozen=True)
class DropoutState:
    """Where a model's dropout stands, as a value: with it, masks come again. Masks differ between engines.

    `position` counts the training forwards since the seed.
    """

    engine: str
    seed: int
    position: int = 0


class Reserve(Protocol):
    """What a forward leaves for its backward. A backward-data uses it up."""

    def copy(self) -> Reserve:
        """Return one that a backward can use up while this one stays as it is."""


class Engine(Protocol):
    """Run RNNs on native arrays of one kind of memory, already checked by the caller.

    Shapes:
        params: [layout.size]; x, dx: [T, B, I], or [B, T, I] where the schedule is not time-major; y, dy: the same
        with D * (P or U); hx, hy and their gradients: [L * D, B, P or U]; cx, cy and theirs: [L * D, B, U].
    """

    @property
    def name(self) -> str: ...

    def layout(self, spec: RNNSpec) -> ParamLayout:
        """Where this engine keeps each region of a params buffer."""

    def forward(
        self,
        spec: RNNSpec,
        schedule: Schedule,
        params: Any,
        x: Any,
        hx: Any | None,
        cx: Any | None,
        *,
        dropout: DropoutState | None,
        keep_reserve: bool,
    ) -> tuple[Any, Any, Any | None, Reserve | None]:
        """Return y, hy, cy (None but for LSTM) and the reserve; `dropout` None drops nothing."""

    def backward_data(
        self, reserve: Any, dy: Any | None, dhy: Any | None, dcy: Any | None
    ) -> tuple[Any, Any, Any | None]:
        """Return dx, dhx, dcx, rewriting the reserve; None among the arguments stands for zeros."""

    def backward_weights(self, reserve: Any, out: Any, *, accumulate: bool) -> None:
        """Write the params gradient into `out`, or add it there; after `backward_data`, as in cuDNN."""


_override: contextvars.ContextVar[Engine | None] = contextvars.ContextVar("engine", default=None)


def engine_for(device: str) -> Engine:
    """Return the engine that runs on `device`: "cpu".

    Raises:
        EngineError: no engine for this device.
    """
    if device != "cpu":
        raise EngineError(f"no engine runs on {device!r}: this version computes on the CPU alone")
    from pycudnnrnn.engines.numpy_engine import NumpyEngine  # noqa: PLC0415  it needs the protocol above

    return _override.get() or NumpyEngine()


@contextlib.contextmanager
def use_engine(engine: Engine) -> Iterator[None]:
    """Run the CPU part of the `with` block on `engine`, in this context only. Meant for tests."""
    token = _override.set(engine)
    try:
        yield
    finally:
        _override.reset(token)
