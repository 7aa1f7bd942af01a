"""What an engine is, and which one runs where.

An engine runs an RNN on one kind of memory. The levels above use only this protocol; a layout belongs to an engine.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, Protocol

from pycudnnrnn._checks import check_int, shorten
from pycudnnrnn.errors import ArgumentTypeError
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.passes import Arrays, Batch, Pass
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import SEED_MAX, RNNSpec

POSITION_MAX: Final = 2**63 - 1
"""The last position of a dropout: as far as a signed 64-bit counter goes, and further than forwards can be counted."""


@dataclasses.dataclass(frozen=True)
class DropoutState:
    """Where a model's dropout stands, as a value: with it, masks come again. Masks differ between engines.

    `position` counts the training forwards since the seed. `data` is what an engine needs beside it: cuDNN's random
    states, which cannot be computed from the position.

    Raises:
        ArgumentTypeError: a value of the wrong type.
        ArgumentError: a seed or a position beyond its limits.
    """

    engine: str
    seed: int
    position: int = 0
    data: bytes = b""

    def __post_init__(self) -> None:
        if not isinstance(self.engine, str):
            raise ArgumentTypeError("engine", "an engine's name", shorten(self.engine))
        if not isinstance(self.data, bytes):
            raise ArgumentTypeError("data", "bytes", type(self.data))
        object.__setattr__(self, "seed", check_int("seed", self.seed, 0, SEED_MAX))
        object.__setattr__(self, "position", check_int("position", self.position, 0, POSITION_MAX))


@dataclasses.dataclass(frozen=True)
class Memory:
    """What a forward, and in training its backward, takes beside the arguments: bytes, by what they hold.

    `output_nbytes` are the results, `gradient_nbytes` those of the backward. `reserve_nbytes` are kept from one to the
    other, or computed again chunk by chunk: then `checkpoint_nbytes` of them are kept, and the rest is one chunk's.
    `workspace_nbytes` is scratch at the fullest moment.
    """

    workspace_nbytes: int
    reserve_nbytes: int
    output_nbytes: int
    gradient_nbytes: int = 0
    checkpoint_nbytes: int = 0

    @property
    def total_nbytes(self) -> int:
        """All of them together: the most that is taken at once."""
        return self.workspace_nbytes + self.reserve_nbytes + self.output_nbytes + self.gradient_nbytes


class Dropout(Protocol):
    """The moving dropout of one model on one engine: each training forward takes its masks from it."""

    def state(self) -> DropoutState:
        """Return where it stands; what runs on a device is waited for."""


class Reserve(Protocol):
    """What a forward leaves for its backward. A backward-data uses it up: from `touched` on it cannot be used again."""

    @property
    def touched(self) -> bool: ...

    def copy(self) -> Reserve:
        """Return one that a backward can use up while this one stays as it is."""

    def backward_data(self, dy: Any | None, dhy: Any | None, dcy: Any | None) -> tuple[Any, Any, Any | None]:
        """Return dx, dhx, dcx; None among the arguments stands for zeros."""

    def backward_weights(self, out: Any, *, accumulate: bool) -> None:
        """Write the params gradient into `out`, or add it there; after `backward_data`, as in cuDNN.

        Where memory runs out, nothing has been added to it.
        """


Results = tuple[Any, Any, Any | None, Any]
"""y, hy, cy (None but for LSTM), and the `Reserve`, where one is kept."""


EagerForward = Callable[[Schedule, Arrays, Sequence[int | None]], Results]
"""Call it with a batch, and the arrays that a forward reads, native and checked: by name, and their addresses, in the
order of `INPUTS`. The engine's device is the current one."""


class EngineGraph(Protocol):
    """A plan's calls captured over the graph's own buffers; what there is not is absent."""

    arrays: Arrays

    def replay(self) -> None:
        """Run on the current stream; a training step's dropout moves on."""


