"""TF 1.2-1.4's stateless model classes over an opaque `params` buffer, with gradients, and TF's functions beside them.

An op holds a description and a dropout position, never params: the caller owns the flat buffer and passes it to each
call. The engine follows the arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from pycudnnrnn._arrays import ArrayT
from pycudnnrnn._keywords import told
from pycudnnrnn.engines import DropoutState, Memory
from pycudnnrnn.engines.cudnn.choices import AlgorithmChoice, AlgorithmTrial
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.ops._algorithms import algorithm_choices, load_algorithm_choices, save_algorithm_choices
from pycudnnrnn.ops._forward import Forward, Gradients
from pycudnnrnn.ops._functional import (
    cudnn_gru,
    cudnn_lstm,
    cudnn_rnn_canonical_to_opaque_params,
    cudnn_rnn_opaque_params_size,
    cudnn_rnn_opaque_params_to_canonical,
    cudnn_rnn_relu,
    cudnn_rnn_tanh,
)
from pycudnnrnn.ops._graph import Graph
from pycudnnrnn.ops._op import CudnnRNN
from pycudnnrnn.ops._plan import Plan
from pycudnnrnn.spec import Algorithm, BiasMode, Direction, DType, InputMode, RNNMode, RNNSpec

__all__ = [
    "AlgorithmChoice",
    "AlgorithmTrial",
    "CudnnGRU",
    "CudnnLSTM",
    "CudnnRNN",
    "CudnnRNNRelu",
    "CudnnRNNTanh",
    "DropoutState",
    "Forward",
    "Gradients",
    "Graph",
    "Memory",
    "Plan",
    "algorithm_choices",
    "cudnn_gru",
    "cudnn_lstm",
    "cudnn_rnn_canonical_to_opaque_params",
    "cudnn_rnn_opaque_params_size",
    "cudnn_rnn_opaque_params_to_canonical",
    "cudnn_rnn_relu",
    "cudnn_rnn_tanh",
    "from_spec",
    "load_algorithm_choices",
    "save_algorithm_choices",
]
__dir__ = __all__.copy


class CudnnLSTM(CudnnRNN):
    """The LSTM: TF's `CudnnLSTM` op, with cuDNN's projection, cell clipping and bias modes.

    `RNNSpec` says what its arguments mean; its `mode` is the class's. A number in place of `dtype` is read as TF r1.2's
    order (..., direction, dropout, seed).

    Raises:
        ArgumentError: a value, or a combination, that cuDNN has no RNN for.
        ArgumentTypeError: a value of the wrong type.

    Source: tf.contrib.cudnn_rnn r1.4 for the signature, cudnn_adv.h (9.x) for what follows `seed`.
    """

    _mode = RNNMode.LSTM

    @told
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
        super().__init__(
            RNNSpec(
                self._mode, num_layers, num_units, input_size, input_mode, direction, dtype, dropout, seed,
                num_proj, bias_mode, cell_clip, algo, math_type, compute_dtype,
            )
        )  # fmt: skip

    @property
    def num_proj(self) -> int | None:
        return self.spec.num_proj

    @told
    def forward(
        self,
        input_data: ArrayT,
        input_h: Any,
        input_c: Any,
        params: Any,
        is_training: bool = True,
        *,
        sequence_lengths: Sequence[int] | None = None,
        time_major: bool = True,
        keep_reserve: bool | None = None,
        checkpoint_every: int | None = None,
    ) -> Forward[ArrayT]:
        """Run the LSTM and keep what a backward needs, unless `keep_reserve` (default: `is_training`) is False.

        `input_h` and `input_c` may be None: zeros. Dropout acts only with `is_training`. With `checkpoint_every` only
        states are kept, every so many steps, and backward computes the rest again: see `memory`.

        Shapes:
            input_data: [T, B, I], or [B, T, I] with `time_major=False`; input_h: [L * D, B, P or U];
            input_c: [L * D, B, U]; params: [params_size]; output: as input_data with D * (P or U); states as given.

        Raises:
            ArgumentError: a wrong shape, dtype or device, or a bad length.
            EngineError: no engine runs where the arrays are.
        """
        return self.run(
            input_data, input_h, input_c, params, is_training,
            sequence_lengths=sequence_lengths, time_major=time_major, keep_reserve=keep_reserve,
            checkpoint_every=checkpoint_every,
        )  # fmt: skip

    @told
    def __call__(
        self,
        input_data: ArrayT,
        input_h: Any,
        input_c: Any,
        params: Any,
        is_training: bool = True,
        *,
        sequence_lengths: Sequence[int] | None = None,
        time_major: bool = True,
    ) -> tuple[ArrayT, ArrayT, ArrayT]:
        """Return (output, output_h, output_c); `forward` says more, and gives gradients."""
        fwd = self.run(
            input_data, input_h, input_c, params, is_training,
            sequence_lengths=sequence_lengths, time_major=time_major, keep_reserve=False,
        )  # fmt: skip
        return fwd.output, fwd.output_h, fwd.output_c


class _WithoutCellState(CudnnRNN):
    """An op without c.

    A number in place of `dtype` is read as TF r1.2's order (..., direction, dropout, seed).

    Raises:
        ArgumentError: a value, or a combination, that cuDNN has no RNN for.
        ArgumentTypeError: a value of the wrong type.

    Source: tf.contrib.cudnn_rnn r1.4 for the signature, cudnn_adv.h (9.x) for what follows `seed`.
    """

    _mode: ClassVar[RNNMode]

    @told
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
        super().__init__(
            RNNSpec(
                self._mode, num_layers, num_units, input_size, input_mode, direction, dtype, dropout, seed,
                bias_mode=bias_mode, algo=algo, math_type=math_type, compute_dtype=compute_dtype,
            )
        )  # fmt: skip

    @told
    def forward(
        self,
        input_data: ArrayT,
        input_h: Any,
        params: Any,
        is_training: bool = True,
        *,
        sequence_lengths: Sequence[int] | None = None,
        time_major: bool = True,
        keep_reserve: bool | None = None,
        checkpoint_every: int | None = None,
    ) -> Forward[ArrayT]:
        """Run the RNN and keep what a backward needs, unless `keep_reserve` (default: `is_training`) is False.

        `input_h` may be None: zeros. Dropout acts only with `is_training`. With `checkpoint_every` only states are
        kept, every so many steps, and backward computes the rest again: see `memory`.

        Shapes:
            input_data: [T, B, I], or [B, T, I] with `time_major=False`; input_h: [L * D, B, U]; params: [params_size];
            output: as input_data with D * U; output_h: as input_h.

        Raises:
            ArgumentError: a wrong shape, dtype or device, or a bad length.
            EngineError: no engine runs where the arrays are.
        """
        return self.run(
            input_data, input_h, None, params, is_training,
            sequence_lengths=sequence_lengths, time_major=time_major, keep_reserve=keep_reserve,
            checkpoint_every=checkpoint_every,
        )  # fmt: skip

    @told
    def __call__(
        self,
        input_data: ArrayT,
        input_h: Any,
        params: Any,
        is_training: bool = True,
        *,
        sequence_lengths: Sequence[int] | None = None,
        time_major: bool = True,
    ) -> tuple[ArrayT, ArrayT]:
        """Return (output, output_h); `forward` says more, and gives gradients."""
        fwd = self.run(
            input_data, input_h, None, params, is_training,
            sequence_lengths=sequence_lengths, time_major=time_major, keep_reserve=False,
        )  # fmt: skip
        return fwd.output, fwd.output_h


class CudnnGRU(_WithoutCellState):
    """The GRU, reset after the recurrent product: TF's `CudnnGRU` op. `RNNSpec` says what its arguments mean."""

    _mode = RNNMode.GRU


