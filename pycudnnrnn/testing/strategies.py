"""Hypothesis strategies for RNNs: specs, sequence lengths, and whole calls with their arrays."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

from pycudnnrnn import ops
from pycudnnrnn._checks import needs
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.spec import (
    AlgorithmLike,
    BiasMode,
    BiasModeLike,
    Direction,
    DType,
    DTypeLike,
    InputMode,
    InputModeLike,
    ModeLike,
    RNNMode,
    RNNSpec,
)
from pycudnnrnn.testing.problems import Problem, make_problem

__all__ = ["Problem", "make_problem", "problems", "sequence_lengths", "specs"]

with needs("hypothesis", "testing", "pycudnnrnn.testing.strategies"):
    from hypothesis import strategies as st

Words = tuple[tuple[str, tuple[Any, ...]], ...]
"""Fields of a spec with their possible values, in the order in which they are drawn."""

SMALL: Final[dict[str, Any]] = {"mode": RNNMode.LSTM, "num_layers": 1, "num_units": 2, "input_size": 2}
"""The arguments of a spec that is valid with each single word."""


@st.composite
def specs(  # noqa: D417  composite passes `draw`
    draw: Callable[[Any], Any],
    *,
    modes: Sequence[ModeLike] = tuple(RNNMode),
    dtypes: Sequence[DTypeLike] | None = None,
    bias_modes: Sequence[BiasModeLike] = tuple(BiasMode),
    input_modes: Sequence[InputModeLike] = tuple(InputMode),
    algorithms: Sequence[AlgorithmLike] = ("standard",),
    max_layers: int = 3,
    max_units: int = 5,
    clip: bool = True,
    projection: bool = True,
) -> RNNSpec:
    """Draw valid specs without dropout. Failures shrink to small sizes without projection.

    The algorithm is drawn first, then only words that it supports.

    Args:
        modes: cells to draw from. Default: all four.
        dtypes: dtypes to draw from. None: "float64", or "float32" if the algorithm does not support float64.
            Default: None.
        bias_modes: bias modes to draw from. Default: all four.
        input_modes: input modes to draw from: "linear_input", "skip_input". With "skip_input", I equals U. Default:
            both.
        algorithms: cuDNN's algorithms to draw from. Default: only "standard".
        max_layers: most layers. Default: 3.
        max_units: most units. The input has up to two more. Default: 5.
        clip: whether LSTMs may have `cell_clip`. Default: True.
        projection: whether LSTMs may have `num_proj`. Default: True.

    Returns:
        A strategy for `RNNSpec`.

    Raises:
        ArgumentError: an unknown word, or words that none of the algorithms supports. Hypothesis raises it when it
            draws.

    Example:
        >>> from hypothesis import given, settings
        >>> from pycudnnrnn.testing import strategies
        >>> @settings(max_examples=5, database=None, derandomize=True)
        ... @given(strategies.specs(modes=["gru"], max_units=4))
        ... def test_specs(spec):
        ...     assert spec.mode == "gru" and spec.num_units <= 4
        >>> test_specs()
    """
    words = (
        ("algo", tuple(algorithms)),
        ("mode", tuple(modes)),
        ("dtype", (DType.FLOAT64, DType.FLOAT32) if dtypes is None else tuple(dtypes)),
        ("bias_mode", tuple(bias_modes)),
        ("input_mode", tuple(input_modes)),
        ("num_proj", (None, 1) if projection and max_units > 1 else (None,)),
        ("cell_clip", (None, 1.0) if clip else (None,)),
    )
    kinds = _valid(words)
    if not kinds:
        raise ArgumentError("algorithms", "one that goes with the other words", [*map(str, algorithms)])
    # Every draw is made, even without an effect: Hypothesis regards a spec of fewer draws as the simpler one.
    for name, asked in words:
        values = list(dict.fromkeys(kind[name] for kind in kinds))
        index = 0 if name == "dtype" and dtypes is None else draw(st.integers(0, len(asked) - 1))
        kinds = [kind for kind in kinds if kind[name] == values[index % len(values)]]
    kind = dict(kinds[0])
    units = draw(st.integers(2 if kind["num_proj"] else 1, max_units))
    width = draw(st.integers(1, max_units + 2))
    if kind["num_proj"]:
        kind["num_proj"] = draw(st.integers(1, units - 1))
    if kind["cell_clip"]:
        kind["cell_clip"] = draw(st.floats(0.05, 1.0) | st.tuples(st.floats(-1, -0.05), st.floats(0.05, 1)))
    return RNNSpec(
        num_layers=draw(st.integers(1, max_layers)),
        num_units=units,
        input_size=units if kind["input_mode"] == InputMode.SKIP_INPUT else width,
        direction=draw(st.sampled_from(list(Direction))),
        **kind,
    )


@functools.lru_cache(maxsize=256)
def _valid(words: Words) -> list[dict[str, Any]]:
    """List the combinations that `RNNSpec` accepts."""
    for name, values in words:
        for value in values:
            RNNSpec(**SMALL | {name: value})  # an unknown word raises an error here; below it would be ignored
    names = [name for name, _ in words]
    found = [dict(zip(names, each, strict=True)) for each in itertools.product(*(values for _, values in words))]
    return [kind for kind in found if _is_valid(kind)]


def _is_valid(kind: dict[str, Any]) -> bool:
    try:
        RNNSpec(**SMALL | kind)
    except ArgumentError:
        return False
    return True


def sequence_lengths(T: int, B: int, *, least: int = 0) -> st.SearchStrategy[list[int] | None]:
    """Draw the lengths of sequences, or None, which means T for all. 0, 1 and T are frequent.

    Args:
        T: number of steps, the greatest length.
        B: number of sequences.
        least: smallest length. Default: 0.

    Returns:
        A strategy for lists of B integers, and None.

    Example:
        >>> from hypothesis import given, settings
        >>> from pycudnnrnn.testing import strategies
        >>> @settings(max_examples=5, database=None, derandomize=True)
        ... @given(strategies.sequence_lengths(T=6, B=3))
        ... def test_lengths(lengths):
        ...     assert lengths is None or max(lengths) <= 6
        >>> test_lengths()
    """
    often = sorted({n for n in (least, 1, T) if least <= n <= T})
    length = st.sampled_from(often) | st.integers(least, T)
    return st.none() | st.lists(length, min_size=B, max_size=B)


@st.composite
def problems(  # noqa: D417  composite passes `draw`
    draw: Callable[[Any], Any],
    spec: st.SearchStrategy[RNNSpec] | None = None,
    *,
    max_time: int = 6,
    max_batch: int = 4,
    least_length: int = 0,
    least_time: int = 1,
) -> Problem:
    """Draw whole calls: an op, its params, data, states, lengths and upstream gradients.

    Args:
        spec: a strategy for the spec. None: `specs()`. Default: None.
        max_time: most steps. Default: 6.
        max_batch: most sequences. Default: 4.
        least_length: smallest length of a sequence. Default: 0.
        least_time: fewest steps. With 0, a batch without sequences is possible, too. Default: 1.

    Returns:
        A strategy for `Problem`.

    Example:
        >>> from hypothesis import given, settings
        >>> from pycudnnrnn.testing import strategies
        >>> @settings(max_examples=5, database=None, derandomize=True)
        ... @given(strategies.problems(max_time=4))
        ... def test_outputs(problem):
        ...     assert problem.forward().output.shape == problem.dy.shape
        >>> test_outputs()
    """
    op = ops.from_spec(draw(specs() if spec is None else spec))
    T, B = draw(st.integers(least_time, max_time)), draw(st.integers(min(least_time, 1), max_batch))
    lengths = draw(sequence_lengths(T, B, least=min(least_length, T)))
    return make_problem(op, T, B, lengths, seed=draw(st.integers(0, 2**32 - 1)))
