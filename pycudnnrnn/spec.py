"""`RNNSpec`: one frozen, validated description of an RNN, with the enums and the limits that go with it."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from enum import IntEnum, StrEnum
from typing import Any, Final

import numpy as np

from pycudnnrnn._checks import check_int, check_real, choose, one_of
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, MissingDependencyError

INT32_MAX: Final = 2**31 - 1
"""Largest size that crosses the ABI. Source: `int` arguments of cudnnSetRNNDescriptor_v8 (cudnn_adv.h)."""

SEED_MAX: Final = 2**64 - 1
"""Largest dropout seed. Source: `unsigned long long seed` of cudnnSetDropoutDescriptor (cudnn_ops.h)."""

TIME_MAX: Final = 65535
"""Most time steps of one native call. Source: cudnnSetRNNDataDescriptor (cudnn_adv.h; observed, 8.9.7 to 9.28)."""

SPEC_JSON_SCHEMA: Final = 1
"""Version of what `RNNSpec.to_json` writes."""


class RNNMode(StrEnum):
    """The four cells. Values are TF's names (tf.contrib.cudnn_rnn)."""

    LSTM = "lstm"
    GRU = "gru"
    RNN_TANH = "rnn_tanh"
    RNN_RELU = "rnn_relu"


class Direction(StrEnum):
    UNIDIRECTIONAL = "unidirectional"
    BIDIRECTIONAL = "bidirectional"


class InputMode(StrEnum):
    """What layer 0 does with its input: multiply it by matrices, or add it to every gate as it is."""

    LINEAR_INPUT = "linear_input"
    SKIP_INPUT = "skip_input"


class BiasMode(StrEnum):
    """Which biases exist. Source: cudnnRNNBiasMode_t (cudnn_adv.h)."""

    NONE = "none"
    SINGLE_INPUT = "single_input"
    DOUBLE = "double"
    SINGLE_RECURRENT = "single_recurrent"


class DType(StrEnum):
    """Element types of data and params."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; bfloat16 needs the `ml_dtypes` package.

        Raises:
            MissingDependencyError: bfloat16 without ml_dtypes.
        """
        known = _NUMPY_DTYPES.get(self)
        if known is not None:
            return known
        try:
            import ml_dtypes  # noqa: PLC0415  optional
        except ImportError as error:
            raise MissingDependencyError("ml_dtypes", "bfloat16", "bfloat16 on NumPy arrays") from error
        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return _ITEMSIZES[self]


_ITEMSIZES: Final = {DType.FLOAT16: 2, DType.BFLOAT16: 2, DType.FLOAT32: 4, DType.FLOAT64: 8}
_NUMPY_DTYPES: Final = {DType(name): np.dtype(name) for name in ("float16", "float32", "float64")}


class MathType(StrEnum):
    """What the matrix units may do. Source: cudnnMathType_t (cudnn_graph.h); "default" permits TF32."""

    DEFAULT = "default"
    TENSOR_OP = "tensor_op"
    TENSOR_OP_ALLOW_CONVERSION = "tensor_op_allow_conversion"
    FMA = "fma"


class Algorithm(StrEnum):
    """cudnnRNNAlgo_t (cudnn_adv.h), and "auto": measure and choose among those of equal layout."""

    STANDARD = "standard"
    PERSIST_STATIC = "persist_static"
    PERSIST_DYNAMIC = "persist_dynamic"
    PERSIST_STATIC_SMALL_H = "persist_static_small_h"
    AUTO = "auto"


class LSTMGate(IntEnum):
    """linLayerID of an LSTM gate's input matrix; the recurrent one is 4 higher. Source: cudnnGetRNNWeightParams."""

    INPUT = 0
    FORGET = 1
    NEW = 2
    OUTPUT = 3


class GRUGate(IntEnum):
    """linLayerID of a GRU gate's input matrix; the recurrent one is 3 higher. Source: cudnnGetRNNWeightParams."""

    RESET = 0
    UPDATE = 1
    NEW = 2


class PlainGate(IntEnum):
    """linLayerID of the tanh or relu cell's input matrix; the recurrent one is 1 higher."""

    HIDDEN = 0


GATES: Final[dict[RNNMode, type[LSTMGate | GRUGate | PlainGate]]] = {
    RNNMode.LSTM: LSTMGate,
    RNNMode.GRU: GRUGate,
    RNNMode.RNN_TANH: PlainGate,
    RNNMode.RNN_RELU: PlainGate,
}

LSTM_PROJECTION_ID: Final = 8
"""linLayerID of the LSTM projection matrix. Source: cudnnGetRNNWeightParams (cudnn_adv.h)."""

