"""A spec on the command line: the arguments of `RNNSpec` under their own names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

import click

from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.spec import (
    AUTO_SELECT,
    INT32_MAX,
    SEED_MAX,
    Algorithm,
    BiasMode,
    Direction,
    DType,
    InputMode,
    MathType,
    RNNMode,
    RNNSpec,
)

Command = Callable[..., None]
Decorator = Callable[[Command], Command]


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
    """Add the arguments MODE NUM_LAYERS NUM_UNITS INPUT_SIZE and an option for each other field of a spec.

    The command receives `spec`. A combination that cuDNN has no RNN for is a usage error.
    """

    @functools.wraps(command)
    def with_spec(**given: Any) -> None:
        fields = {name: given.pop(name) for name in (*ARGUMENTS, *OPTIONS)}
        try:
            spec = RNNSpec(**fields)
        except ArgumentError as error:
            raise click.UsageError(str(error)) from None
        command(spec=spec, **given)

    decorated: Command = with_spec
    for decorate in reversed([*ARGUMENTS.values(), *OPTIONS.values()]):
        decorated = decorate(decorated)
    return decorated


def _size(name: str) -> Decorator:
    return click.argument(name, type=click.IntRange(1, INT32_MAX))


def _choice(enum: type[StrEnum], *more: str) -> click.Choice[str]:
    return click.Choice([*map(str, enum), *more])


def _option(name: str, kind: Any, default: Any, text: str) -> Decorator:
    flag = f"--{name.replace('_', '-')}"
    return click.option(flag, name, type=kind, default=default, show_default=default is not None, help=text)


ARGUMENTS: Final[dict[str, Decorator]] = {
    "mode": click.argument("mode", type=_choice(RNNMode)),
    "num_layers": _size("num_layers"),
    "num_units": _size("num_units"),
    "input_size": _size("input_size"),
}

OPTIONS: Final[dict[str, Decorator]] = {
    "direction": _option("direction", _choice(Direction), str(Direction.UNIDIRECTIONAL), "One direction, or both."),
    "dtype": _option("dtype", _choice(DType), str(DType.FLOAT32), "Element type of data and params."),
    "input_mode": _option(
        "input_mode", _choice(InputMode, AUTO_SELECT), str(InputMode.LINEAR_INPUT), "How layer 0 uses its input."
    ),
    "bias_mode": _option("bias_mode", _choice(BiasMode), str(BiasMode.DOUBLE), "Which biases each gate has."),
    "num_proj": _option("num_proj", click.IntRange(1, INT32_MAX), None, "Units of the LSTM's projection."),
    "cell_clip": click.option(
        "--cell-clip", metavar="BOUND|LOW,HIGH", callback=read_clip, help="Limit the LSTM's cell state to this range."
    ),
    "dropout": _option("dropout", click.FloatRange(0, 1), 0.0, "Probability of dropout between layers."),
    "seed": _option("seed", click.IntRange(0, SEED_MAX), 0, "Seed of dropout."),
    "algo": _option("algo", _choice(Algorithm), str(Algorithm.STANDARD), "cuDNN's algorithm."),
    "math_type": _option("math_type", _choice(MathType), None, "Use of tensor cores.  [default: depends on dtype]"),
    "compute_dtype": _option("compute_dtype", _choice(DType), None, "Type of arithmetic.  [default: depends on dtype]"),
}
