"""Hypothesis strategies for RNNs: specs, sequence lengths, params, and whole calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pycudnnrnn import ops
from pycudnnrnn.errors import MissingDependencyError
from pycudnnrnn.spec import Algorithm, BiasMode, Direction, DType, InputMode, RNNMode, RNNSpec
from pycudnnrnn.testing.problems import Problem, make_problem

__all__ = ["Problem", "make_problem", "problems", "sequence_lengths", "specs"]

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise MissingDependencyError("hypothesis", "testing", "pycudnnrnn.testing.strategies") from error


@st.composite
def specs(
    draw: Callable[[Any], Any],
    *,
    modes: Sequence[str] = tuple(RNNMode),
    dtypes: Sequence[str] = (DType.FLOAT64,),
    bias_modes: Sequence[str] = tuple(BiasMode),
    input_modes: Sequence[str] = tuple(InputMode),
    algorithms: Sequence[str] = (Algorithm.STANDARD,),
    max_layers: int = 3,
    max_units: int = 5,
    clip: bool = True,
) -> RNNSpec:
    """Draw a valid spec without dropout, small sizes first; input_size differs from num_units where it may."""
    mode = draw(st.sampled_from(list(modes)))
    units = draw(st.integers(1, max_units))
    input_mode = draw(st.sampled_from(list(input_modes)))
    input_size = units if input_mode == InputMode.SKIP_INPUT else draw(st.integers(1, max_units + 2))
    lstm = mode == RNNMode.LSTM
    num_proj = draw(st.none() | st.integers(1, units - 1)) if lstm and units > 1 else None
    clips = st.none() | st.floats(0.05, 1.0) | st.tuples(st.floats(-1, -0.05), st.floats(0.05, 1))
    return RNNSpec(
        mode,
        draw(st.integers(1, max_layers)),
        units,
        input_size,
        input_mode,
        draw(st.sampled_from(list(Direction))),
        draw(st.sampled_from(list(dtypes))),
        num_proj=num_proj,
        bias_mode=draw(st.sampled_from(list(bias_modes))),
        cell_clip=draw(clips) if lstm and clip else None,
        algo=draw(st.sampled_from(list(algorithms))),
    )


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
