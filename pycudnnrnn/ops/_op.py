"""The base class of all ops: the spec, params to and from canonical form, the dropout state, and the forward."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _arrays
from pycudnnrnn._arrays import ArrayT
from pycudnnrnn._checks import check_bool, check_int, warn, with_hints
from pycudnnrnn._recent import Recent
from pycudnnrnn.canonical import from_canonical, to_canonical
from pycudnnrnn.engines import Dropout, DropoutState, Engine, Memory, engine_for, on_callers_stream
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.ops import _chunks
from pycudnnrnn.ops._dropout import Dropouts
from pycudnnrnn.ops._forward import Call, Forward
from pycudnnrnn.ops._plan import Plan
from pycudnnrnn.ops._stream import Stream
from pycudnnrnn.ops._take import take_params
from pycudnnrnn.passes import CallConfig
from pycudnnrnn.schedule import Lengths, Schedule, check_lengths
from pycudnnrnn.spec import INT32_MAX, SEED_MAX, Direction, DType, InputMode, RNNMode, RNNSpec

if TYPE_CHECKING:
    from pycudnnrnn.convert import Canonical

KINDS_MAX: Final = 64
"""Most kinds of calls that an op remembers."""

NOT_THE_MODEL: Final = frozenset({"dropout", "seed", "algo", "math_type", "compute_dtype"})
"""Fields in which the specs of an op and of its `Canonical` may differ: they do not define the model."""

Scalar = TypeVar("Scalar", bound=np.generic)


class CudnnRNN:
    """The base class of the four ops. To make an op, use one of them or `from_spec`.

    Several threads may call one op at the same time. They share only its dropout state.
    """

    spec: RNNSpec
    """The RNN that the op runs."""

    def __init__(self, spec: RNNSpec) -> None:
        if spec.dropout and spec.num_layers == 1:
            warn(f"dropout={spec.dropout} has no effect with one layer: cuDNN drops between layers only")
        self.__setstate__({"spec": spec, "_dropouts": {}})

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes, also those of a subclass, with the dropout states as values."""
        attributes = {name: value for name, value in vars(self).items() if name != "_calls"}
        return attributes | {"_dropouts": {state.engine: state for state in self.dropout_states()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._dropouts = Dropouts(self.spec, state["_dropouts"])
        self._calls: Recent[_chunks.EagerCalls] = Recent(KINDS_MAX)

    def __repr__(self) -> str:
        arguments = repr(self.spec).partition(", ")[2]
        return f"ops.{type(self).__name__}({arguments}"

    @property
    def rnn_mode(self) -> RNNMode:
        """The cell."""
        return self.spec.mode

    @property
    def num_layers(self) -> int:
        """Number of layers, L."""
        return self.spec.num_layers

    @property
    def num_units(self) -> int:
        """Width of the gates and of the state, U."""
        return self.spec.num_units

    @property
    def input_size(self) -> int:
        """Width of the input, I."""
        return self.spec.input_size

    @property
    def input_mode(self) -> InputMode:
        """How layer 0 uses its input. Holds the choice that "auto_select" made."""
        return self.spec.input_mode

    @property
    def direction(self) -> Direction:
        """The direction or directions of each layer."""
        return self.spec.direction

    @property
    def num_dirs(self) -> int:
        """Number of directions, D: 1 or 2."""
        return self.spec.num_dirs

    @property
    def dtype(self) -> DType:
        """Type of data and params."""
        return self.spec.dtype

    def params_size(self, device: str | None = None) -> int:
        """Return the number of elements of the params buffer, padding included.

        Args:
            device: "cpu" for the NumPy engine, "cuda" or "cuda:<index>" for cuDNN. None: "cpu". Default: None.

        Raises:
            ArgumentError: a `device` that is none of these.
            EngineError: no engine runs on `device`.
            MissingDependencyError: a CUDA device without CuPy.

        Example:
            >>> from pycudnnrnn import ops
            >>> ops.CudnnLSTM(num_layers=1, num_units=8, input_size=4).params_size()
            448
        """
        return self.layout(device).size

    def layout(self, device: str | None = None) -> ParamLayout:
        """Return the layout of the params buffer: the place of each matrix and bias.

        Args:
            device: "cpu" for the layout by arithmetic, which the NumPy engine uses; "cuda" or "cuda:<index>" to ask
                cuDNN. None: "cpu". Default: None.

        Raises:
            ArgumentError: a `device` that is none of these.
            EngineError: no engine runs on `device`.
            MissingDependencyError: a CUDA device without CuPy.

        Example:
            >>> from pycudnnrnn import ops
            >>> layout = ops.CudnnLSTM(num_layers=1, num_units=8, input_size=4).layout()
            >>> layout.region(gate="forget", kind="weight", side="input").shape
            (8, 4)
        """
        return engine_for(_device_name(device)).layout(self.spec)

    @overload
    def init_params(self, seed: int | None = None, device: Literal["cpu"] | None = None) -> npt.NDArray[Any]: ...

    @overload
    def init_params(self, seed: int | None, device: str) -> Any: ...

    @overload
    def init_params(self, seed: int | None = None, *, device: str) -> Any: ...

    @with_hints
    def init_params(self, seed: int | None = None, device: str | None = None) -> Any:
        """Return a new params buffer, [params_size()]: weights Glorot-uniform for each gate matrix, biases 0.

        Args:
            seed: seed of the weights, from 0 to 2**64 - 1. The same seed gives the same weights in every layout. None:
                the op's seed. Default: None.
            device: where to make the buffer: "cpu" (a NumPy array), "cuda" or "cuda:<index>" (a CuPy array). None:
                "cpu". Default: None.

        Raises:
            ArgumentError: a seed outside its range.
            EngineError: no engine runs on `device`.
            MissingDependencyError: a CUDA device without CuPy.

        Example:
            >>> from pycudnnrnn import ops
            >>> params = ops.CudnnGRU(num_layers=1, num_units=8, input_size=4).init_params(seed=1)
            >>> params.shape, params.dtype
            ((336,), dtype('float32'))

        Source: Glorot and Bengio 2010. TF's layers also draw each canonical matrix separately.
        """
        seed = self.spec.seed if seed is None else check_int("seed", seed, 0, SEED_MAX)
        engine = engine_for(_device_name(device))
        layout = engine.layout(self.spec)
        params = _arrays.aligned((layout.size,), self.dtype.numpy, zeros=True)
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
        """Split a params buffer into separate weights and biases.

        Args:
            params: the flat buffer of all weights and biases, [params_size()].
            copy: True for new arrays, False for views into `params` if its library has views. Default: True.

        Returns:
            (weights, biases), two lists in the order of `layout().weights` and `layout().biases`. A weight is
            [output width, input width], a bias [output width].

        Raises:
            ArgumentError: an array that is not a params buffer of this op.

        Example:
            >>> from pycudnnrnn import ops
            >>> op = ops.CudnnGRU(num_layers=1, num_units=8, input_size=4)
            >>> weights, biases = op.params_to_canonical(op.init_params(seed=1))
            >>> len(weights), weights[0].shape, biases[0].shape
            (6, (8, 4), (8,))
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
    def canonical_to_params(self, weights: Canonical, biases: None = None, out: None = None) -> npt.NDArray[Any]: ...

    @overload
    def canonical_to_params(self, weights: Canonical, biases: None = None, *, out: ArrayT) -> ArrayT: ...

    @overload
    def canonical_to_params(self, weights: Sequence[Any], biases: Sequence[Any], out: ArrayT) -> ArrayT: ...

    @overload
    def canonical_to_params(self, weights: Sequence[Any], biases: Sequence[Any], out: Any = None) -> Any: ...

    def canonical_to_params(
        self, weights: Sequence[Any] | Canonical, biases: Sequence[Any] | None = None, out: Any = None
    ) -> Any:
        """Join weights and biases into one params buffer. This is the inverse of `params_to_canonical`.

        Args:
            weights: the weights in the order of `layout().weights`, each in its region's shape or flat. Or a
                `convert.Canonical`, which contains the weights and the biases.
            biases: the biases in the order of `layout().biases`. None with a `Canonical`. Default: None.
            out: the buffer to write to, [params_size()]; padding becomes 0. None: a new buffer, of the kind and on the
                device of the first weight. Default: None.

        Returns:
            `out`, or the new buffer.

        Raises:
            ArgumentError: a wrong number of arrays, a wrong shape or dtype, arrays on several devices, an `out` that
                cannot hold them, or a `Canonical` of another model. Nothing is written in these cases.
            ArgumentTypeError: weights without biases.

        Example:
            >>> from pycudnnrnn import ops
            >>> op = ops.CudnnGRU(num_layers=1, num_units=8, input_size=4)
            >>> weights, biases = op.params_to_canonical(op.init_params(seed=1))
            >>> op.canonical_to_params(weights, biases).shape
            (336,)
            >>> from pycudnnrnn import convert
            >>> canonical = convert.Canonical(op.spec, weights, biases)
            >>> op.canonical_to_params(canonical).shape
            (336,)
        """
        weights, biases = self._lists(weights, biases)
        if not len(weights):
            raise ArgumentError("weights", f"{len(self.layout().weights)} arrays", "0 arrays")
        kind = _arrays.kind_of("weights[0]", weights[0])
        engine = engine_for(kind.device)
        xp, layout = engine.xp, engine.layout(self.spec)
        with on_callers_stream(engine, kind.library, _arrays.libraries_of(*weights, *biases, out)):
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

    def _lists(
        self, weights: Sequence[Any] | Canonical, biases: Sequence[Any] | None
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the given lists of weights and biases, or those of a `Canonical` of this model."""
        if biases is not None and isinstance(weights, (list, tuple)):
            return weights, biases
        from pycudnnrnn.convert import Canonical  # noqa: PLC0415  slow to import, and rarely needed

        if not isinstance(weights, Canonical):
            if biases is None:
                raise ArgumentTypeError("biases", "a list of arrays (only a Canonical contains both)", None)
            return weights, biases
        if biases is not None:
            raise ArgumentError("biases", "None with a Canonical, which contains them", type(biases))
        for field in dataclasses.fields(self.spec):
            expected, got = getattr(self.spec, field.name), getattr(weights.spec, field.name)
            if field.name not in NOT_THE_MODEL and expected != got:
                expected, got = (str(value) if isinstance(value, StrEnum) else value for value in (expected, got))
                raise ArgumentError("canonical", f"{field.name}={expected!r}, as this op", f"{field.name}={got!r}")
        return weights.weights, weights.biases

    def _canonical(self, name: str, array: Any, engine: Engine) -> Any:
        native = _arrays.to_engine(name, array, engine.device, engine.xp)
        _arrays.check_dtype(name, native, self.dtype.numpy)
        return native

    def move_params(self, params: Any, device: str) -> Any:
        """Return a new buffer with the same weights and biases, in the layout of another device.

        Args:
            params: the flat buffer of all weights and biases, [params_size()], in the layout of the device it is on.
            device: "cpu", "cuda" or "cuda:<index>".

        Returns:
            A NumPy array for "cpu", a CuPy array for a CUDA device.

        Raises:
            ArgumentError: an array that is not a params buffer of this op.
            EngineError: no engine runs on `device`.
            MissingDependencyError: a CUDA device without CuPy.
        """
        target, kind = engine_for(_arrays.check_device(device)), _arrays.kind_of("params", params)
        source = engine_for(kind.device)
        layout = target.layout(self.spec)
        with on_callers_stream(source, kind.library, frozenset({kind.library, "cupy"})):
            native = take_params(source, self.spec, "params", params)
            host = _arrays.move(native, np)  # so that the two devices' streams need no order
            weights, biases = to_canonical(host, source.layout(self.spec), copy=False)
            moved = np.empty(layout.size, self.dtype.numpy)
            from_canonical(weights, biases, layout, moved)
        with target.active():
            return _arrays.move(moved, target.xp)

    def dropout_state(self, device: str | None = None) -> DropoutState:
        """Return the dropout state of a device. Each device has its own position.

        Args:
            device: "cpu" for the NumPy engine, "cuda" or "cuda:<index>" for cuDNN. None: "cpu". Default: None.

        Raises:
            ArgumentError: a `device` that is none of these.
            EngineError: no engine runs on `device`.
            MissingDependencyError: a CUDA device without CuPy.

        Example:
            >>> from pycudnnrnn import ops
            >>> op = ops.CudnnGRU(num_layers=2, num_units=8, input_size=4, dropout=0.5, seed=7)
            >>> op.dropout_state()
            DropoutState(engine='numpy', seed=7, position=0, data=b'')
        """
        return self._dropouts.on(engine_for(_device_name(device))).state()

    def dropout_states(self) -> list[DropoutState]:
        """Return one dropout state for each engine that has one. Copies and checkpoints keep these.

        Raises:
            StateError: two devices of one engine have different states, for example after training on both.
        """
        return self._dropouts.states()

    def set_dropout_state(self, state: DropoutState) -> None:
        """Continue dropout from a state of `dropout_state`, on all devices of the state's engine.

        Args:
            state: the state to continue from: the next training forward takes the masks that followed it. Plans and
                graphs for training that were made before raise an error.

        Raises:
            ArgumentTypeError: not a `DropoutState`.
        """
        if not isinstance(state, DropoutState):
            raise ArgumentTypeError("state", "a DropoutState", type(state))
        self._dropouts.start_from(state)
        self._calls.clear()  # they hold the old dropout

    def _dropout_on(self, engine: Engine) -> Dropout | None:
        """Return the dropout of a training call; None if this op drops nothing."""
        return self._dropouts.on(engine) if self.spec.dropout and self.spec.num_layers > 1 else None

    @with_hints
    def prepare(
        self, T: int, B: int, *, is_training: bool = False, sequence_lengths: Lengths | None = None,
        time_major: bool = True, device: str | None = None,
    ) -> Plan:  # fmt: skip
        """Prepare repeated calls with fixed sizes. On cuDNN the calls of the plan then allocate no memory.

        Args:
            T: number of steps, at least 1.
            B: number of sequences, at least 1.
            is_training: whether dropout acts and backward passes can follow. Default: False.
            sequence_lengths: number of steps of each sequence: a list or NumPy array of B integers from 0 to T. None:
                all sequences have T steps. Default: None.
            time_major: whether the input and the output are [T, B, ...] or, with False, [B, T, ...]. Default: True.
            device: "cpu" for the NumPy engine, "cuda" or "cuda:<index>" for cuDNN. None: "cpu". Default: None.

        Returns:
            A `Plan`, with cuDNN's sizes queried, its native objects made and, with `algo="auto"`, the algorithm chosen.

        Raises:
            ArgumentError: a size or length outside its range, or on cuDNN a batch that needs several native calls.
            EngineError: no engine runs on `device`.
            MissingDependencyError: a CUDA device without CuPy.

        Example:
            >>> from pycudnnrnn import ops
            >>> plan = ops.CudnnGRU(num_layers=1, num_units=8, input_size=4).prepare(T=20, B=3)
            >>> plan.algo, plan.reserve_nbytes
            (<Algorithm.STANDARD: 'standard'>, 0)
        """
        schedule = Schedule(
            check_int("T", T, 1, INT32_MAX),
            check_int("B", B, 1, INT32_MAX),
            check_lengths(sequence_lengths, T, B),
            check_bool("time_major", time_major),
        )
        engine, training = engine_for(_device_name(device)), check_bool("is_training", is_training)
        dropout = self._dropout_on(engine) if training else None
        native = engine.plan(CallConfig(self.spec, schedule, training, dropout))
        check = None if dropout is None else functools.partial(self._dropouts.check_runs, dropout, engine)
        return Plan(engine, self.spec, schedule, native, training, check)

    @with_hints
    def memory(
        self, T: int, B: int, is_training: bool = True, checkpoint_every: int | None = None, *,
        sequence_lengths: Lengths | None = None, device: str | None = None,
    ) -> Memory:  # fmt: skip
        """Return the memory that a call takes in addition to its arguments, without running it.

        The figures are for time-major data.

        Args:
            T: number of steps.
            B: number of sequences.
            is_training: whether a backward pass follows; its memory then counts as well. Default: True.
            checkpoint_every: number of steps between kept states, as in `forward`: the reserve falls from all steps to
                one chunk of steps. None: keep the reserve. Default: None.
            sequence_lengths: number of steps of each sequence: a list or NumPy array of B integers from 0 to T. None:
                all sequences have T steps. Default: None.
            device: "cpu" for the NumPy engine, "cuda" or "cuda:<index>" to ask cuDNN; their figures differ. None:
                "cpu". Default: None.

        Raises:
            ArgumentError: a size or length outside its range, or `checkpoint_every` without training.
            EngineError: no engine runs on `device`.
            MissingDependencyError: a CUDA device without CuPy.

        Example:
            >>> from pycudnnrnn import ops
            >>> op = ops.CudnnLSTM(num_layers=2, num_units=32, input_size=16)
            >>> full = op.memory(T=4000, B=8, is_training=True)
            >>> less = op.memory(T=4000, B=8, is_training=True, checkpoint_every=64)
            >>> less.total_nbytes < full.total_nbytes / 2
            True
        """
        training = check_bool("is_training", is_training)
        every = None if checkpoint_every is None else _check_every(checkpoint_every, keep_reserve=training)
        T, B = check_int("T", T, 0, INT32_MAX), check_int("B", B, 0, INT32_MAX)
        schedule = Schedule(T, B, check_lengths(sequence_lengths, T, B))
        engine = engine_for(_device_name(device))
        dropout = self._dropout_on(engine) if training else None
        return _chunks.memory(engine, CallConfig(self.spec, schedule, training, dropout), every)

    if TYPE_CHECKING:  # each op defines these; a type checker needs them where it only knows that it is an op

        def forward(self, input_data: ArrayT, *arguments: Any, **keywords: Any) -> Forward[ArrayT]: ...

        def __call__(self, input_data: ArrayT, *arguments: Any, **keywords: Any) -> tuple[ArrayT, ...]: ...

    def stream(self, params: Any, initial_state: tuple[Any, ...] | None = None) -> Stream:
        """Return a `Stream`, which runs this op on input that comes piece by piece.

        Args:
            params: the params buffer, as in `forward`. The stream keeps it.
            initial_state: the states before the first piece: the pair (h, c) for the LSTM, the tuple (h,) for the
                others, with the shapes of `input_h` and `input_c` of `forward`. None: zeros. Default: None.

        Raises:
            ArgumentError: the op is bidirectional: its backward direction starts at the end of the input. Or a tuple of
                another length.
            ArgumentTypeError: `initial_state` is not a tuple.

        Example:
            >>> import numpy as np
            >>> from pycudnnrnn import ops
            >>> op = ops.CudnnGRU(1, num_units=8, input_size=3)
            >>> stream = op.stream(op.init_params(seed=1))
            >>> [stream(np.ones((4, 3), "float32")).shape for _ in range(3)]
            [(4, 8), (4, 8), (4, 8)]
        """
        return Stream(functools.partial(_model, self, params), f"ops.{type(self).__name__}", initial_state, self.spec)

    def run(
        self, x: Any, hx: Any, cx: Any, params: Any, is_training: Any, sequence_lengths: Any = None,
        time_major: Any = True, *, keep_reserve: Any = False, checkpoint_every: Any = None,
    ) -> tuple[Call, Any, Any, Any]:  # fmt: skip
        """Run a forward of any cell. Users call `forward`, which passes its arguments on.

        Args:
            x: the input data, as `input_data` of `forward`.
            hx: the initial h, as `input_h` of `forward`.
            cx: the initial c, as `input_c` of `forward`; None if the cell has none.
            params: as in `forward`.
            is_training: as in `forward`.
            sequence_lengths: as in `forward`. Default: None.
            time_major: as in `forward`. Default: True.
            keep_reserve: as in `forward`. Default: False.
            checkpoint_every: as in `forward`. Default: None.

        Returns:
            (call, output, output_h, output_c): what a `Forward` is made of, and the three results by themselves.
        """
        spec = self.spec
        if type(is_training) is not bool and _arrays.library_of(is_training) and not spec.has_cell_state:
            expected = f"a Python bool: {str(spec.mode)!r} has no input_c, its arrays are (input_data, input_h, params)"
            raise ArgumentTypeError("is_training", expected, f"an array of shape {tuple(is_training.shape)}")
        is_training = check_bool("is_training", is_training)
        time_major = check_bool("time_major", time_major)
        keep_reserve = is_training if keep_reserve is None else check_bool("keep_reserve", keep_reserve)
        every = None if checkpoint_every is None else _check_every(checkpoint_every, keep_reserve=keep_reserve)
        kind = _arrays.kind_of("input_data", x)
        engine = engine_for(kind.device)
        libraries = frozenset[str]() if engine.device == "cpu" else _arrays.libraries_of(x, hx, cx, params)
        with on_callers_stream(engine, kind.library, libraries):
            shape = x.shape
            if len(shape) != 3 or shape[2] != spec.input_size:
                axes = "[T, B, input_size]" if time_major else "[B, T, input_size]"
                expected = f"{axes} with input_size={spec.input_size}"
                raise ArgumentError("input_data", expected, tuple(shape), aspect="shape")
            T, B = shape[:2] if time_major else shape[1::-1]
            lengths = None if sequence_lengths is None else check_lengths(sequence_lengths, T, B)
            dropout = self._dropout_on(engine) if is_training else None
            key = engine, T, B, lengths is not None, time_major, keep_reserve, dropout, every
            calls = self._calls.get(key)
            schedule = calls.schedule if calls and lengths is None else Schedule(T, B, lengths, time_major)
            if calls is None:
                like = schedule if lengths is None else schedule.longest_ragged()
                calls = _chunks.EagerCalls(engine, CallConfig(spec, like, keep_reserve, dropout), every)
                self._calls.keep(key, calls)
            inputs, at = calls.take(params, x, hx, cx)
            y, hy, cy, reserve = calls.forward(schedule, inputs, at)
            call = Call(engine, spec, calls.take.slots, kind, libraries, inputs | {"y": y}, reserve)
            if kind.library not in {"numpy", "cupy"}:
                y, hy, cy = map(call.to_caller, (y, hy, cy))
            return call, y, hy, cy


def _model(op: CudnnRNN, params: Any, _inputs: Any) -> tuple[CudnnRNN, Any]:
    """Return the model of a stream; see `Stream`."""
    return op, params


def _device_name(device: str | None) -> str:
    return "cpu" if device is None else _arrays.check_device(device)


def _check_every(value: Any, *, keep_reserve: bool) -> int:
    every = check_int("checkpoint_every", value, 1, INT32_MAX)
    if not keep_reserve:
        raise ArgumentError("checkpoint_every", "None: nothing is kept for a backward", every)
    return every
