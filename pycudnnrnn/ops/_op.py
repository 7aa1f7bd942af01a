"""What every op has: its spec, its params in and out of canonical form, its dropout position, and its forward."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, overload

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _arrays
from pycudnnrnn._arrays import ArrayT
from pycudnnrnn._checks import check_bool, check_int
from pycudnnrnn._recent import Recent
from pycudnnrnn.canonical import from_canonical, to_canonical
from pycudnnrnn.engines import Dropout, DropoutState, EagerForward, Engine, Memory, engine_for
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.ops._dropout import Dropouts
from pycudnnrnn.ops._forward import OP_NAMES, Call, Forward, Names
from pycudnnrnn.ops._plan import Plan
from pycudnnrnn.ops._take import Taker, take_params
from pycudnnrnn.passes import INPUTS, Batch, slots
from pycudnnrnn.schedule import Schedule, check_lengths
from pycudnnrnn.spec import INT32_MAX, SEED_MAX, Direction, DType, InputMode, RNNMode, RNNSpec

KINDS_MAX: Final = 64
"""Kinds of calls that an op remembers."""

Scalar = TypeVar("Scalar", bound=np.generic)


class Kind(NamedTuple):
    """What forwards of a kind have in common: their checks, what runs them, and the batch of equal lengths."""

    take: Taker
    forward: EagerForward
    schedule: Schedule


class CudnnRNN:
    """What the four ops share. Use `CudnnLSTM`, `CudnnGRU`, `CudnnRNNTanh`, `CudnnRNNRelu`, or `from_spec`.

    `RNNSpec` says what their arguments mean.

    An op may be called from several threads at once; the dropout position is the one thing they share.
    """

    spec: RNNSpec

    def __init__(self, spec: RNNSpec) -> None:
        if spec.dropout and spec.num_layers == 1:
            warnings.warn(
                f"dropout={spec.dropout} has no effect with one layer: cuDNN drops between layers only", stacklevel=4
            )
        self.__setstate__({"spec": spec, "dropout": {}})

    def __getstate__(self) -> dict[str, Any]:
        return {"spec": self.spec, "dropout": {state.engine: state for state in self.dropout_states()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.spec = state["spec"]
        self._dropouts = Dropouts(self.spec, state["dropout"])
        self._kinds: Recent[Kind] = Recent(KINDS_MAX)

    def __repr__(self) -> str:
        arguments = repr(self.spec).partition(", ")[2]
        return f"ops.{type(self).__name__}({arguments}"

    @property
    def rnn_mode(self) -> RNNMode:
        return self.spec.mode

    @property
    def num_layers(self) -> int:
        return self.spec.num_layers

    @property
    def num_units(self) -> int:
        return self.spec.num_units

    @property
    def input_size(self) -> int:
        return self.spec.input_size

    @property
    def input_mode(self) -> InputMode:
        """The mode in force: `auto_select` reads back as what it chose."""
        return self.spec.input_mode

    @property
    def direction(self) -> Direction:
        return self.spec.direction

    @property
    def num_dirs(self) -> int:
        return self.spec.num_dirs

    @property
    def dtype(self) -> DType:
        return self.spec.dtype

    def params_size(self, device: str | None = None) -> int:
        """Return the elements of the params buffer, padding included."""
        return self.layout(device).size

    def layout(self, device: str | None = None) -> ParamLayout:
        """Return where each region of the params buffer is: None and "cpu" by arithmetic.

        Raises:
            EngineError: no engine runs on `device`.
        """
        return engine_for(_device_name(device)).layout(self.spec)

    @overload
    def init_params(self, seed: int | None = None, device: Literal["cpu"] | None = None) -> npt.NDArray[Any]: ...

    @overload
    def init_params(self, seed: int | None, device: str) -> Any: ...

    @overload
    def init_params(self, seed: int | None = None, *, device: str) -> Any: ...

    def init_params(self, seed: int | None = None, device: str | None = None) -> Any:
        """Return a new params buffer: glorot-uniform by gate matrix, biases 0.

        The same seed gives the same matrices in every layout; None stands for the op's own seed.

        Shapes:
            [params_size].

        Source: Glorot and Bengio 2010; TF's layers draw each canonical matrix by itself, as here.
        """
        seed = self.spec.seed if seed is None else check_int("seed", seed, 0, SEED_MAX)
        engine = engine_for(_device_name(device))
        layout = engine.layout(self.spec)
        params = np.zeros(layout.size, self.dtype.numpy)
        for region in layout.weights:
            rng = np.random.default_rng([seed, region.pseudo_layer, region.lin_layer_id])
            bound = (6 / sum(region.shape)) ** 0.5
            params[region.slice] = rng.uniform(-bound, bound, region.size)
        with engine.active():
            return _arrays.move(params, engine.xp)

    @overload
    def params_to_canonical(
        self, params: npt.NDArray[Scalar], copy: bool = True
    ) -> tuple[list[npt.NDArray[Scalar]], list[npt.NDArray[Scalar]]]: ...

    @overload
    def params_to_canonical(self, params: Any, copy: bool = True) -> tuple[list[Any], list[Any]]: ...

    def params_to_canonical(self, params: Any, copy: bool = True) -> tuple[list[Any], list[Any]]:
        """Split a params buffer into (weights, biases), lists in cuDNN's order; `copy=False` gives views.

        Shapes:
            params: [params_size]; weights: [rows = output, cols = input]; biases: [num_units].
        """
        kind = _arrays.kind_of("params", params)
        engine = engine_for(kind.device)
        with engine.active():  # CuPy's copies are on the current device
            take_params(engine, self.spec, "params", params)
            return to_canonical(params, engine.layout(self.spec), copy=check_bool("copy", copy))

    @overload
    def canonical_to_params(
        self, weights: Sequence[npt.NDArray[Scalar]], biases: Sequence[npt.NDArray[Scalar]], out: None = None
    ) -> npt.NDArray[Scalar]: ...

    @overload
    def canonical_to_params(self, weights: Sequence[Any], biases: Sequence[Any], out: ArrayT) -> ArrayT: ...

    @overload
    def canonical_to_params(self, weights: Sequence[Any], biases: Sequence[Any], out: Any = None) -> Any: ...

    def canonical_to_params(self, weights: Sequence[Any], biases: Sequence[Any], out: Any = None) -> Any:
        """Put canonical lists into one params buffer, `out` or a new one where the arrays live; padding gets 0.

        Raises:
            ArgumentError: a wrong number of arrays, a wrong shape or dtype, arrays of several kinds, or an `out` that
                cannot hold them. Nothing has been written then.
        """
        if not len(weights):
            raise ArgumentError("weights", f"{len(self.layout().weights)} arrays", "0 arrays")
        kind = _arrays.kind_of("weights[0]", weights[0])
        engine = engine_for(kind.device)
        xp, layout = engine.xp, engine.layout(self.spec)
        with _arrays.streams(engine, kind.library, _arrays.libraries_of(*weights, *biases, out)):
            weights, biases = (
                [self._canonical(f"{name}[{i}]", array, engine) for i, array in enumerate(arrays)]
                for name, arrays in (("weights", weights), ("biases", biases))
            )
            if out is None:
                native = _arrays.new((layout.size,), self.dtype.numpy, xp)
            else:
                native = take_params(engine, self.spec, "out", out, written=True)
                weights = [a.copy() if _arrays.overlap(a, native) else a for a in weights]
                biases = [a.copy() if _arrays.overlap(a, native) else a for a in biases]
            from_canonical(weights, biases, layout, native)
            return _arrays.to_caller(native, kind) if out is None else out

    def _canonical(self, name: str, array: Any, engine: Engine) -> Any:
        native = _arrays.to_engine(name, array, engine.device, engine.xp)
        _arrays.check_dtype(name, native, self.dtype.numpy)
        return native

    def move_params(self, params: Any, device: str) -> Any:
        """Return a new buffer with the same weights in the layout of `device`, through canonical form.

        It is a CuPy array on a CUDA device and a NumPy array on the CPU.

        Raises:
            EngineError: no engine runs on `device`.
        """
        target, kind = engine_for(_arrays.check_device(device)), _arrays.kind_of("params", params)
        source = engine_for(kind.device)
        layout = target.layout(self.spec)
        with _arrays.streams(source, kind.library, frozenset({kind.library, "cupy"})):
            native = take_params(source, self.spec, "params", params)
            if source is not target:  # through the host, which the two devices' streams need not be put in order for
                native = _arrays.move(native, np)
            weights, biases = to_canonical(native, source.layout(self.spec), copy=False)
            moved = (target.xp if source is target else np).empty(layout.size, self.dtype.numpy)
            from_canonical(weights, biases, layout, moved)
        with target.active():
            return _arrays.move(moved, target.xp)

    def dropout_state(self, device: str | None = None) -> DropoutState:
        """Return where this op's dropout stands on `device`; each has a position of its own."""
        return self._dropout_on(engine_for(_device_name(device))).state()

    def dropout_states(self) -> list[DropoutState]:
        """Return where dropout stands on each engine that it ran on, or was set on: what a copy or a checkpoint keeps.

        Raises:
            StateError: it stands differently on two devices of one engine, as after training on both.
        """
        return self._dropouts.states()

    def set_dropout_state(self, state: DropoutState) -> None:
        """Continue from a state that `dropout_state` gave, on every device of the engine it came from.

        Raises:
            ArgumentTypeError: not a `DropoutState`.
        """
        if not isinstance(state, DropoutState):
            raise ArgumentTypeError("state", "a DropoutState", type(state))
        self._dropouts.start_from(state)
        self._kinds.clear()  # they keep the dropout that moved so far

    def _dropout_on(self, engine: Engine) -> Dropout:
        return self._dropouts.on(engine)

    def prepare(
        self,
        T: int,
        B: int,
        *,
        is_training: bool = False,
        sequence_lengths: Sequence[int] | None = None,
        time_major: bool = True,
        device: str | None = None,
    ) -> Plan:
        """Make what one kind of call needs, once: sizes are asked and native objects made here, not in the calls.

        Raises:
            ArgumentError: a bad size or length, or on cuDNN a batch that takes more than one native call.
            EngineError: no engine runs on `device`.
        """
        schedule = Schedule(
            check_int("T", T, 1, INT32_MAX),
            check_int("B", B, 1, INT32_MAX),
            check_lengths(sequence_lengths, T, B),
            check_bool("time_major", time_major),
        )
        engine = engine_for(_device_name(device))
        training = check_bool("is_training", is_training)
        dropout = self._dropout_on(engine) if training and self._drops else None
        native = engine.plan(Batch(self.spec, schedule, training, dropout))
        return Plan(engine, self.spec, schedule, native, training)

    def memory(
        self,
        T: int,
        B: int,
        is_training: bool,
        checkpoint_every: int | None = None,
        *,
        device: str | None = None,
    ) -> Memory:
        """Say what a call on T steps of B sequences takes in memory beside its arguments, before anything is allocated.

        Sequences are taken as T steps long, and data as time-major. With `checkpoint_every` a forward keeps only
        states, every so many steps, and backward runs each chunk again: time rises by about a forward, and the reserve
        falls from all steps to one chunk's. The NumPy engine makes a chunk of whole blocks of some 512 steps times
        sequences, so that gradients have the same bits as without; smaller ones would save next to nothing. Where
        both directions run, what goes from layer to layer is kept as well. On "cuda" cuDNN is asked, and None is
        the NumPy engine: their figures differ.

        Raises:
            ArgumentError: a bad size, or `checkpoint_every` without training.
            EngineError: no engine runs on `device`.
        """
        training = check_bool("is_training", is_training)
        every = None if checkpoint_every is None else _check_every(checkpoint_every, keeps=training)
        schedule = Schedule(check_int("T", T, 0, INT32_MAX), check_int("B", B, 0, INT32_MAX))
        engine = engine_for(_device_name(device))
        dropout = self._dropout_on(engine) if training and self._drops else None
        return engine.memory(Batch(self.spec, schedule, training, dropout, every))

    if TYPE_CHECKING:  # what each cell has in its own words, for a checker that knows no more than that it is an op

        def forward(self, input_data: ArrayT, *arguments: Any, **keywords: Any) -> Forward[ArrayT]: ...

        def __call__(self, input_data: ArrayT, *arguments: Any, **keywords: Any) -> tuple[ArrayT, ...]: ...

    @property
    def _drops(self) -> bool:
        return self.spec.dropout > 0 and self.spec.num_layers > 1

    def run(
        self,
        x: ArrayT,
        hx: Any,
        cx: Any,
        params: Any,
        is_training: Any,
        *,
        sequence_lengths: Any,
        time_major: Any,
        keep_reserve: Any,
        checkpoint_every: Any = None,
        names: Names | None = None,
        returns: type[Forward[Any]] = Forward,
    ) -> Forward[ArrayT]:
        """Check the arguments of a forward, whichever cell, and run it; the subclasses' `forward` documents them."""
        spec, names = self.spec, names or OP_NAMES
        is_training = check_bool(names.training, is_training)
        time_major = check_bool("time_major", time_major)
        keep_reserve = is_training if keep_reserve is None else check_bool("keep_reserve", keep_reserve)
        every = None if checkpoint_every is None else _check_every(checkpoint_every, keeps=keep_reserve)
        kind = _arrays.kind_of(names.x, x)
        libraries, engine = _arrays.libraries_of(x, hx, cx, params), engine_for(kind.device)
        with _arrays.streams(engine, kind.library, libraries):
            shape = x.shape
            if len(shape) != 3 or shape[2] != spec.input_size:
                axes = "[T, B, input_size]" if time_major else "[B, T, input_size]"
                raise ArgumentError(names.x, f"{axes} with input_size={spec.input_size}", tuple(shape), aspect="shape")
            T, B = shape[:2] if time_major else shape[1::-1]
            lengths = check_lengths(sequence_lengths, T, B)
            dropout = self._dropout_on(engine) if is_training and self._drops else None
            key = engine, T, B, lengths is not None, time_major, keep_reserve, dropout, every, names
            take, forward, schedule = self._kinds.get(key) or self._kinds.keep(key, self._kind(*key))
            inputs, at = take(params, x, hx, cx)
            if lengths is not None:
                schedule = Schedule(T, B, lengths, time_major)
            results = forward(schedule, inputs, at)
            return returns(Call(engine, spec, take.slots, kind, libraries, inputs), *results)

    def _kind(
        self, engine: Engine, T: int, B: int, ragged: bool, time_major: bool, keeps: bool,
        dropout: Dropout | None, every: int | None, names: Names,
    ) -> Kind:  # fmt: skip
        """Make what calls of a kind have in common."""
        schedule = Schedule(T, B, None, time_major)
        wanted = slots(self.spec, schedule, engine.layout(self.spec).size)
        take = Taker(engine, self.spec, wanted, {name: getattr(names, name, name) for name in INPUTS})
        like = schedule.hardly_ragged() if ragged else schedule
        return Kind(take, engine.forward(Batch(self.spec, like, keeps, dropout, every)), schedule)


def _device_name(device: str | None) -> str:
    return "cpu" if device is None else _arrays.check_device(device)


def _check_every(value: Any, *, keeps: bool) -> int:
    every = check_int("checkpoint_every", value, 1, INT32_MAX)
    if not keeps:
        raise ArgumentError("checkpoint_every", "None: nothing is kept for a backward", every)
    return every
