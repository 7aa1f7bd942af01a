"""TF 1.2-1.4's stateless model classes over an opaque `params` buffer, with gradients.

An op holds a description and a dropout position, never params: the caller owns the flat buffer and passes it to each
call. The engine follows the arrays. TF's functions stand beside the classes (`functional_ops`).
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from pycudnnrnn import _arrays, canonical
from pycudnnrnn._checks import check_int
from pycudnnrnn._forward import Call, Forward, Gradients, check_params
from pycudnnrnn.engines import DropoutState, engine_for
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.schedule import Schedule, check_lengths
from pycudnnrnn.spec import (
    SEED_MAX,
    Algorithm,
    BiasMode,
    Direction,
    DType,
    InputMode,
    RNNMode,
    RNNSpec,
)

__all__ = [
    "CudnnGRU",
    "CudnnLSTM",
    "CudnnRNN",
    "CudnnRNNRelu",
    "CudnnRNNTanh",
    "DropoutState",
    "Forward",
    "Gradients",
    "from_spec",
]


class CudnnRNN:
    """What the four ops share. Use `CudnnLSTM`, `CudnnGRU`, `CudnnRNNTanh`, `CudnnRNNRelu`, or `from_spec`.

    An op may be called from several threads at once; the dropout position is the one thing they share.
    """

    rnn_mode: ClassVar[RNNMode]
    spec: RNNSpec

    def _setup(self, spec: RNNSpec) -> None:
        if spec.dropout and spec.num_layers == 1:
            warnings.warn(
                f"dropout={spec.dropout} has no effect with one layer: cuDNN drops between layers only", stacklevel=3
            )
        self.__setstate__({"spec": spec, "dropout": {}})

    def __getstate__(self) -> dict[str, Any]:
        return {"spec": self.spec, "dropout": dict(self._dropout)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.spec = state["spec"]
        self._dropout: dict[str, DropoutState] = state["dropout"]
        self._dropout_lock = threading.Lock()

    def __repr__(self) -> str:
        arguments = repr(self.spec).partition(", ")[2]
        return f"ops.{type(self).__name__}({arguments}"

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

    def init_params(self, seed: int | None = None, device: str | None = None) -> Any:
        """Return a new params buffer: glorot-uniform by gate matrix, biases 0.

        The same seed gives the same matrices in every layout; None stands for the op's own seed.

        Shapes:
            [params_size].

        Source: Glorot and Bengio 2010; TF's layers draw each canonical matrix by itself, as here.
        """
        seed = self.spec.seed if seed is None else check_int("seed", seed, 0, SEED_MAX)
        layout = self.layout(device)
        params = np.zeros(layout.size, self.dtype.numpy)
        for region in layout.weights:
            rng = np.random.default_rng([seed, region.pseudo_layer, region.lin_layer_id])
            bound = (6 / sum(region.shape)) ** 0.5
            params[region.slice] = rng.uniform(-bound, bound, region.size)
        return params

    def params_to_canonical(self, params: Any, copy: bool = True) -> tuple[list[Any], list[Any]]:
        """Split a params buffer into (weights, biases), lists in cuDNN's order; `copy=False` gives views.

        Shapes:
            params: [params_size]; weights: [rows = output, cols = input]; biases: [num_units].
        """
        kind = _arrays.kind_of("params", params)
        layout = engine_for(kind.device).layout(self.spec)
        check_params("params", params, kind, self.spec, layout.size)
        return canonical.to_canonical(params, layout, copy=copy)

    def canonical_to_params(self, weights: Sequence[Any], biases: Sequence[Any], out: Any = None) -> Any:
        """Put canonical lists into one params buffer, `out` or a new one where the arrays live; padding gets 0.

        Raises:
            ArgumentError: a wrong number of arrays, a wrong shape or dtype, arrays of several kinds, or an `out` that
                cannot hold them. Nothing has been written then.
        """
        if not len(weights):
            raise ArgumentError("weights", f"{len(self.layout().weights)} arrays", "0 arrays")
        kind = _arrays.kind_of("weights[0]", weights[0])
        layout = engine_for(kind.device).layout(self.spec)
        weights = [_arrays.to_engine(f"weights[{i}]", array, kind, self.dtype) for i, array in enumerate(weights)]
        biases = [_arrays.to_engine(f"biases[{i}]", array, kind, self.dtype) for i, array in enumerate(biases)]
        if out is None:
            native = np.empty(layout.size, self.dtype.numpy)
        else:
            native = check_params("out", out, kind, self.spec, layout.size, writable=True)
            weights = [a.copy() if np.may_share_memory(a, native) else a for a in weights]
            biases = [a.copy() if np.may_share_memory(a, native) else a for a in biases]
        canonical.from_canonical(weights, biases, layout, native)
        return _arrays.to_caller(native, kind) if out is None else out

    def move_params(self, params: Any, device: str) -> Any:
        """Return a new buffer with the same weights in the layout of `device`, through canonical form.

        Raises:
            EngineError: no engine runs on `device`.
        """
        engine_for(_device_name(device))
        return self.canonical_to_params(*self.params_to_canonical(params, copy=False))

    def dropout_state(self, device: str | None = None) -> DropoutState:
        """Return where this op's dropout stands on the engine of `device`."""
        name = engine_for(_device_name(device)).name
        with self._dropout_lock:
            return self._dropout.get(name, DropoutState(name, self.spec.seed))

    def set_dropout_state(self, state: DropoutState) -> None:
        """Continue from a state that `dropout_state` gave, on the engine it came from.

        Raises:
            ArgumentTypeError: not a `DropoutState`.
        """
        if not isinstance(state, DropoutState):
            raise ArgumentTypeError("state", "a DropoutState", type(state))
        with self._dropout_lock:
            self._dropout[state.engine] = state

    def _next_dropout(self, engine: str) -> DropoutState:
        with self._dropout_lock:
            state = self._dropout.get(engine, DropoutState(engine, self.spec.seed))
            self._dropout[engine] = DropoutState(engine, state.seed, state.position + 1)
        return state

    def _forward(
        self,
        x: Any,
        hx: Any,
        cx: Any,
        params: Any,
        is_training: Any,
        *,
        sequence_lengths: Any,
        time_major: Any,
        keep_reserve: Any,
    ) -> Forward:
        spec = self.spec
        is_training = _check_bool("is_training", is_training)
        time_major = _check_bool("time_major", time_major)
        keep_reserve = is_training if keep_reserve is None else _check_bool("keep_reserve", keep_reserve)
        kind = _arrays.kind_of("input_data", x)
        engine = engine_for(kind.device)
        x = _arrays.to_engine("input_data", x, kind, spec.dtype)
        if x.ndim != 3 or x.shape[2] != spec.input_size:
            axes = "[T, B, input_size]" if time_major else "[B, T, input_size]"
            raise ArgumentError("input_data", f"{axes} with input_size={spec.input_size}", x.shape, aspect="shape")
        T, B = x.shape[:2] if time_major else x.shape[1::-1]
        schedule = Schedule(T, B, check_lengths(sequence_lengths, T, B), time_major)
        params = check_params("params", params, kind, spec, engine.layout(spec).size)
        call = Call(engine, spec, schedule, kind, params)
        hx, cx = call.states("input_h", hx, "input_c", cx)
        drops = is_training and spec.dropout > 0 and spec.num_layers > 1
        dropout = self._next_dropout(engine.name) if drops else None
        results = engine.forward(spec, schedule, params, x, hx, cx, dropout=dropout, keep_reserve=keep_reserve)
        return Forward(call, *results)


