"""The engines: the protocol that each one has, and the choice of the engine for a device.

An engine runs an RNN on one kind of memory. The levels above use only this protocol. Each engine has its own layout.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from pycudnnrnn import _arrays
from pycudnnrnn._checks import check_int, shorten
from pycudnnrnn.errors import ArgumentTypeError, LayoutError
from pycudnnrnn.layout import ParamLayout, arithmetic_layout
from pycudnnrnn.passes import Arrays, CallConfig, Pass
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import SEED_MAX, RNNSpec

if TYPE_CHECKING:
    import numpy as np

POSITION_MAX: Final = 2**63 - 1
"""The largest position of dropout: that of a signed 64-bit counter. No program reaches it."""


@dataclasses.dataclass(frozen=True)
class DropoutState:
    """The state of a model's dropout. Restoring it reproduces the same masks on the same engine.

    `op.dropout_state()` returns one, and `op.set_dropout_state(state)` restores it.

    Args:
        engine: name of the engine: "numpy" or "cudnn". Their masks differ.
        seed: seed of the masks, from 0 to 2**64 - 1.
        position: number of training forwards since the seed. Default: 0.
        data: cuDNN's random states, which cannot be computed from the position; empty on the NumPy engine. Default:
            b"".

    Raises:
        ArgumentTypeError: a value of the wrong type.
        ArgumentError: a seed or a position outside its range.

    Example:
        >>> from pycudnnrnn import ops
        >>> op = ops.CudnnGRU(num_layers=2, num_units=8, input_size=4, dropout=0.5, seed=7)
        >>> op.set_dropout_state(ops.DropoutState("numpy", seed=7, position=3))
        >>> op.dropout_state().position
        3
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
    """The memory that a forward and, in training, its backward pass take in addition to the arguments. All in bytes.

    - `workspace_nbytes`: scratch memory, at its maximum.
    - `reserve_nbytes`: the reserve, which the backward pass needs. With `checkpoint_every` it is the kept states and
      one chunk of steps.
    - `output_nbytes`: the results of the forward.
    - `gradient_nbytes`: the results of the backward pass.
    - `checkpoint_nbytes`: the part of `reserve_nbytes` that is kept until the backward pass, with `checkpoint_every`.
    """

    workspace_nbytes: int
    reserve_nbytes: int
    output_nbytes: int
    gradient_nbytes: int = 0
    checkpoint_nbytes: int = 0

    @property
    def total_nbytes(self) -> int:
        """The sum: the largest amount that is in use at one time."""
        return self.workspace_nbytes + self.reserve_nbytes + self.output_nbytes + self.gradient_nbytes


class Dropout(Protocol):
    """The running dropout of one model on one engine. Each training forward takes its masks from it.

    `chunk_nbytes`: the bytes kept for each chunk to reproduce its masks.
    """

    chunk_nbytes: int

    def state(self) -> DropoutState:
        """Return its state, after waiting for the work on the device."""

    def as_one(self) -> contextlib.AbstractContextManager[ChunkMasks]:
        """Count the block's forwards, which are the chunks of one call, as one; as none if the block fails."""


class ChunkMasks(Protocol):
    """The masks of a forward in chunks."""

    def chunk(self, first_row: int) -> tuple[Any, Callable[[], Any]]:
        """Return the dropout of the next chunk's forward, and a function that returns one with the same masks.

        `first_row` is the chunk's first packed row in the batch.
        """


class Reserve(Protocol):
    """The reserve that a forward leaves for its backward. `backward_data` uses it up: once `touched`, it is spent."""

    @property
    def touched(self) -> bool: ...

    def copy(self) -> Reserve:
        """Return a copy for a backward to use up. This one is not changed."""

    def backward_data(self, dy: Any | None, dhy: Any | None, dcy: Any | None) -> tuple[Any, Any, Any | None]:
        """Return dx, dhx, dcx. None among the arguments means zeros."""

    def backward_weights(self, out: Any, *, accumulate: bool) -> None:
        """Write the params gradient into `out`, or add it there; after `backward_data`, as in cuDNN.

        If memory runs out, nothing has been added to it.
        """


Results = tuple[Any, Any, Any | None, Any]
"""y, hy, cy (LSTM only, otherwise None), and the `Reserve`, or None if none is kept."""


