"""A spec on the command line: the arguments of `RNNSpec` under their own names."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

import click

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

    The command receives `spec`. A combination that cuDNN has no RNN for is a usage error.
    """
    fields = {field.name for field in dataclasses.fields(RNNSpec)}

    @functools.wraps(command)
    def with_spec(**given: Any) -> None:
        try:
            spec = RNNSpec(**{name: value for name, value in given.items() if name in fields})
        except ArgumentError as error:
            raise click.UsageError(str(error)) from None
        command(spec=spec, **{name: value for name, value in given.items() if name not in fields})

    decorated: Command = with_spec
    for decorate in reversed(PARAMETERS):
        decorated = decorate(decorated)
    return decorated


def _choice(enum: type[StrEnum], *more: str) -> click.Choice[str]:
    return click.Choice([*map(str, enum), *more])


def _option(name: str, kind: Any, default: Any, text: str) -> Callable[[Command], Command]:
    return click.option(name, type=kind, default=default, show_default=default is not None, help=text)


SIZE: Final = click.IntRange(1, INT32_MAX)

PARAMETERS: Final[tuple[Callable[[Command], Command], ...]] = (
    click.argument("mode", type=_choice(RNNMode)),
    *(click.argument(name, type=SIZE) for name in ("num_layers", "num_units", "input_size")),
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