class CudnnLSTM(CudnnRNN):
    """The LSTM: TF's `CudnnLSTM` op, with cuDNN's projection, cell clipping and bias modes.

    A number in the place of `dtype` is read as TF r1.2's order (..., direction, dropout, seed).

    Raises:
        ArgumentError: a value, or a combination, that cuDNN has no RNN for.
        ArgumentTypeError: a value of the wrong type.

    Source: tf.contrib.cudnn_rnn r1.4 for the signature, cudnn_adv.h (9.x) for what follows `seed`.
    """

    rnn_mode = RNNMode.LSTM

    def __init__(
        self,
        num_layers: int,
        num_units: int,
        input_size: int,
        input_mode: str = InputMode.LINEAR_INPUT,
        direction: str = Direction.UNIDIRECTIONAL,
        dtype: Any = DType.FLOAT32,
        dropout: float = 0.0,
        seed: int = 0,
        num_proj: int | None = None,
        *,
        bias_mode: str = BiasMode.DOUBLE,
        cell_clip: float | tuple[float, float] | None = None,
        algo: str = Algorithm.STANDARD,
        math_type: str | None = None,
        compute_dtype: Any = None,
    ) -> None:
        dtype, dropout, seed = _tf12_order(dtype, dropout, seed)
        self._setup(
            RNNSpec(
                self.rnn_mode, num_layers, num_units, input_size, input_mode, direction, dtype, dropout, seed,
                num_proj, bias_mode, cell_clip, algo, math_type, compute_dtype,
            )
        )  # fmt: skip

    @property
    def num_proj(self) -> int | None:
        return self.spec.num_proj

    def forward(
        self,
        input_data: Any,
        input_h: Any,
        input_c: Any,
        params: Any,
        is_training: bool = True,
        *,
        sequence_lengths: Sequence[int] | None = None,
        time_major: bool = True,
        keep_reserve: bool | None = None,
    ) -> Forward:
        """Run the LSTM and keep what a backward needs, unless `keep_reserve` (default: `is_training`) is False.

        `input_h` and `input_c` may be None: zeros. Dropout acts only with `is_training`.

        Shapes:
            input_data: [T, B, I], or [B, T, I] with `time_major=False`; input_h: [L * D, B, P or U];
            input_c: [L * D, B, U]; params: [params_size]; output: as input_data with D * (P or U); states as given.

        Raises:
            ArgumentError: a wrong shape, dtype or device, or a bad length.
            EngineError: no engine runs where the arrays are.
        """
        return self._forward(
            input_data, input_h, input_c, params, is_training,
            sequence_lengths=sequence_lengths, time_major=time_major, keep_reserve=keep_reserve,
        )  # fmt: skip

    def __call__(
        self,
        input_data: Any,
        input_h: Any,
        input_c: Any,
        params: Any,
        is_training: bool = True,
        *,
        sequence_lengths: Sequence[int] | None = None,
        time_major: bool = True,
    ) -> tuple[Any, Any, Any]:
        """Return (output, output_h, output_c); `forward` says more, and gives gradients."""
        fwd = self._forward(
            input_data, input_h, input_c, params, is_training,
            sequence_lengths=sequence_lengths, time_major=time_major, keep_reserve=False,
        )  # fmt: skip
        return fwd.output, fwd.output_h, fwd.output_c