class CudnnRNNTanh(_WithoutCellState):
    """The tanh RNN: TF's `CudnnRNNTanh` op. `RNNSpec` says what its arguments mean."""

    _mode = RNNMode.RNN_TANH


class CudnnRNNRelu(_WithoutCellState):
    """The relu RNN: TF's `CudnnRNNRelu` op. `RNNSpec` says what its arguments mean."""

    _mode = RNNMode.RNN_RELU


def from_spec(spec: RNNSpec) -> CudnnRNN:
    """Return the op that runs `spec`. What it takes by position is its cell's: an LSTM has `input_c` before `params`.

    Raises:
        ArgumentTypeError: not an `RNNSpec`.
    """
    if not isinstance(spec, RNNSpec):
        raise ArgumentTypeError("spec", "an RNNSpec", type(spec))
    kinds: dict[RNNMode, Callable[..., CudnnRNN]] = {
        RNNMode.LSTM: CudnnLSTM,
        RNNMode.GRU: CudnnGRU,
        RNNMode.RNN_TANH: CudnnRNNTanh,
        RNNMode.RNN_RELU: CudnnRNNRelu,
    }
    arguments = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec) if field.name != "mode"}
    if spec.mode is not RNNMode.LSTM:
        del arguments["num_proj"], arguments["cell_clip"]
    return kinds[spec.mode](**arguments)


def _tf12_order(dtype: Any, dropout: Any, seed: Any) -> tuple[Any, Any, Any]:
    """Read (dropout, seed) from where TF r1.2 had them; the place of dtype holds a number then."""
    if isinstance(dtype, bool) or not isinstance(dtype, (int, float, np.number)):
        return dtype, dropout, seed
    if dropout and seed:
        raise ArgumentError("dtype", "a dtype, or TF r1.2's order (dropout, seed) with no third number", dtype)
    return DType.FLOAT32, dtype, seed or dropout or 0
