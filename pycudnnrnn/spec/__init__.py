"""`RNNSpec`: one immutable, validated description of an RNN, and the words that its arguments take."""

from __future__ import annotations

import dataclasses
import json
import math
from enum import StrEnum
from typing import Any, Final

import numpy as np

from pycudnnrnn import _locks
from pycudnnrnn._checks import check_dropout, check_int, check_real, check_word, one_of, shorten
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.spec._words import (
    AUTO_SELECT,
    COMPUTE_DTYPES,
    FLOAT64_ALGORITHMS,
    GATES,
    INT32_MAX,
    LSTM_PROJECTION_ID,
    SEED_MAX,
    STANDARD_ALGORITHMS,
    TIME_MAX,
    Algorithm,
    AlgorithmLike,
    BiasMode,
    BiasModeLike,
    Direction,
    DirectionLike,
    DType,
    DTypeLike,
    GRUGate,
    InputMode,
    InputModeLike,
    LSTMGate,
    MathType,
    MathTypeLike,
    ModeLike,
    PlainGate,
    RNNMode,
    parse_dtype,
)

__all__ = [
    "AUTO_SELECT",
    "GATES",
    "INT32_MAX",
    "LSTM_PROJECTION_ID",
    "SEED_MAX",
    "STANDARD_ALGORITHMS",
    "TIME_MAX",
    "Algorithm",
    "AlgorithmLike",
    "BiasMode",
    "BiasModeLike",
    "DType",
    "DTypeLike",
    "Direction",
    "DirectionLike",
    "GRUGate",
    "InputMode",
    "InputModeLike",
    "LSTMGate",
    "MathType",
    "MathTypeLike",
    "ModeLike",
    "PlainGate",
    "RNNMode",
    "RNNSpec",
    "parse_dtype",
]
__dir__ = __all__.copy