class EngineGraph(Protocol):
    """A plan's calls, captured on the graph's own buffers. Arrays that do not exist are absent."""

    arrays: Arrays

    def replay(self) -> None:
        """Run on the current stream. In training this advances dropout."""


class Calls(Protocol):
    """Calls of one configuration, made: everything that does not depend on their arrays. Its device must be current.

    Those of `Engine.plan` have all methods but `forward`, and the sizes; those of `Engine.calls` have `forward` alone.
    """

    spec: RNNSpec
    workspace_nbytes: int
    reserve_nbytes: int

    def forward(self, schedule: Schedule, inputs: Arrays, at: Sequence[int | None]) -> Results:
        """Run a forward on a batch of the configuration's kind, which may have other lengths, in new arrays.

        `inputs`: the native, checked arrays that it reads, by name; `at`: their addresses, in the order of `INPUTS`.
        """

    def hold(self, params: Any | None) -> None:
        """Read params once for all later calls with this buffer, until `hold` gets another one or None."""

    def bind(self, which: Pass, arrays: Arrays, at: Sequence[int | None]) -> Callable[..., None]:
        """Return a function that runs a pass on native, checked arrays; `at` has their addresses in the pass's order.

        With `accumulate=True` the gradient of params is added to the array.
        """

    def capture(self, params: Any, *, carry_state: bool) -> EngineGraph:
        """Capture the calls on checked params. With `carry_state` the final states are the next initial states.

        Raises:
            CaptureError: no graphs with this engine or this algorithm, or a stream that is already being captured.
        """


class ArrayFunctions(Protocol):
    """Functions on an engine's arrays, outside of its calls."""

    def holds(self, array: Any, /) -> bool:
        """Return whether this is a writable array in the engine's memory, which needs no conversion."""

    def address(self, array: Any, /) -> int: ...

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any], /) -> Any: ...

    def copy(self, array: Any, /) -> Any:
        """Return a copy, contiguous and aligned."""

    def from_host(self, array: np.ndarray[Any, Any], /) -> Any:
        """Return an array with the values of a NumPy array."""

    def take(self, array: Any, indices: Any, axis: int, /) -> Any:
        """Return a new array of the elements along an axis at an array of indices."""

    @staticmethod
    def copy_into(target: Any, values: Any, /) -> None:
        target[...] = values

    @staticmethod
    def add_into(target: Any, values: Any, /) -> None:
        target += values.astype(target.dtype, copy=False)


class Engine(Protocol):
    """Runs RNNs on native arrays of one kind of memory. The caller has checked them; `passes` lists them.

    - `name`: "numpy" or "cudnn".
    - `device`: where its memory is, "cpu" or "cuda:<index>".
    - `alignment`: of arrays that its calls use without a copy, in bytes. Above 1, all must also be contiguous.
    - `steps_max`: the most steps of one call.
    - `takes_empty`: whether a call's batch may have sequences without a step, or no steps or sequences at all.
    """

    name: str
    device: str
    alignment: int
    steps_max: int
    takes_empty: bool

    @property
    def arrays(self) -> ArrayFunctions: ...

    @property
    def xp(self) -> Any:
        """The array namespace of its memory: NumPy, or CuPy, which allocates on the current device."""

    def active(self) -> contextlib.AbstractContextManager[Any]:
        """Make its device the current one in a `with` block. On the CPU this does nothing."""

    def on_stream(
        self, address: int | None, others: Collection[int | None], *, wait: bool
    ) -> contextlib.AbstractContextManager[int]:
        """Put the block's work on a stream, after the work on the streams `others`, which then wait for it.

        Streams are given by their addresses; None is the current stream of the engine's own array library. The block
        gets the address. With `wait` the block ends when the work is done.
        """

    def ordered(self, streams: Sequence[Any], what: str) -> contextlib.AbstractContextManager[Any]:
        """Order the block's work on the current stream after the work on `streams`, which then wait for it.

        The block gets the current stream. `what` names the work in an error.

        Raises:
            CaptureError: the stream is being captured.
        """

    def dropout(self, spec: RNNSpec, state: DropoutState) -> Dropout:
        """Continue dropout from a state."""

    def layout(self, spec: RNNSpec) -> ParamLayout:
        """Return this engine's layout of a params buffer."""

    def calls(self, config: CallConfig) -> Calls:
        """Return the eager calls of a configuration."""

    def plan(self, config: CallConfig) -> Calls:
        """Prepare repeated calls of a configuration on the caller's arrays."""

    def memory(self, config: CallConfig, *, adds: bool = False) -> Memory:
        """Return the memory of a forward of one kind and, in training, of its backward. Nothing is run.

        With `adds` the array of the gradient of params exists before the backward.
        """


