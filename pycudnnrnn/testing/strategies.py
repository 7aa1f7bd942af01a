"""Hypothesis strategies for RNNs: specs, layouts, sequence lengths, and whole calls with their arrays."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any

from pycudnnrnn import ops
from pycudnnrnn import spec as words
from pycudnnrnn._checks import check_bool, check_int, check_type, check_word, needs, shorten
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.layout import ParamLayout, arithmetic_layout
from pycudnnrnn.spec import INT32_MAX, Direction, DType, InputMode, RNNMode, RNNSpec, parse_dtype
from pycudnnrnn.testing.problems import Problem, make_problem

__all__ = ["layouts", "problems", "sequence_lengths", "specs"]
__dir__ = __all__.copy

with needs("hypothesis", "testing", "pycudnnrnn.testing.strategies"):
    from hypothesis import strategies as st

Fields = tuple[tuple[str, tuple[Any, ...]], ...]
"""Fields of a spec with their possible values, in the order in which they are drawn."""


def specs(
    *,
    modes: Sequence[words.ModeLike] | None = None,
    dtypes: Sequence[words.DTypeLike] | None = None,
    bias_modes: Sequence[words.BiasModeLike] | None = None,
    input_modes: Sequence[words.InputModeLike] | None = None,
    directions: Sequence[words.DirectionLike] | None = None,
    algorithms: Sequence[words.AlgorithmLike] = ("standard",),
    math_types: Sequence[words.MathTypeLike | None] = (None,),
    compute_dtypes: Sequence[words.DTypeLike | None] = (None,),
    min_layers: int = 1,
    max_layers: int = 3,
    min_units: int = 1,
    max_units: int = 5,
    clip: bool | None = None,
    projection: bool | None = None,
) -> st.SearchStrategy[RNNSpec]:
    """Draw valid specs without dropout. Failures shrink to small sizes without projection.

    The algorithm is drawn first, then only words that it supports. `st.from_type(RNNSpec)` is this strategy with its
    defaults.

    Args:
        modes: cells to draw from. None: all four. Default: None.
        dtypes: dtypes to draw from. None: "float64", or "float32" if the algorithm does not support float64.
            Default: None.
        bias_modes: bias modes to draw from. None: all four. Default: None.
        input_modes: input modes to draw from: "linear_input", "skip_input". With "skip_input", I equals U. None: both.
            Default: None.
        directions: directions to draw from: "unidirectional", "bidirectional". None: both. Default: None.
        algorithms: cuDNN's algorithms to draw from. Default: only "standard".
        math_types: math types to draw from; None is the dtype's own. Default: only None.
        compute_dtypes: types of arithmetic to draw from; None is the dtype's own. Default: only None.
        min_layers: fewest layers. Default: 1.
        max_layers: most layers. Default: 3.
        min_units: fewest units. Default: 1.
        max_units: most units. The input has up to two more. Default: 5.
        clip: True: only LSTMs with `cell_clip`. False: no `cell_clip`. None: both. Default: None.
        projection: True: only LSTMs with `num_proj`. False: no `num_proj`. None: both. Default: None.

    Returns:
        A strategy for `RNNSpec`.

    Raises:
        ArgumentError: an unknown word, an empty list, limits that exclude each other, or words that no RNN has
            together.
        ArgumentTypeError: an argument of the wrong type, such as one word for a list of words.

    Example:
        >>> from hypothesis import given, settings
        >>> from pycudnnrnn.testing import strategies
        >>> @settings(max_examples=5, database=None, derandomize=True)
        ... @given(strategies.specs(modes=["gru"], max_units=4))
        ... def test_specs(spec):
        ...     assert spec.mode == "gru" and spec.num_units <= 4
        >>> test_specs()
    """
    layers = _limits("layers", min_layers, max_layers)
    units = _limits("units", min_units, max_units, 2 if projection else 1)
    fields = (
        ("algo", _words("algorithms", algorithms, words.Algorithm, (words.Algorithm.STANDARD,))),
        ("mode", _words("modes", modes, RNNMode, tuple(RNNMode))),
        ("dtype", _words("dtypes", dtypes, DType, (DType.FLOAT64, DType.FLOAT32))),
        ("math_type", _words("math_types", math_types, words.MathType, (None,))),
        ("compute_dtype", _words("compute_dtypes", compute_dtypes, DType, (None,))),
        ("bias_mode", _words("bias_modes", bias_modes, words.BiasMode, tuple(words.BiasMode))),
        ("input_mode", _words("input_modes", input_modes, InputMode, tuple(InputMode))),
        ("direction", _words("directions", directions, Direction, tuple(Direction))),
        ("num_proj", _with_and_without("projection", projection, 1) if units[1] > 1 else (None,)),
        ("cell_clip", _with_and_without("clip", clip, 1.0)),
    )
    valid = _valid(fields)

    @st.composite
    def drawn(draw: Callable[[Any], Any]) -> RNNSpec:
        kinds = valid
        # Every draw is made, even without an effect: Hypothesis regards a spec of fewer draws as the simpler one.
        for name, asked in fields:
            values = list(dict.fromkeys(kind[name] for kind in kinds))
            index = 0 if name == "dtype" and dtypes is None else draw(st.integers(0, len(asked) - 1))
            kinds = [kind for kind in kinds if kind[name] == values[index % len(values)]]
        kind = dict(kinds[0])
        num_units = draw(st.integers(max(units[0], 2 if kind["num_proj"] else 1), units[1]))
        width = draw(st.integers(1, min(units[1] + 2, INT32_MAX)))
        if kind["num_proj"]:
            kind["num_proj"] = draw(st.integers(1, num_units - 1))
        if kind["cell_clip"]:
            kind["cell_clip"] = draw(st.floats(0.05, 1.0) | st.tuples(st.floats(-1, -0.05), st.floats(0.05, 1)))
        return RNNSpec(
            num_layers=draw(st.integers(*layers)),
            num_units=num_units,
            input_size=num_units if kind["input_mode"] == InputMode.SKIP_INPUT else width,
            **kind,
        )

    return drawn()


def _words(name: str, values: Any, enum: type[StrEnum], usual: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a list of words as members of their enum; `usual` for None. None is also a word where it is usual."""
    if values is None:
        return usual
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ArgumentTypeError(name, "a list of words", shorten(values))
    parse: Callable[[str, Any], Any] = parse_dtype if enum is DType else functools.partial(check_word, enum)
    members = tuple(None if word is None and None in usual else parse(name, word) for word in values)
    if not members:
        raise ArgumentError(name, "at least one word", shorten(values))
    return members


