"""What a problem is run on: weights and data drawn once, the same numbers for every competitor, and what comes out.

Every number drawn has at most 8 significant bits, so that all five types hold it exactly: a competitor's results are
its arithmetic's only, and one float64 run of the NumPy engine is the reference of all of them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pycudnnrnn import RNNSpec, ops
from pycudnnrnn.convert import Canonical
from pycudnnrnn.layout import canonical_shapes

from .problems import CELLS, Problem

Array = npt.NDArray[Any]

TOLERANCES: Final = {"float64": 1e-11, "float32": 1e-4, "tf32": 2e-2, "float16": 2e-2, "bfloat16": 1e-1}
"""Largest error allowed, over the reference's largest number: roundings of the type, some ten to a thousand. torch's
GRU on two threads was 3.6e-5 off over 50 steps."""

CHECK_FLOPS: Final = 2e9
"""What the reference of a check may cost: T is cut until it does, but not below 2."""

BLOCK: Final = 4_194_301
"""Random numbers drawn of each kind, once a process; longer arrays repeat them. It is a prime, the largest below 2**22,
so that the rows of a matrix differ for every width."""

ALL_COMPARED: Final = 2**20
STRIDE: Final = 17
"""No width of a longer array is a multiple of it, so that every row and every column is compared."""

_MOST: Final = 2**7 - 1
"""The largest magnitude that is drawn, in units: 7 bits. bfloat16 has 8."""

_NORMAL_UNIT: Final = 1 / 16


@dataclasses.dataclass(frozen=True, eq=False)
class Data:
    """Weights, inputs and an upstream gradient, in float32 where `draw` made them.

    Shapes:
        x: [T, B, I]; dy: [T, B, D * (P or U)], 0 past a sequence's end; lengths: B of them, or None.
    """

    problem: Problem
    canonical: Canonical
    x: Array
    dy: Array
    lengths: list[int] | None

    def cast(self, element: np.dtype[Any]) -> Data:
        """Return the same numbers in another type."""
        return draw(self.problem, np.dtype(element))


def numpy_name(dtype: str) -> str:
    """The element type of one of `problems.DTYPES`."""
    return "float32" if dtype == "tf32" else dtype


def spec_of(problem: Problem, dtype: str = "float32", algo: str = "") -> RNNSpec:
    """The RNN of a problem in one of `problems.DTYPES`."""
    p, math_type = problem, "default" if dtype == "tf32" else None
    direction = "bidirectional" if p.D == 2 else "unidirectional"
    sizes = CELLS[p.cell], p.L, p.U, p.I, f"{p.input}_input", direction, numpy_name(dtype)
    return RNNSpec(*sizes, num_proj=p.P, algo=algo or "standard", math_type=math_type)


_FLOAT32: Final = np.dtype(np.float32)


def draw(problem: Problem, element: np.dtype[Any] = _FLOAT32) -> Data:
    """Return what a problem is run on, the same arrays each time."""
    return _draw(problem.replace(passes=(), dtypes=(), tag=""), element)


@functools.lru_cache(maxsize=4)
def _draw(problem: Problem, element: np.dtype[Any]) -> Data:
    """Return normal data, and weights uniform in +-1/sqrt(U) as frameworks begin; all of it is read-only.

    Every array is a part of one block, which is drawn once a process; one that is longer than the block repeats it.
    """
    spec, unit = spec_of(problem, element.name), 2.0 ** math.floor(math.log2(problem.U**-0.5 / _MOST))
    taken = 0

    def take(kind: str, unit: float, shape: tuple[int, ...]) -> Array:
        nonlocal taken
        first, count = taken % BLOCK, math.prod(shape)
        taken += count
        block = _scaled(kind, unit, element)
        array = (block if first + count <= BLOCK else np.tile(block, -(-(first + count) // BLOCK)))[
            first : first + count
        ]
        array.flags.writeable = False
        return array.reshape(shape)

    drawn: dict[str, list[Array]] = {"weight": [], "bias": []}
    for *_, kind, shape in canonical_shapes(spec):
        drawn[kind].append(take("uniform", unit, shape))
    lengths = problem.drawn_lengths
    dy = take("normal", _NORMAL_UNIT, (problem.T, problem.B, spec.output_size))
    if lengths is not None:
        dy = np.where(np.arange(problem.T)[:, None, None] < np.array(lengths)[:, None], dy, element.type(0))
        dy.flags.writeable = False
    x = take("normal", _NORMAL_UNIT, (problem.T, problem.B, problem.I))
    return Data(problem, Canonical(spec, tuple(drawn["weight"]), tuple(drawn["bias"])), x, dy, lengths)


@functools.lru_cache(maxsize=4)
def _scaled(kind: str, unit: float, element: np.dtype[Any]) -> Array:
    """Return the block of this kind times `unit`."""
    return (_block(kind) * np.float32(unit)).astype(element)


@functools.cache
def _block(kind: str) -> Array:
    """Draw a block of whole numbers of at most 7 bits: "uniform", or "normal" with a deviation of 16."""
    rng = np.random.default_rng(0)
    if kind == "uniform":
        return rng.integers(-_MOST, _MOST, BLOCK, dtype=np.int8, endpoint=True)
    coarse = np.rint(rng.standard_normal(BLOCK, dtype=np.float32) / np.float32(_NORMAL_UNIT))
    return np.clip(coarse, -_MOST, _MOST).astype(np.int8)


def short(problem: Problem) -> Problem:
    """The problem with as few steps as keep a check cheap."""
    weights = sum(math.prod(shape) for *_, kind, shape in canonical_shapes(spec_of(problem)) if kind == "weight")
    steps = max(2, int(CHECK_FLOPS / (2 * problem.B * weights)))
    return problem.replace(T=min(problem.T, steps))


def flat(weights: Any, biases: Any) -> Array:
    """Canonical gradients as one vector in float64: of an array of more than a million numbers, every 17th."""
    arrays = (np.asarray(array).reshape(-1) for array in (*weights, *biases))
    return np.concatenate(
        [array[:: 1 if array.size <= ALL_COMPARED else STRIDE].astype(np.float64) for array in arrays]
    )


def reference(problem: Problem, which: str) -> dict[str, Array]:
    """Return what a pass gives on `draw(problem)`: the NumPy engine in float64."""
    data = draw(problem)
    op = ops.from_spec(data.canonical.spec.replace(dtype="float64"))
    x, dy, *arrays = (np.asarray(a, np.float64) for a in (data.x, data.dy, *data.canonical.weights))
    params = op.canonical_to_params(arrays, [np.asarray(a, np.float64) for a in data.canonical.biases])
    states = (None, None) if problem.cell == "lstm" else (None,)
    if which in ("infer", "train"):  # nothing is dropped out in training
        return results_of(*op(x, *states, params, is_training=False, sequence_lengths=data.lengths))
    fwd = op.forward(x, *states, params, is_training=True, sequence_lengths=data.lengths)
    grads = fwd.backward(dy)
    return gradients_of(which, fwd.output, grads.input, flat(*op.params_to_canonical(grads.params)))


def gradients_of(which: str, y: Array, dx: Array, dw: Array) -> dict[str, Array]:
    """Name what a pass gives that is no forward: those of y, dx and dw that it computes."""
    return {"step": {"y": y, "dx": dx, "dw": dw}, "backward-data": {"dx": dx}, "backward-weights": {"dw": dw}}[which]


def results_of(*arrays: Array) -> dict[str, Array]:
    """Name what a forward gives: y, hy and, of an LSTM, cy."""
    return dict(zip(("y", "hy", "cy"), arrays, strict=False))


def worst_error(results: dict[str, Array], expected: dict[str, Array]) -> float:
    """Return the largest error over the largest number of each result; NaN where there is one.

    Raises:
        ValueError: results that were not asked for, or of another shape; a competitor may leave out a state.
    """
    missing = {"y", "dx", "dw"} & expected.keys() - results.keys()
    if missing or results.keys() - expected.keys():
        raise ValueError(f"expecting {', '.join(expected)}, got {', '.join(results)}")
    worst = 0.0
    for name, array in results.items():
        if array.shape != expected[name].shape:
            raise ValueError(f"expecting {name} of shape {expected[name].shape}, got {array.shape}")
        largest = float(np.abs(expected[name]).max(initial=0)) or 1.0
        error = float(np.abs(np.asarray(array, np.float64) - expected[name]).max(initial=0)) / largest
        worst = max(worst, error) if error == error else math.nan  # noqa: PLR0124  NaN is what differs from itself
    return worst