_NOTHING: Final = contextlib.nullcontext()


def on_callers_stream(
    engine: Engine, library: str, libraries: frozenset[str]
) -> contextlib.AbstractContextManager[Any]:
    """Run the engine's work in the block on the current stream of the caller's library.

    `libraries` are those of all arrays of the call. Each has its own current stream: the work waits for these streams,
    and they wait for the work. JAX's streams cannot be reached: DLPack orders its arrays, and the block ends when the
    work is done, because JAX may reuse an array's memory as soon as the array is gone.
    """
    if engine.device == "cpu":
        return _NOTHING
    if library == "cupy" and libraries <= {"cupy"}:
        return engine.active()
    stream = _arrays.stream_address(library, engine.device)
    others = {_arrays.stream_address(other, engine.device) for other in libraries & {"cupy", "torch"}} - {stream}
    return engine.on_stream(stream, others, wait="jax" in libraries)


_engines: dict[str, Engine] = {}
"""Engines by the full name of the device, because an import and a lock in each call would cost microseconds."""

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
    known = _engines.get(device)
    if known is not None:
        return known
    # Imported here: the engines need the protocol above, and not everybody needs cuDNN.
    if device == "cpu":
        from pycudnnrnn.engines.numpy_engine import NumpyEngine  # noqa: PLC0415

        return _engines.setdefault(device, NumpyEngine())
    from pycudnnrnn._libcudnn import load  # noqa: PLC0415
    from pycudnnrnn.engines.cudnn.device import CudaDevice  # noqa: PLC0415
    from pycudnnrnn.engines.cudnn.engine import CudnnEngine  # noqa: PLC0415

    index = device.partition(":")[2]
    cuda = CudaDevice(int(index) if index else None)  # None: the current one, which may change
    name = f"cuda:{cuda.index}"
    return _engines.get(name) or _engines.setdefault(name, CudnnEngine(load(), cuda))


def check_size(name: str, params: Any, spec: RNNSpec, engine: Engine) -> None:
    """Raise an error for params in the arithmetic layout, if the engine's layout has another size.

    Raises:
        LayoutError: params of that size.
    """
    predicted, size = arithmetic_layout(spec).size, engine.layout(spec).size
    if predicted != size and tuple(params.shape) == (predicted,):
        raise LayoutError(
            f"{name} has the {predicted} elements of the arithmetic layout, and {engine.name}'s layout has {size}: "
            "an op's move_params brings a buffer from one to the other"
        )


@contextlib.contextmanager
def use_engine(engine: Engine) -> Iterator[None]:
    """Use an engine for its kind of device inside a `with` block. For tests.

    The engine is used in the thread, or the asyncio task, that entered the block.

    Args:
        engine: the engine, such as a `testing.LayoutEngine`. It replaces the one for "cpu" or for all "cuda" devices.

    Yields:
        None.

    Raises:
        ArgumentTypeError: something other than an engine.

    Example:
        >>> from pycudnnrnn import ParamLayout, ops, testing
        >>> op = ops.CudnnGRU(1, num_units=3, input_size=2)
        >>> padded = ParamLayout(99, op.layout().regions)
        >>> with testing.use_engine(testing.LayoutEngine(padded)):
        ...     inside = op.layout()
        >>> inside == padded != op.layout()
        True
    """
    if isinstance(engine, type) or not isinstance(getattr(engine, "device", None), str):
        raise ArgumentTypeError("engine", "an engine, such as testing.LayoutEngine(layout)", shorten(engine))
    token = _override.set((_override.get() or {}) | {engine.device.partition(":")[0]: engine})
    try:
        yield
    finally:
        _override.reset(token)
