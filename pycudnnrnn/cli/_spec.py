"""A spec on the command line: the arguments of `RNNSpec` under their own names."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

import click
from click.core import ParameterSource

from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.spec import AUTO_SELECT, INT32_MAX, Algorithm, BiasMode, Direction, DType, InputMode, RNNMode, RNNSpec

Command = Callable[..., None]


def read_clip(_: click.Context, __: click.Parameter, value: str | None) -> float | tuple[float, ...] | None:
    """Read one bound, or two that are separated by a comma."""
    if value is None:
        return None
    try:
        bounds = tuple(float(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither a number nor two numbers separated by a comma") from None
    return bounds[0] if len(bounds) == 1 else bounds


def spec_arguments(command: Command) -> Command:
    """Add the arguments MODE NUM_LAYERS NUM_UNITS INPUT_SIZE and an option for each field that a layout can depend on.

    In place of all of them, --spec takes the spec's JSON. The command receives `spec`. A combination that cuDNN has no
    RNN for is a usage error.
    """
    fields = {field.name for field in dataclasses.fields(RNNSpec)}

    @functools.wraps(command)
    def with_spec(*, spec: str | None, **options: Any) -> None:
        named = {name: value for name, value in options.items() if name in fields}
        try:
            parsed = _spec(spec, named)
        except ArgumentError as error:
            raise click.UsageError(str(error)) from None
        command(spec=parsed, **{name: value for name, value in options.items() if name not in fields})

    decorated: Command = with_spec
    for decorate in reversed(PARAMETERS):
        decorated = decorate(decorated)
    return decorated


def _spec(text: str | None, named: dict[str, Any]) -> RNNSpec:
    source = click.get_current_context().get_parameter_source
    for name, value in named.items():
        if text is None and name in SIZES and value is None:
            raise click.UsageError(f"Missing argument '{name.upper()}', or --spec for all of them.")
        if text is not None and source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--spec has the whole spec: leave out {name.upper()}.")
    return RNNSpec(**named) if text is None else RNNSpec.from_json(text)


def _choice(enum: type[StrEnum], *more: str) -> click.Choice[str]:
    return click.Choice([*map(str, enum), *more])


def _option(name: str, kind: Any, default: Any, text: str) -> Callable[[Command], Command]:
    return click.option(name, type=kind, default=default, show_default=default is not None, help=text)


SIZE: Final = click.IntRange(1, INT32_MAX)

SIZES: Final = ("mode", "num_layers", "num_units", "input_size")
"""The arguments of each spec."""

PARAMETERS: Final[tuple[Callable[[Command], Command], ...]] = (
    click.argument("mode", type=_choice(RNNMode), required=False),
    *(click.argument(name, type=SIZE, required=False) for name in SIZES[1:]),
    click.option("--spec", metavar="JSON", help="The spec as RNNSpec.to_json writes it, in place of the arguments."),
    _option("--direction", _choice(Direction), str(Direction.UNIDIRECTIONAL), "One direction, or both."),
    _option("--dtype", _choice(DType), str(DType.FLOAT32), "Element type of data and params."),
    _option(
        "--input-mode", _choice(InputMode, AUTO_SELECT), str(InputMode.LINEAR_INPUT), "How layer 0 uses its input."
    ),
    _option("--bias-mode", _choice(BiasMode), str(BiasMode.DOUBLE), "Which biases each gate has."),
    _option("--num-proj", SIZE, None, "Units of the LSTM's projection."),
    click.option(
        "--cell-clip", metavar="BOUND|LOW,HIGH", callback=read_clip, help="Limit the LSTM's cell state to this range."
    ),
    _option("--algo", _choice(Algorithm), str(Algorithm.STANDARD), "cuDNN's algorithm."),
)