class _WithoutCellState(CudnnRNN):
    """An op without c.

    A number in the place of `dtype` is read as TF r1.2's order (..., direction, dropout, seed).

    Raises:
        ArgumentError: a value, or a combination, that cuDNN has no RNN for.
        ArgumentTypeError: a value of the wrong type.

    Source: tf.contrib.cudnn_rnn r1.4 for the signature, cudnn_adv.h (9.x) for what follows `seed`.
    """

    def __init__(
        self,
        num_layers: int,
        num_units: int,
        input_size: int,
        input_mode: str = InputMode.LINEAR_INPUT,
        direction: str = Direction.UNIDIRECTIONAL,
        dtype: Any = DType.FLOAT32,
        dropout: float = 0.0,
        seed: int = 0,
        *,
        bias_mode: str = BiasMode.DOUBLE,
        algo: str = Algorithm.STANDARD,
        math_type: str | None = None,
        compute_dtype: Any = None,
    ) -> None:
        dtype, dropout, seed = _tf12_order(dtype, dropout, seed)
        self._setup(
            RNNSpec(
                self.rnn_mode, num_layers, num_units, input_size, input_mode, direction, dtype, dropout, seed,
                bias_mode=bias_mode, algo=algo, math_type=math_type, compute_dtype=compute_dtype,
            )
        )  # fmt: skip

    def forward(
        self,
        input_data: Any,
        input_h: Any,
        params: Any,
        is_training: bool = True,
        *,
        sequence_lengths: Sequence[int] | None = None,
        time_major: bool = True,
        keep_reserve: bool | None = None,
    ) -> Forward:
        """Run the RNN and keep what a backward needs, unless `keep_reserve` (default: `is_training`) is False.

        `input_h` may be None: zeros. Dropout acts only with `is_training`.

        Shapes:
            input_data: [T, B, I], or [B, T, I] with `time_major=False`; input_h: [L * D, B, U]; params: [params_size];
            output: as input_data with D * U; output_h: as input_h.

        Raises:
            ArgumentError: a wrong shape, dtype or device, or a bad length.
            EngineError: no engine runs where the arrays are.
        """
        return self._forward(
            input_data, input_h, None, params, is_training,
            sequence_lengths=sequence_lengths, time_major=time_major, keep_reserve=keep_reserve,
        )  # fmt: skip

    def __call__(
        self,
        input_data: Any,
        input_h: Any,
        params: Any,
        is_training: bool = True,
        *,
        sequence_lengths: Sequence[int] | None = None,
        time_major: bool = True,
    ) -> tuple[Any, Any]:
        """Return (output, output_h); `forward` says more, and gives gradients."""
        fwd = self._forward(
            input_data, input_h, None, params, is_training,
            sequence_lengths=sequence_lengths, time_major=time_major, keep_reserve=False,
        )  # fmt: skip
        return fwd.output, fwd.output_h