def _with_and_without(name: str, chosen: bool | None, value: float) -> tuple[float | None, ...]:
    if chosen is None:
        return None, value
    return (value,) if check_bool(name, chosen) else (None,)


def _limits(name: str, low: int, high: int, least: int = 1) -> tuple[int, int]:
    """Return the limits `min_<name>` and `max_<name>`, of which the second is the one that can be too small."""
    low = check_int(f"min_{name}", low, 1, INT32_MAX)
    return low, check_int(f"max_{name}", high, max(low, least), INT32_MAX)


@functools.lru_cache(maxsize=256)
def _valid(fields: Fields) -> list[dict[str, Any]]:
    """List the combinations that `RNNSpec` accepts. Without one, raise what it says about the first."""
    names, values = zip(*fields, strict=True)
    valid, refusals = [], []
    for members in itertools.product(*values):
        kind = dict(zip(names, members, strict=True))
        try:
            RNNSpec(num_layers=1, num_units=2, input_size=2, **kind)
            valid.append(kind)
        except ArgumentError as error:
            refusals.append(error)
    if not valid:
        raise refusals[0]
    return valid


def sequence_lengths(T: int, B: int, *, least: int = 0) -> st.SearchStrategy[list[int] | None]:
    """Draw the lengths of sequences, or None, which means T for all. 0, 1 and T are frequent.

    Args:
        T: number of steps, the greatest length.
        B: number of sequences.
        least: smallest length. Default: 0.

    Returns:
        A strategy for lists of B integers, and None.

    Raises:
        ArgumentError, ArgumentTypeError: an argument that is not an integer of its range.

    Example:
        >>> from hypothesis import given, settings
        >>> from pycudnnrnn.testing import strategies
        >>> @settings(max_examples=5, database=None, derandomize=True)
        ... @given(strategies.sequence_lengths(T=6, B=3))
        ... def test_lengths(lengths):
        ...     assert lengths is None or max(lengths) <= 6
        >>> test_lengths()
    """
    T, B = check_int("T", T, 0, INT32_MAX), check_int("B", B, 0, INT32_MAX)
    least = check_int("least", least, 0, T)
    often = sorted({n for n in (least, 1, T) if least <= n <= T})
    length = st.sampled_from(often) | st.integers(least, T)
    return st.none() | st.lists(length, min_size=B, max_size=B)