class EnginePlan(Protocol):
    """One kind of call with everything made that does not change."""

    spec: RNNSpec
    workspace_nbytes: int
    reserve_nbytes: int

    def hold(self, params: Any | None) -> None:
        """Read params once for the calls that get this same array, until another or None is held."""

    def run(self, which: Pass, arrays: Arrays, at: Sequence[int | None], *, accumulate: bool = False) -> None:
        """Run a pass on native, checked arrays, which begin `at` addresses, in its order; its device is current.

        With `accumulate` the params gradient is added to what is there.
        """

    def capture(self, params: Any, *, carry_state: bool) -> EngineGraph:
        """Capture the calls once, on checked params; with `carry_state` final states become the next initial ones.

        Raises:
            CaptureError: this engine, or this algorithm, has no graphs, or the stream is being captured already.
        """


class Engine(Protocol):
    """Run RNNs on native arrays of one kind of memory, already checked by the caller; `passes` says which there are."""

    @property
    def name(self) -> str: ...

    @property
    def device(self) -> str:
        """Where its memory is: "cpu" or "cuda:<index>"."""

    @property
    def xp(self) -> Any:
        """The array namespace of its memory: NumPy or CuPy, which takes memory on whatever device is current."""

    @property
    def alignment(self) -> int:
        """Where arrays have to begin that go to its calls as they are, in bytes; above 1 all have to be contiguous."""

    def address(self, array: Any, /) -> int:
        """Return where one of its arrays begins."""

    def copy(self, array: Any) -> Any:
        """Return a copy of one of its arrays, contiguous and aligned."""

    def holds(self, array: Any) -> bool:
        """Whether an array is of its own kind, in its memory, and can be written to: it is used as it is."""

    def active(self) -> contextlib.AbstractContextManager[Any]:
        """Make its device the current one of a `with` block; there is none on the CPU."""

    def on_stream(
        self, address: int | None, others: Collection[int | None], *, wait: bool
    ) -> contextlib.AbstractContextManager[int]:
        """Put the block's work on a stream, given by its address: after what is on `others`, which then wait for it.

        The block gets the address. None is the current stream of the engine's own array library. With `wait` the block
        ends when the work is done.
        """

    def dropout(self, spec: RNNSpec, state: DropoutState) -> Dropout:
        """Continue dropout from a state."""

    def layout(self, spec: RNNSpec) -> ParamLayout:
        """Where this engine keeps each region of a params buffer."""

    def plan(self, batch: Batch) -> EnginePlan:
        """Prepare one kind of call."""

    def memory(self, batch: Batch) -> Memory:
        """Say what a forward of one kind takes, and in training its backward; nothing is run."""

    def forward(self, batch: Batch) -> EagerForward:
        """Return what runs forwards of a kind, made once: they differ from `batch` in their lengths alone."""


_made: dict[str, Engine] = {}
"""Engines by the device's full name: an import and a lock at each call would cost microseconds."""

_override: contextvars.ContextVar[dict[str, Engine] | None] = contextvars.ContextVar("engines", default=None)


def engine_for(device: str) -> Engine:
    """Return the engine that runs on "cpu", "cuda" (the current device) or "cuda:<index>".

    Raises:
        EngineError: cuDNN or the device cannot be used.
        MissingDependencyError: a CUDA device without CuPy.
    """
    overrides = _override.get()
    if overrides is not None:
        override = overrides.get(device.partition(":")[0])
        if override is not None:
            return override
    known = _made.get(device)
    if known is not None:
        return known
    # Imported here: the engines need the protocol above, and cuDNN is for those who ask for it.
    if device == "cpu":
        from pycudnnrnn.engines.numpy_engine import NumpyEngine  # noqa: PLC0415

        return _made.setdefault(device, NumpyEngine())
    from pycudnnrnn.engines.cudnn.engine import cudnn_engine  # noqa: PLC0415

    index = device.partition(":")[2]
    engine = cudnn_engine(int(index) if index else None)
    return _made.setdefault(device, engine) if index else engine  # which device is the current one may change


@contextlib.contextmanager
def use_engine(engine: Engine) -> Iterator[None]:
    """Run what is on the engine's kind of device by `engine`, inside the `with` block and this context. For tests."""
    token = _override.set((_override.get() or {}) | {engine.device.partition(":")[0]: engine})
    try:
        yield
    finally:
        _override.reset(token)