class CudnnGRU(_WithoutCellState):
    __doc__ = f"The GRU, reset after the recurrent product: TF's `CudnnGRU` op.\n{_WithoutCellState.__doc__}"
    rnn_mode = RNNMode.GRU


class CudnnRNNTanh(_WithoutCellState):
    """The tanh RNN: TF's `CudnnRNNTanh` op."""

    rnn_mode = RNNMode.RNN_TANH


class CudnnRNNRelu(_WithoutCellState):
    """The relu RNN: TF's `CudnnRNNRelu` op."""

    rnn_mode = RNNMode.RNN_RELU


def from_spec(spec: RNNSpec) -> CudnnRNN:
    """Return the op that runs `spec`.

    Raises:
        ArgumentTypeError: not an `RNNSpec`.
    """
    if not isinstance(spec, RNNSpec):
        raise ArgumentTypeError("spec", "an RNNSpec", type(spec))
    kinds: tuple[type[CudnnRNN], ...] = (CudnnLSTM, CudnnGRU, CudnnRNNTanh, CudnnRNNRelu)
    kind = next(k for k in kinds if k.rnn_mode is spec.mode)
    op = kind.__new__(kind)
    op._setup(spec)  # noqa: SLF001
    return op


def _tf12_order(dtype: Any, dropout: Any, seed: Any) -> tuple[Any, Any, Any]:
    """Read (dropout, seed) from where TF r1.2 had them; the place of dtype holds a number then."""
    if isinstance(dtype, bool) or not isinstance(dtype, (int, float, np.number)):
        return dtype, dropout, seed
    if dropout and seed:
        raise ArgumentError("dtype", "a dtype, or TF r1.2's order (dropout, seed) with no third number", dtype)
    return DType.FLOAT32, dtype, seed or dropout or 0


def _device_name(device: str | None) -> str:
    if device is None:
        return "cpu"
    name = str(device)
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ArgumentError("device", "'cpu', 'cuda' or 'cuda:<index>'", repr(device))
    return name


def _check_bool(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentTypeError(name, "a Python bool", repr(value))
    return bool(value)