_SCHEMA: Final = 1
"""Version of the JSON that `RNNSpec.to_json` writes."""


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class RNNSpec:
    """Describe an RNN: its cell, sizes, precision and options, validated once.

    Words can be given as strings or as members of the matching enum; the fields hold the members. Where "auto_select"
    or None asks for a choice, the field holds the choice. A spec is immutable and hashable.

    Args:
        mode: the cell: "lstm", "gru", "rnn_tanh" or "rnn_relu".
        num_layers: number of layers, L. Each one reads the output of the layer below.
        num_units: width of the gates and of the state, U, in each layer and direction.
        input_size: width of the input, I.
        input_mode: how layer 0 uses its input. "linear_input" multiplies it by matrices. "skip_input" adds it to every
            gate unchanged, which needs I == U. "auto_select" is "skip_input" if I == U, otherwise "linear_input".
            Default: "linear_input".
        direction: "unidirectional" reads a sequence from its first step to its last. "bidirectional" adds a backward
            direction with separate params. Each layer then outputs both, concatenated, the forward direction first.
            Default: "unidirectional".
        dtype: type of data and params: "float16", "bfloat16", "float32" or "float64", or the dtype object of NumPy,
            torch, JAX or TensorFlow. Default: "float32".
        dropout: probability from 0 to 1 of dropping a value between two layers, in training only. The other values are
            multiplied by 1 / (1 - dropout). It has no effect with one layer. Default: 0.0.
        seed: seed of the dropout masks, and of `init_params` if that gets none. From 0 to 2**64 - 1. Default: 0.
        num_proj: width to which an LSTM projects its output, P, less than U. None or 0: no projection. Default: None.
        bias_mode: the biases of each gate. "double": one for the input product and one for the recurrent product.
            "single_input" and "single_recurrent": only that one. "none": no biases. The two single modes give
            different results only in a GRU. Default: "double".
        cell_clip: bounds of an LSTM's cell state c: a positive number x for [-x, x], a pair (low, high), or None for no
            bounds. They are rounded to float32 with every dtype. Default: None.
        algo: algorithm of cuDNN; the NumPy engine ignores it. "standard" runs everything. "persist_static",
            "persist_dynamic" and "persist_static_small_h" need sequences of equal length, double biases, no
            projection and no float16 arithmetic. Of these three, only "persist_dynamic" runs float64. "auto" measures
            all that can run and takes the fastest. Default: "standard".
        math_type: what cuDNN may use for matrix products; the NumPy engine ignores it. "fma": fused multiply-add,
            without TF32. "default": cuDNN's choice, which may be TF32. "tensor_op": tensor cores.
            "tensor_op_allow_conversion": tensor cores, also after conversion to a narrower type. None: "fma" for
            float32 and float64, "tensor_op" for 16-bit types. Default: None.
        compute_dtype: type of the arithmetic: "float32" or "float16" for float16; the other dtypes have one choice.
            None: "float32" for 16-bit types, otherwise `dtype`. Default: None.

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN does not support.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> from pycudnnrnn import RNNSpec
        >>> spec = RNNSpec("lstm", 2, num_units=8, input_size=4, direction="bidirectional")
        >>> spec
        RNNSpec('lstm', 2, 8, 4, direction='bidirectional')
        >>> spec.output_size, str(spec.math_type)
        (16, 'fma')

    Source: cudnnSetRNNDescriptor_v8, cudnnRNNSetClip_v9 and the enums of their arguments (cudnn_adv.h, 9.x). Supported
    combinations: observed with cuDNN 8.9.7 to 9.28. cuDNN does not document in which type it clips float64.
    """

    mode: RNNMode
    num_layers: int
    num_units: int
    input_size: int
    input_mode: InputMode
    direction: Direction
    dtype: DType
    dropout: float
    seed: int
    num_proj: int | None
    bias_mode: BiasMode
    cell_clip: tuple[float, float] | None
    algo: Algorithm
    math_type: MathType
    compute_dtype: DType

    def __init__(
        self,
        mode: ModeLike,
        num_layers: int,
        num_units: int,
        input_size: int,
        input_mode: InputModeLike = "linear_input",
        direction: DirectionLike = "unidirectional",
        dtype: DTypeLike = "float32",
        dropout: float = 0.0,
        seed: int = 0,
        num_proj: int | None = None,
        bias_mode: BiasModeLike = "double",
        cell_clip: float | tuple[float, float] | None = None,
        algo: AlgorithmLike = "standard",
        math_type: MathTypeLike | None = None,
        compute_dtype: DTypeLike | None = None,
    ) -> None:
        vars(self).update(
            mode=check_word(RNNMode, "mode", mode),
            num_layers=check_int("num_layers", num_layers, 1, INT32_MAX),
            num_units=check_int("num_units", num_units, 1, INT32_MAX),
            input_size=check_int("input_size", input_size, 1, INT32_MAX),
            direction=check_word(Direction, "direction", direction),
            dtype=parse_dtype("dtype", dtype),
            dropout=check_dropout(dropout),
            seed=check_int("seed", seed, 0, SEED_MAX),
            bias_mode=check_word(BiasMode, "bias_mode", bias_mode),
            algo=check_word(Algorithm, "algo", algo),
        )
        usual = MathType.TENSOR_OP if self.dtype.itemsize == 2 else MathType.FMA
        vars(self).update(
            input_mode=self._resolved_input_mode(input_mode),
            num_proj=self._checked_projection(num_proj),
            cell_clip=self._checked_clip(cell_clip),
            math_type=check_word(MathType, "math_type", usual if math_type is None else math_type),
            compute_dtype=self._resolved_compute_dtype(compute_dtype),
        )
        self._check_algorithm()

    def _resolved_input_mode(self, value: str) -> InputMode:
        words = [*map(str, InputMode), AUTO_SELECT]
        if value not in words:
            raise ArgumentError("input_mode", one_of(words), shorten(value))
        if value == AUTO_SELECT:
            return InputMode.SKIP_INPUT if self.input_size == self.num_units else InputMode.LINEAR_INPUT
        mode = InputMode(value)
        if mode is InputMode.SKIP_INPUT and self.input_size != self.num_units:
            expected = "input_size == num_units with 'skip_input' (the input is added to every gate as it is)"
            got = f"'skip_input' with input_size={self.input_size} and num_units={self.num_units}"
            raise ArgumentError("input_mode", expected, got)
        return mode

    def _checked_projection(self, value: int | None) -> int | None:
        num_proj = 0 if value is None else check_int("num_proj", value, 0, INT32_MAX)
        if num_proj == 0:
            return None  # TF reads 0 as "no projection"
        if self.mode is not RNNMode.LSTM:
            raise ArgumentError("num_proj", f"None for mode {str(self.mode)!r} (only the LSTM projects)", num_proj)
        if num_proj >= self.num_units:
            expected = f"less than num_units={self.num_units} (cuDNN takes projSize == hiddenSize for no projection)"
            raise ArgumentError("num_proj", expected, num_proj)
        return num_proj

    def _checked_clip(self, value: float | tuple[float, float] | None) -> tuple[float, float] | None:
        if value is None:
            return None
        if self.mode is not RNNMode.LSTM:
            raise ArgumentError("cell_clip", f"None for mode {str(self.mode)!r} (only the LSTM has a cell)", value)
        sides = value if isinstance(value, (tuple, list)) else [value]
        with np.errstate(over="ignore"):  # numbers beyond float32 become infinite
            bounds = [float(np.float32(check_real("cell_clip", bound))) for bound in sides]
        if len(bounds) == 1 and bounds[0] > 0:
            return -bounds[0], bounds[0]
        if len(bounds) == 2 and bounds[0] <= bounds[1]:
            return bounds[0], bounds[1]
        raise ArgumentError("cell_clip", "one positive bound or a pair (low, high) with low <= high", shorten(value))

    def _resolved_compute_dtype(self, value: Any) -> DType:
        allowed = COMPUTE_DTYPES[self.dtype]
        compute = allowed[0] if value is None else parse_dtype("compute_dtype", value)
        if compute not in allowed:
            names = one_of([str(d) for d in allowed])
            raise ArgumentError("compute_dtype", f"{names} for dtype {str(self.dtype)!r}", repr(str(compute)))
        return compute

    def _check_algorithm(self) -> None:
        for reason, applies, algorithms in (
            ("dtype 'float64'", self.dtype is DType.FLOAT64, FLOAT64_ALGORITHMS),
            ("num_proj", self.num_proj is not None, STANDARD_ALGORITHMS),
            (f"bias_mode {str(self.bias_mode)!r}", self.bias_mode is not BiasMode.DOUBLE, STANDARD_ALGORITHMS),
            ("compute_dtype 'float16'", self.compute_dtype is DType.FLOAT16, STANDARD_ALGORITHMS),
        ):
            if applies and self.algo not in algorithms:
                names = one_of([*map(str, algorithms)])
                raise ArgumentError("algo", f"{names} with {reason}", repr(str(self.algo)))

    def __hash__(self) -> int:
        """Hash once: each call looks specs up, and hashing fifteen fields can take longer than the call."""
        return self._hash

    @_locks.cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in dataclasses.fields(self)))

    def __getstate__(self) -> dict[str, Any]:
        # Without the hash: hashes of strings differ from process to process.
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @_locks.cached_property
    def num_dirs(self) -> int:
        """Number of directions, D: 1 or 2."""
        return 2 if self.direction is Direction.BIDIRECTIONAL else 1

    @_locks.cached_property
    def num_pseudo_layers(self) -> int:
        """Number of pseudo-layers, L * D: one for each direction of each layer, layer * num_dirs + direction."""
        return self.num_layers * self.num_dirs

    @_locks.cached_property
    def num_gates(self) -> int:
        """Number of gates: 4 for LSTM, 3 for GRU, 1 for tanh and relu."""
        return len(GATES[self.mode])

    @_locks.cached_property
    def without_dropout(self) -> RNNSpec:
        """The same RNN with `dropout` and `seed` set to 0. Specs that share it have the same params layout."""
        return self.replace(seed=0, dropout=0.0) if self.seed or self.dropout else self

    @property
    def untuned_algo(self) -> Algorithm:
        """`algo`, with "standard" in place of "auto": the algorithm until something was measured."""
        return Algorithm.STANDARD if self.algo is Algorithm.AUTO else self.algo

    @_locks.cached_property
    def state_size(self) -> int:
        """Width of h and of one direction's output: `num_proj` with a projection, otherwise `num_units`."""
        return self.num_proj or self.num_units

    @_locks.cached_property
    def output_size(self) -> int:
        """Width of the output: `num_dirs * state_size`."""
        return self.num_dirs * self.state_size

    @_locks.cached_property
    def has_cell_state(self) -> bool:
        """Whether the cell has a state c in addition to h: LSTM only."""
        return self.mode is RNNMode.LSTM

    @property
    def has_input_bias(self) -> bool:
        """Whether the input product of each gate has a bias."""
        return self.bias_mode in (BiasMode.DOUBLE, BiasMode.SINGLE_INPUT)

    @property
    def has_recurrent_bias(self) -> bool:
        """Whether the recurrent product of each gate has a bias."""
        return self.bias_mode in (BiasMode.DOUBLE, BiasMode.SINGLE_RECURRENT)

    def layer_input_size(self, layer: int) -> int:
        """Return the width of a layer's input.

        Args:
            layer: number of the layer, from 0.
        """
        return self.input_size if layer == 0 else self.output_size

    def replace(self, **changes: Any) -> RNNSpec:
        """Return a copy with some arguments changed, validated again.

        Args:
            **changes: arguments of `RNNSpec` by name. With a new `dtype`, `math_type` and `compute_dtype` return to
                their defaults unless you pass them as well.

        Raises:
            ArgumentError: a value, or a combination of values, that cuDNN does not support.
            ArgumentTypeError: a value of the wrong type.

        Example:
            >>> RNNSpec("gru", 1, 8, 4).replace(num_layers=2)
            RNNSpec('gru', 2, 8, 4)
        """
        if "dtype" in changes:
            changes = {"math_type": None, "compute_dtype": None} | changes
        return dataclasses.replace(self, **changes)

    def __repr__(self) -> str:
        """Return Python source of an equal spec: only what differs from the defaults, as strings and numbers."""
        shown = [repr(str(self.mode)), str(self.num_layers), str(self.num_units), str(self.input_size)]
        plain = RNNSpec(self.mode, self.num_layers, self.num_units, self.input_size, dtype=self.dtype)
        for field in dataclasses.fields(self)[4:]:
            value = getattr(self, field.name)
            usual = DType.FLOAT32 if field.name == "dtype" else getattr(plain, field.name)
            if value != usual:
                source = repr(str(value)) if isinstance(value, StrEnum) else repr(value)
                if field.name == "cell_clip":
                    # The shortest number that rounds to each bound, usually the one that was passed.
                    bounds = [f"float('{bound}')" if math.isinf(bound) else str(np.float32(bound)) for bound in value]
                    source = f"({', '.join(bounds)})"
                shown.append(f"{field.name}={source}")
        return f"RNNSpec({', '.join(shown)})"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Print the repr in a failing example of Hypothesis, which prints the fields of other dataclasses."""
        printer.text(repr(self))

    def to_json(self) -> str:
        """Return all fields as one JSON object, as text. `from_json` makes an equal spec of it.

        Returns:
            The JSON. An infinite clip bound is null, because JSON has no infinity.

        Example:
            >>> spec = RNNSpec("gru", 1, 8, 4)
            >>> RNNSpec.from_json(spec.to_json()) == spec
            True
        """
        fields = dataclasses.asdict(self)
        if self.cell_clip is not None:
            fields["cell_clip"] = [bound if math.isfinite(bound) else None for bound in self.cell_clip]
        return json.dumps({"schema": _SCHEMA, **fields}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> RNNSpec:
        """Make a spec from the JSON of `to_json`.

        Reading is strict: each field must be there, and nothing else.

        Args:
            text: the JSON object, as text.

        Returns:
            The spec.

        Raises:
            ArgumentError: not a JSON object of this schema, a missing or unknown field, or a bad value.
        """
        expected = f"a JSON object written by RNNSpec.to_json, of schema {_SCHEMA}"
        try:
            written = json.loads(text)
            fields = {field.name: written[field.name] for field in dataclasses.fields(cls)}
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            got = f"no field {error}" if isinstance(error, KeyError) else repr(error)
            raise ArgumentError("text", expected, got) from None
        clip = fields["cell_clip"]
        if isinstance(clip, list) and len(clip) == 2:
            sides = zip(clip, (-math.inf, math.inf), strict=True)
            fields["cell_clip"] = tuple(side if bound is None else bound for bound, side in sides)
        spec = cls(**fields)
        again = json.loads(spec.to_json())  # which writes no value that is still to be chosen, such as None
        if other := [name for name in again | written if again.get(name, ...) != written.get(name, ...)]:
            raise ArgumentError("text", expected, f"unknown or other: {', '.join(map(shorten, other))}")
        return spec