def problems(
    spec: RNNSpec | st.SearchStrategy[RNNSpec] | None = None,
    *,
    max_time: int = 6,
    max_batch: int = 4,
    least_length: int = 0,
    least_time: int = 1,
    elements: st.SearchStrategy[float] | None = None,
) -> st.SearchStrategy[Problem]:
    """Draw whole calls: an op, its params, data, states, lengths and upstream gradients.

    Args:
        spec: the spec, or a strategy for it. None: `specs()`. Default: None.
        max_time: most steps. Default: 6.
        max_batch: most sequences. Default: 4.
        least_length: smallest length of a sequence. Default: 0.
        least_time: fewest steps. With 0, a batch without sequences is possible, too. Default: 1.
        elements: a strategy for numbers. Up to 8 are drawn, and the arrays contain only these: failures shrink to
            arrays of zeros. None: a normal distribution. Default: None.

    Returns:
        A strategy for `Problem`.

    Raises:
        ArgumentError, ArgumentTypeError: an argument that is not of its range or type.

    Example:
        >>> from hypothesis import given, settings
        >>> from hypothesis import strategies as st
        >>> from pycudnnrnn.testing import strategies
        >>> saturated = strategies.problems(max_time=4, elements=st.floats(-99, 99))
        >>> @settings(max_examples=5, database=None, derandomize=True)
        ... @given(saturated)
        ... def test_outputs(problem):
        ...     assert problem.forward().output.shape == problem.dy.shape
        >>> test_outputs()
    """
    check_int("max_time", max_time, check_int("least_time", least_time, 0, INT32_MAX), INT32_MAX)
    check_int("max_batch", max_batch, min(least_time, 1), INT32_MAX)
    check_int("least_length", least_length, 0, INT32_MAX)
    values = st.none() if elements is None else st.lists(elements, min_size=1, max_size=8)
    kinds = specs() if spec is None else _spec_strategy(spec)

    @st.composite
    def drawn(draw: Callable[[Any], Any]) -> Problem:
        op = ops.from_spec(draw(kinds))
        T, B = draw(st.integers(least_time, max_time)), draw(st.integers(min(least_time, 1), max_batch))
        lengths = draw(sequence_lengths(T, B, least=min(least_length, T)))
        return make_problem(op, T, B, lengths, seed=draw(st.integers(0, 2**32 - 1)), values=draw(values))

    return drawn()


def layouts(spec: RNNSpec | st.SearchStrategy[RNNSpec], max_gap: int = 3) -> st.SearchStrategy[ParamLayout]:
    """Draw layouts of the params buffer: the regions in any order, and in half of the layouts gaps around them.

    A layout without gaps has the size of the arithmetic layout, so code that only compares sizes does not see that it
    differs. A failure shrinks to two regions that have changed places, or to one gap if a gap fails as well.
    `testing.LayoutEngine` runs ops in a layout.

    Args:
        spec: the RNN, or a strategy for it.
        max_gap: most elements of padding before and after each region. Default: 3.

    Returns:
        A strategy for `ParamLayout`.

    Raises:
        ArgumentError, ArgumentTypeError: an argument that is not of its range or type.

    Example:
        >>> from hypothesis import given, settings
        >>> from pycudnnrnn import RNNSpec, ops, testing
        >>> from pycudnnrnn.testing import strategies
        >>> spec = RNNSpec("gru", 1, num_units=3, input_size=2)
        >>> @settings(max_examples=5, database=None, derandomize=True)
        ... @given(strategies.layouts(spec))
        ... def test_first_bias(layout):
        ...     op = ops.from_spec(spec)
        ...     with testing.use_engine(testing.LayoutEngine(layout)):
        ...         params = op.init_params(seed=1)
        ...         assert not params[op.layout().biases[0].slice].any()
        >>> test_first_bias()
    """
    kinds, gap = _spec_strategy(spec), st.integers(0, check_int("max_gap", max_gap, 0, INT32_MAX))

    @st.composite
    def drawn(draw: Callable[[Any], Any]) -> ParamLayout:
        regions = list(arithmetic_layout(draw(kinds)).regions)
        order = draw(st.permutations([place for place, region in enumerate(regions) if region.size]))
        padded = draw(st.booleans())
        # Gaps are drawn even without an effect: Hypothesis looks longer where there are more possibilities.
        end = padded * draw(gap)
        for place in order:
            regions[place] = dataclasses.replace(regions[place], offset=end)
            end += regions[place].size + padded * draw(gap)
        return ParamLayout(end, tuple(regions))

    return drawn()


def _spec_strategy(spec: Any) -> Any:
    """Return a spec, or a strategy for specs, as a strategy."""
    check_type("spec", spec, (RNNSpec, st.SearchStrategy), "an RNNSpec or a strategy for one")
    return st.just(spec) if isinstance(spec, RNNSpec) else spec
