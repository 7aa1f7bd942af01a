"""Input that comes piece by piece."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pycudnnrnn import _arrays
from pycudnnrnn._arrays import ArrayKind, ArrayT
from pycudnnrnn._recent import Recent
from pycudnnrnn._tf1.arguments import h_and_c
from pycudnnrnn.engines import Engine, engine_for, on_callers_stream
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.ops._forward import shapes
from pycudnnrnn.ops._take import Taker, slots_on
from pycudnnrnn.passes import FORWARD, CallConfig, Slot
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import Direction, RNNSpec

if TYPE_CHECKING:
    from pycudnnrnn.ops._op import CudnnRNN

PIECES_MAX: Final = 8
"""Most sizes of pieces for which calls are prepared, those used last."""

States = tuple[Any, ...]


class _Piece(NamedTuple):
    """The calls for pieces of one size, its shape and dtype, on arrays that all of them reuse.

    `runs` has two: each continues from the states that the other one left. An empty piece has none.
    """

    size: tuple[Any, ...]
    x: Any
    y: Any
    runs: tuple[Callable[[], None], ...]


@dataclasses.dataclass
class _Running:
    """A stream that has begun: its model, its calls, and two sets of states. `latest` says which set is the latest."""

    engine: Engine
    kind: ArrayKind
    op: CudnnRNN
    params: Any
    address: int | None
    states: tuple[list[Any], list[Any]]
    pieces: Recent[_Piece]
    latest: int = 0
    piece: _Piece | None = None

    def reads(self, params: Any) -> bool:
        """Return whether the calls read these params, where they are now."""
        return params is self.params and (self.address is None or self.address == _address(self.engine, params))


class Stream:
    """Run a layer or an op on input that comes piece by piece, without dropout. Its method `stream` makes it.

    Each call continues from the states of the previous one. The outputs are those of one call on the whole sequence. A
    stream keeps prepared calls and arrays for the sizes of its pieces. On a GPU it belongs to the CUDA stream of its
    first call, as a `Plan` does. A copy of a stream continues from the same states, and so does one from a pickle.
    """

    def __init__(
        self, model: Callable[[Any], tuple[CudnnRNN, Any]], what: str, initial_state: Any, spec: RNNSpec
    ) -> None:
        """`model` returns the op and the params for an input. It can be copied and pickled."""
        if spec.direction is not Direction.UNIDIRECTIONAL:
            expected = "'unidirectional': a backward direction starts at the end of the input"
            raise ArgumentError("direction", expected, repr(str(spec.direction)))
        h_and_c(initial_state, spec)  # raises for wrong states before the first piece
        self._model, self._what = model, what
        self._initial = _copied(initial_state)  # the caller may use its arrays for something else
        self._start: States | None = self._initial
        self._running: _Running | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_start": self.states, "_running": None}

    @property
    def states(self) -> States | None:
        """Copies of the states after the latest piece: (h, c) for the LSTM, (h,) for the others. None: zeros."""
        running = self._running
        if running is None:
            return _copied(self._start)
        engine, kind = running.engine, running.kind
        with on_callers_stream(engine, kind.library, frozenset({kind.library})):
            states = [state for state in running.states[running.latest] if state is not None]
            return tuple(_arrays.to_caller(engine.arrays.copy(state), kind) for state in states)

    def __call__(self, inputs: ArrayT) -> ArrayT:
        """Run the next piece.

        Args:
            inputs: [T, B, I], or [B, I] for one step.

        Returns:
            The outputs, [T, B, U] or [B, U]; P instead of U with a projection.

        Raises:
            ArgumentError: another number of sequences than before, or another shape, dtype or device.
            ArgumentTypeError: not an array.
        """
        kind = _arrays.kind_of("inputs", inputs)
        if inputs.ndim not in (2, 3):
            raise ArgumentError("inputs", "[T, B, I], or [B, I] for one step", tuple(inputs.shape), aspect="shape")
        running, (op, params) = self._running, self._model(inputs)
        engine = running.engine if running and running.kind.device == kind.device else engine_for(kind.device)
        on_cpu = engine.device == "cpu"  # without streams
        with on_callers_stream(engine, kind.library, frozenset() if on_cpu else _arrays.libraries_of(inputs, params)):
            arrays = engine.arrays
            native: Any = inputs
            if not arrays.holds(inputs):
                native = _arrays.to_engine("inputs", inputs, engine.device, engine.xp)
            if running is None or running.engine is not engine or not running.reads(params):
                running = self._begun(engine, kind, op, params, native.shape[-2])
            size, piece = (native.shape, native.dtype), running.piece
            if piece is None or piece.size != size:
                piece = running.pieces.get(size) or running.pieces.keep(size, _piece(running, native, size))
                running.piece = piece
            self._running = running
            arrays.copy_into(piece.x, native)
            if piece.runs:
                piece.runs[running.latest]()
            result: ArrayT = _arrays.to_caller(arrays.copy(piece.y), kind)
            if piece.runs:  # at the end: a call that fails may be repeated
                running.kind, running.latest = kind, 1 - running.latest
            return result

    def _begun(self, engine: Engine, kind: ArrayKind, op: CudnnRNN, params: Any, B: int) -> _Running:
        """Begin with the first piece, or with another model, from the present states: zeros are for B sequences."""
        states = h_and_c(self.states, op.spec)
        B = next((state.shape[1] for state in states if state is not None), B)
        of_call = slots_on(engine, op.spec, Schedule(1, B))
        first, _ = Taker(engine, op.spec, of_call, {"hx": "initial_state (h)", "cx": "initial_state (c)"})(*states)
        latest, spare = ([_zeros(engine, of_call[name]) for name in first] for _ in range(2))
        for state, array in zip(latest, first.values(), strict=True):
            if array is not None:
                engine.arrays.copy_into(state, array)
        return _Running(engine, kind, op, params, _address(engine, params), (latest, spare), Recent(PIECES_MAX))

    def reset(self) -> None:
        """Return to the states that the stream began with."""
        self._start, self._running = self._initial, None

    def __repr__(self) -> str:
        return f"<Stream of {self._what}; {shapes(self, ('states',)) or 'states zeros'}>"


def _piece(running: _Running, native: Any, size: tuple[Any, ...]) -> _Piece:
    """Prepare the calls for pieces of the size of a first one."""
    engine, spec, shape = running.engine, running.op.spec, native.shape
    _arrays.check_dtype("inputs", native, spec.dtype.numpy)
    if shape[-1] != spec.input_size:
        raise ArgumentError("inputs", f"input_size={spec.input_size} in the last axis", shape, aspect="shape")
    B = running.states[0][0].shape[1]
    if shape[-2] != B:
        expected = f"{B}, those of the states: reset the stream, or make another one"
        raise ArgumentError("inputs", expected, shape[-2], aspect="number of sequences")
    schedule = Schedule(shape[0] if len(shape) == 3 else 1, B)
    of_call = slots_on(engine, spec, schedule)
    x, y = _zeros(engine, of_call["x"]), _zeros(engine, of_call["y"])
    runs: tuple[Callable[[], None], ...] = ()
    if 0 not in shape:
        take = Taker(engine, spec, of_call, {n: n for n in FORWARD.names}, written=FORWARD.written, in_place=True)
        plan = engine.plan(CallConfig(spec, schedule))
        pairs = running.states, running.states[::-1]
        runs = tuple(plan.bind(FORWARD, *take(running.params, x, *a, y, *b, None)) for a, b in pairs)
    return _Piece(size, x, y, runs) if len(shape) == 3 else _Piece(size, x[0], y[0], runs)


def _copied(states: States | None) -> States | None:
    """Return states in new memory, each in its own kind of array."""
    return states and tuple(None if state is None else _copy_of(state) for state in states)


def _copy_of(state: Any) -> Any:
    kind = _arrays.kind_of("initial_state", state)
    engine = engine_for(kind.device)
    with on_callers_stream(engine, kind.library, frozenset({kind.library})):
        native = _arrays.to_engine("initial_state", state, engine.device, engine.xp)
        return _arrays.to_caller(engine.arrays.copy(native), kind)


def _address(engine: Engine, params: Any) -> int | None:
    """Return the address of params of another library, whose memory can move; None for the engine's own arrays."""
    native = _arrays.to_engine("params", params, engine.device, engine.xp)
    return None if native is params else engine.arrays.address(native)


def _zeros(engine: Engine, slot: Slot) -> Any:
    return None if slot.shape is None else engine.arrays.zeros(slot.shape, slot.dtype)
