"""Hypothesis strategies for RNNs: specs, sequence lengths, params, and whole calls."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

from pycudnnrnn import ops
from pycudnnrnn.errors import ArgumentError, MissingDependencyError
from pycudnnrnn.spec import Algorithm, BiasMode, Direction, DType, InputMode, RNNMode, RNNSpec
from pycudnnrnn.testing.problems import Problem, make_problem

__all__ = ["Problem", "make_problem", "problems", "sequence_lengths", "specs"]

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise MissingDependencyError("hypothesis", "testing", "pycudnnrnn.testing.strategies") from error


Words = tuple[tuple[str, tuple[Any, ...]], ...]
"""Fields of a spec, and the values that each may have, in the order in which they are drawn."""

SMALL: Final[dict[str, Any]] = {"mode": RNNMode.LSTM, "num_layers": 1, "num_units": 2, "input_size": 2}
"""A spec that goes with any one of the words."""


@st.composite
def specs(
    draw: Callable[[Any], Any],
    *,
    modes: Sequence[str] = tuple(RNNMode),
    dtypes: Sequence[str] | None = None,
    bias_modes: Sequence[str] = tuple(BiasMode),
    input_modes: Sequence[str] = tuple(InputMode),
    algorithms: Sequence[str] = (Algorithm.STANDARD,),
    max_layers: int = 3,
    max_units: int = 5,
    clip: bool = True,
    projection: bool = True,
) -> RNNSpec:
    """Draw a valid spec without dropout, small sizes and no projection first.

    An algorithm is drawn before all else, and then of the other words those that it can have. `dtypes` None is float64,
    or float32 where the algorithm has no float64. An input is as wide as the state where it is skipped, and
    otherwise by chance.

    Raises:
        ArgumentError: an unknown word, or words that no algorithm among `algorithms` can have.
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
    # Draws are made whether or not they decide anything: Hypothesis takes a spec of fewer draws for the simpler one.
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
    """List the combinations that `RNNSpec` takes, whose rules these are."""
    for name, values in words:
        for value in values:
            RNNSpec(**SMALL | {name: value})  # an unknown word raises here, and is not left out below
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
    """Draw lengths for B sequences, with 0, 1 and T often among them; or None, which stands for all T."""
    often = sorted({n for n in (least, 1, T) if least <= n <= T})
    length = st.sampled_from(often) | st.integers(least, T)
    return st.none() | st.lists(length, min_size=B, max_size=B)


@st.composite
def problems(
    draw: Callable[[Any], Any],
    spec: st.SearchStrategy[RNNSpec] | None = None,
    *,
    max_time: int = 6,
    max_batch: int = 4,
    least_length: int = 0,
    least_time: int = 1,
) -> Problem:
    """Draw a call: random weights, biases, states, data and upstream gradients, ragged lengths or not."""
    op = ops.from_spec(draw(specs() if spec is None else spec))
    T, B = draw(st.integers(least_time, max_time)), draw(st.integers(min(least_time, 1), max_batch))
    lengths = draw(sequence_lengths(T, B, least=min(least_length, T)))
    return make_problem(op, T, B, lengths, seed=draw(st.integers(0, 2**32 - 1)))