COMPUTE_DTYPES: Final[dict[DType, tuple[DType, ...]]] = {
    DType.FLOAT16: (DType.FLOAT32, DType.FLOAT16),
    DType.BFLOAT16: (DType.FLOAT32,),
    DType.FLOAT32: (DType.FLOAT32,),
    DType.FLOAT64: (DType.FLOAT64,),
}
"""mathPrec values that cudnnSetRNNDescriptor_v8 accepts for each dataType, the default first (observed, 9.28)."""

FLOAT64_ALGORITHMS: Final = (Algorithm.STANDARD, Algorithm.PERSIST_DYNAMIC, Algorithm.AUTO)
"""Algorithms that cudnnSetRNNDescriptor_v8 accepts with CUDNN_DATA_DOUBLE (observed, 8.9.7 to 9.28)."""

STANDARD_ALGORITHMS: Final = (Algorithm.STANDARD, Algorithm.AUTO)
"""What projection, bias modes other than double, and float16 arithmetic run with (observed, 8.9.7 to 9.28)."""

AUTO_SELECT: Final = "auto_select"
"""TF's third input mode: skip when input_size == num_units, linear otherwise. `RNNSpec` resolves it."""


def parse_dtype(name: str, value: Any) -> DType:
    """Read a dtype as a string, a NumPy dtype or scalar type, or the dtype object of torch, JAX or TensorFlow."""
    if not isinstance(value, str):
        if value is None or isinstance(value, (bool, int, float)):
            raise ArgumentTypeError(name, one_of([str(d) for d in DType]), repr(value))
        try:
            value = np.dtype(value).name
        except TypeError:  # torch.float32 prints as "torch.float32", tf.float32 has a name
            value = getattr(value, "name", str(value)).rpartition(".")[2]
    return choose(DType, name, value)


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class RNNSpec:
    """Describe an RNN: everything that decides its params, its layout and its arithmetic, validated once.

    Strings stand for enum members. What may be left open is resolved here and read back resolved: `auto_select`,
    `math_type=None` (fma for float32 and float64, tensor_op for 16-bit types) and `compute_dtype=None` (float32 for
    16-bit types, the dtype itself otherwise). `cell_clip` is one positive bound c for [-c, c], or a pair (low, high).

    Raises:
        ArgumentError: a value, or a combination of values, that cuDNN has no RNN for.
        ArgumentTypeError: a value of the wrong type.

    Source: cudnnSetRNNDescriptor_v8 and cudnnRNNSetClip_v9 (cudnn_adv.h, 9.x).
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
        mode: str,
        num_layers: int,
        num_units: int,
        input_size: int,
        input_mode: str = InputMode.LINEAR_INPUT,
        direction: str = Direction.UNIDIRECTIONAL,
        dtype: Any = DType.FLOAT32,
        dropout: float = 0.0,
        seed: int = 0,
        num_proj: int | None = None,
        bias_mode: str = BiasMode.DOUBLE,
        cell_clip: float | tuple[float, float] | None = None,
        algo: str = Algorithm.STANDARD,
        math_type: str | None = None,
        compute_dtype: Any = None,
    ) -> None:
        def keep(**fields: Any) -> None:
            for name, value in fields.items():
                object.__setattr__(self, name, value)

        keep(
            mode=choose(RNNMode, "rnn_mode", mode),
            num_layers=check_int("num_layers", num_layers, 1, INT32_MAX),
            num_units=check_int("num_units", num_units, 1, INT32_MAX),
            input_size=check_int("input_size", input_size, 1, INT32_MAX),
            direction=choose(Direction, "direction", direction),
            dtype=parse_dtype("dtype", dtype),
            dropout=_checked_dropout(dropout),
            seed=check_int("seed", seed, 0, SEED_MAX),
            bias_mode=choose(BiasMode, "bias_mode", bias_mode),
            algo=choose(Algorithm, "algo", algo),
        )
        half = self.dtype in (DType.FLOAT16, DType.BFLOAT16)
        keep(
            input_mode=self._resolved_input_mode(input_mode),
            num_proj=self._checked_projection(num_proj),
            cell_clip=self._checked_clip(cell_clip),
            math_type=choose(MathType, "math_type", math_type or (MathType.TENSOR_OP if half else MathType.FMA)),
            compute_dtype=self._resolved_compute_dtype(compute_dtype),
        )
        self._check_algorithm()

    def _resolved_input_mode(self, value: str) -> InputMode:
        if value == AUTO_SELECT:
            return InputMode.SKIP_INPUT if self.input_size == self.num_units else InputMode.LINEAR_INPUT
        try:
            mode = InputMode(value)
        except ValueError:
            names = one_of([*map(str, InputMode), AUTO_SELECT])
            raise ArgumentError("input_mode", names, repr(value)) from None
        if mode is InputMode.SKIP_INPUT and self.input_size != self.num_units:
            raise ArgumentError(
                "input_mode",
                "input_size == num_units with 'skip_input' (the input is added to every gate as it is)",
                f"'skip_input' with input_size={self.input_size} and num_units={self.num_units}",
            )
        return mode

    def _checked_projection(self, value: int | None) -> int | None:
        if value is None or (value == 0 and not isinstance(value, bool)):
            return None  # TF reads 0 as "no projection"
        if self.mode is not RNNMode.LSTM:
            raise ArgumentError("num_proj", f"None for rnn_mode {str(self.mode)!r} (only the LSTM projects)", value)
        num_proj = check_int("num_proj", value, 1, INT32_MAX)
        if num_proj >= self.num_units:
            raise ArgumentError(
                "num_proj",
                f"less than num_units={self.num_units} (cuDNN takes projSize == hiddenSize for no projection)",
                num_proj,
            )
        return num_proj

    def _checked_clip(self, value: float | tuple[float, float] | None) -> tuple[float, float] | None:
        if value is None:
            return None
        if self.mode is not RNNMode.LSTM:
            raise ArgumentError("cell_clip", f"None for rnn_mode {str(self.mode)!r} (only the LSTM has a cell)", value)
        bounds = [check_real("cell_clip", bound) for bound in (value if isinstance(value, (tuple, list)) else [value])]
        if len(bounds) == 1 and bounds[0] > 0:
            return -bounds[0], bounds[0]
        if len(bounds) == 2 and bounds[0] <= bounds[1]:
            return bounds[0], bounds[1]
        raise ArgumentError("cell_clip", "one positive bound or a pair (low, high) with low <= high", repr(value))

    def _resolved_compute_dtype(self, value: Any) -> DType:
        allowed = COMPUTE_DTYPES[self.dtype]
        if value is None:
            return allowed[0]
        compute = parse_dtype("compute_dtype", value)
        if compute not in allowed:
            names = one_of([str(d) for d in allowed])
            raise ArgumentError("compute_dtype", f"{names} for dtype {str(self.dtype)!r}", repr(str(compute)))
        return compute

    def _check_algorithm(self) -> None:
        if self.dtype is DType.FLOAT64 and self.algo not in FLOAT64_ALGORITHMS:
            names = one_of([str(a) for a in FLOAT64_ALGORITHMS])
            raise ArgumentError("algo", f"{names} for dtype 'float64'", repr(str(self.algo)))
        if self.algo in STANDARD_ALGORITHMS:
            return
        reasons = {
            "num_proj": self.num_proj is not None,
            f"bias_mode {str(self.bias_mode)!r}": self.bias_mode is not BiasMode.DOUBLE,
            "compute_dtype 'float16'": self.compute_dtype is DType.FLOAT16,
        }
        for reason, applies in reasons.items():
            if applies:
                raise ArgumentError("algo", f"'standard' (or 'auto') with {reason}", repr(str(self.algo)))

    def __hash__(self) -> int:
        """Hash once: specs are looked up at every call, and hashing fifteen fields takes longer than some of these."""
        known = self.__dict__.get("_hash")
        if known is None:
            known = hash(tuple(getattr(self, field.name) for field in dataclasses.fields(self)))
            object.__setattr__(self, "_hash", known)
        return int(known)

    def __getstate__(self) -> dict[str, Any]:
        # Not the hash: those of strings differ from process to process.
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @property
    def num_dirs(self) -> int:
        """Directions: 1 or 2."""
        return 2 if self.direction is Direction.BIDIRECTIONAL else 1

    @property
    def num_pseudo_layers(self) -> int:
        """Layers times directions; pseudo-layer = layer * num_dirs + direction."""
        return self.num_layers * self.num_dirs

    @property
    def num_gates(self) -> int:
        """4 for LSTM, 3 for GRU, 1 for tanh and relu."""
        return len(GATES[self.mode])

    @functools.cached_property
    def without_dropout(self) -> RNNSpec:
        """The same RNN with neither dropout nor seed: what decides its params and their layout."""
        return self.replace(seed=0, dropout=0.0) if self.seed or self.dropout else self

    @property
    def untuned_algo(self) -> Algorithm:
        """`algo`, or the standard one where "auto" has measured nothing."""
        return Algorithm.STANDARD if self.algo is Algorithm.AUTO else self.algo

    @property
    def state_size(self) -> int:
        """Width of h, and of one direction's output: num_proj if there is one, else num_units."""
        return self.num_proj or self.num_units

    @property
    def output_size(self) -> int:
        """Width of the output: num_dirs * state_size."""
        return self.num_dirs * self.state_size

    @property
    def has_cell_state(self) -> bool:
        """Whether there is a c beside h: LSTM only."""
        return self.mode is RNNMode.LSTM

    @property
    def has_input_bias(self) -> bool:
        return self.bias_mode in (BiasMode.DOUBLE, BiasMode.SINGLE_INPUT)

    @property
    def has_recurrent_bias(self) -> bool:
        return self.bias_mode in (BiasMode.DOUBLE, BiasMode.SINGLE_RECURRENT)

    def layer_input_size(self, layer: int) -> int:
        """Width of what `layer` reads."""
        return self.input_size if layer == 0 else self.output_size

    def replace(self, **changes: Any) -> RNNSpec:
        """Return a copy with some fields changed, validated anew.

        A changed dtype resolves `math_type` and `compute_dtype` afresh unless they are given too.
        """
        if "dtype" in changes:
            changes = {"math_type": None, "compute_dtype": None} | changes
        return dataclasses.replace(self, **changes)

    def __repr__(self) -> str:
        """Python that builds an equal spec: only what differs from the defaults, as plain strings and numbers."""
        shown = [repr(str(self.mode)), str(self.num_layers), str(self.num_units), str(self.input_size)]
        plain = RNNSpec(self.mode, self.num_layers, self.num_units, self.input_size, dtype=self.dtype)
        for field in dataclasses.fields(self)[4:]:
            value = getattr(self, field.name)
            usual = DType.FLOAT32 if field.name == "dtype" else getattr(plain, field.name)
            if value != usual:
                shown.append(f"{field.name}={_source(value)}")
        return f"RNNSpec({', '.join(shown)})"

    def to_json(self) -> str:
        """Write every field as one JSON object; `from_json` reads it back to an equal spec.

        An infinite clip bound is written as null, since JSON has no infinity.
        """
        fields = dataclasses.asdict(self)
        if self.cell_clip is not None:
            fields["cell_clip"] = [bound if math.isfinite(bound) else None for bound in self.cell_clip]
        return json.dumps({"schema": SPEC_JSON_SCHEMA, **fields}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> RNNSpec:
        """Read what `to_json` wrote, strictly: every field once, nothing else, and valid as a spec.

        Raises:
            ArgumentError: not a JSON object of this schema, a missing, unknown or repeated field, or a bad value.
        """
        try:
            fields = json.loads(text, object_pairs_hook=_unique_pairs, parse_constant=_refuse_constant)
        except ArgumentError:
            raise
        except (ValueError, TypeError, RecursionError) as error:
            raise ArgumentError("text", "a JSON object written by RNNSpec.to_json", error) from None
        if not isinstance(fields, dict):
            raise ArgumentError("text", "a JSON object", type(fields).__name__)
        names = {"schema", *(field.name for field in dataclasses.fields(cls))}
        if fields.keys() != names:
            odd = sorted(fields.keys() ^ names)
            raise ArgumentError("text", "each field of RNNSpec once", f"missing or unknown {odd}")
        if fields.pop("schema") != SPEC_JSON_SCHEMA:
            raise ArgumentError("schema", str(SPEC_JSON_SCHEMA), "another schema")
        clip = fields["cell_clip"]
        if clip is not None:
            if not isinstance(clip, list) or len(clip) != 2:
                raise ArgumentError("cell_clip", "null or a pair of numbers or nulls", repr(clip))
            fields["cell_clip"] = tuple(
                side if bound is None else bound for bound, side in zip(clip, (-math.inf, math.inf), strict=True)
            )
        return cls(**fields)


def _checked_dropout(value: float) -> float:
    dropout = check_real("dropout", value)
    if not 0.0 <= dropout <= 1.0:
        raise ArgumentError("dropout", "a probability of dropping, from 0 to 1", dropout)
    return dropout


def _source(value: Any) -> str:
    if isinstance(value, StrEnum):
        return repr(str(value))
    if isinstance(value, tuple):
        return f"({', '.join(map(_source, value))})"
    if isinstance(value, float) and math.isinf(value):
        return f"float('{value}')"
    return repr(value)


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ArgumentError("text", "each field of RNNSpec once", "a repeated field")
    return found


def _refuse_constant(constant: str) -> Any:
    raise ArgumentError("text", "finite numbers", constant)
