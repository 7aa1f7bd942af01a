"""`pycudnnrnn layout`: show where each matrix and bias is in the params buffer of an RNN."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from rich.text import Text

from pycudnnrnn import libcudnn
from pycudnnrnn.cli._output import console, echo_json, print_table
from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import ArgumentError, EngineError, MissingDependencyError, version_text
from pycudnnrnn.layout import COLUMNS, Differences, ParamLayout, Region, arithmetic_layout, differences
from pycudnnrnn.spec import AUTO_SELECT, INT32_MAX, Algorithm, BiasMode, Direction, DType, InputMode, RNNMode, RNNSpec
from pycudnnrnn.testing.queried import query

SHOWN: Final = [i for i, column in enumerate(COLUMNS) if column not in {"pseudo-layer", "kind"}]
"""Columns that fit 80: the layer and its direction are the pseudo-layer, and the symbol of a bias begins with b."""


SIZE: Final = click.IntRange(1, INT32_MAX)
SIZES: Final = ("mode", "num_layers", "num_units", "input_size")
"""The arguments of each spec."""


def read_clip(_: click.Context, __: click.Parameter, value: str | None) -> float | tuple[float, ...] | None:
    """Read one bound, or two that are separated by a comma."""
    if value is None:
        return None
    try:
        bounds = tuple(float(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither a number nor two numbers separated by a comma") from None
    return bounds[0] if len(bounds) == 1 else bounds


def _choice(enum: type[StrEnum], *more: str) -> click.Choice[str]:
    return click.Choice([*map(str, enum), *more])


@click.command()
@click.argument("mode", type=_choice(RNNMode), required=False)
@click.argument("num_layers", type=SIZE, required=False)
@click.argument("num_units", type=SIZE, required=False)
@click.argument("input_size", type=SIZE, required=False)
@click.option(
    "--spec", "text", metavar="JSON", help="The spec as RNNSpec.to_json writes it, in place of the arguments."
)
@click.option("--direction", type=_choice(Direction), default=str(Direction.UNIDIRECTIONAL), show_default=True,
              help="One direction, or both.")  # fmt: skip
@click.option("--dtype", type=_choice(DType), default=str(DType.FLOAT32), show_default=True,
              help="Element type of data and params.")  # fmt: skip
@click.option("--input-mode", type=_choice(InputMode, AUTO_SELECT), default=str(InputMode.LINEAR_INPUT),
              show_default=True, help="How layer 0 uses its input.")  # fmt: skip
@click.option("--bias-mode", type=_choice(BiasMode), default=str(BiasMode.DOUBLE), show_default=True,
              help="Which biases each gate has.")  # fmt: skip
@click.option("--num-proj", type=SIZE, help="Units of the LSTM's projection.")
@click.option("--cell-clip", metavar="BOUND|LOW,HIGH", callback=read_clip,
              help="Limit the LSTM's cell state to this range.")  # fmt: skip
@click.option("--algo", type=_choice(Algorithm), default=str(Algorithm.STANDARD), show_default=True,
              help="cuDNN's algorithm.")  # fmt: skip
@click.option("--queried", is_flag=True, help="Ask cuDNN, too, and mark the differences.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.png|.svg|.pdf",
              help="Draw the layout to this file.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def layout(*, text: str | None, queried: bool, output: Path | None, as_json: bool, **arguments: Any) -> None:
    """Show where each matrix and bias is in the params buffer.

    Offsets are in elements. W and bW are applied to the layer's input, R and bR to its previous state; P is the
    projection.

    The layout is computed. With --queried, cuDNN's layout is shown, too, and is the one that is drawn. It is asked on
    the GPU. Without one, libcudnn is asked in a child process, which NVIDIA does not document: the output tells which.
    The exit code is 0 even if the layouts differ: read "equal" in the JSON.

    \b
    Examples:
      pycudnnrnn layout lstm 1 64 32
      pycudnnrnn layout lstm 2 128 40 --direction bidirectional --output a.svg
      pycudnnrnn layout gru 1 76 300 --json | jq '.regions[].offset'
      pycudnnrnn layout rnn_tanh 2 512 512 --dtype float16 --queried
      pycudnnrnn layout --spec "$(cat spec.json)"
    """  # noqa: D301  click reads the \b
    try:
        spec = _spec(text, arguments)
        predicted = arithmetic_layout(spec)
        asked, how = _asked(spec) if queried else (None, {})
        if output is not None:
            from pycudnnrnn import plot  # noqa: PLC0415  matplotlib is slow to import, and only needed here

            plot.draw_layout(asked or predicted, output, title=repr(spec), expected=asked and predicted)
    except ArgumentError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        report = {"spec": json.loads(spec.to_json()), **_described(spec, predicted)}
        if asked is not None:
            moved = [list(key) for key in differences(predicted, asked) if key != "size"]
            report["queried"] = {**how, **_described(spec, asked), "equal": asked == predicted, "differences": moved}
        echo_json(report)
        return
    out = console()
    nbytes = predicted.size * spec.dtype.itemsize
    out.say(repr(spec))
    out.say(f"computed: {predicted.size:,} elements, {nbytes:,} bytes")
    columns = [COLUMNS[i] for i in SHOWN]
    rows: list[list[Any]] = [[region.cells[i] for i in SHOWN] for region in predicted.regions]
    if asked is not None:
        different = differences(predicted, asked)
        count = len(different.keys() - {"size"})
        verdict = f"{count} regions differ" if count else "the size differs" if different else "equal"
        out.say(f"asked of cuDNN {how['cudnn']} {how['asked']}: {asked.size:,} elements; {verdict}")
        if how["why"]:
            out.say(f"  {how['why']}")
        columns += ["cuDNN's offset", ""]
        rows = [cells + _compared(r, different) for cells, r in zip(rows, predicted.regions, strict=True)]
    print_table(out, columns, rows)
    if output is not None:
        out.say(f"drawn: {output}")


def _spec(text: str | None, arguments: dict[str, Any]) -> RNNSpec:
    """Return the spec of the arguments, or of the JSON that takes the place of all of them."""
    source = click.get_current_context().get_parameter_source
    for name, value in arguments.items():
        if text is None and name in SIZES and value is None:
            raise click.UsageError(f"Missing argument '{name.upper()}', or --spec for all of them.")
        if text is not None and source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--spec has the whole spec: leave out {name.upper()}.")
    return RNNSpec(**arguments) if text is None else RNNSpec.from_json(text)


def _asked(spec: RNNSpec) -> tuple[ParamLayout, dict[str, Any]]:
    """Return cuDNN's layout, and how it was asked: on the GPU, or in a child process and why not on a GPU."""
    try:
        engine = engine_for("cuda")
    except (EngineError, MissingDependencyError) as error:
        asked, version = query(spec)
        return asked, {"cudnn": version_text(version), "asked": "without a GPU", "why": str(error)}
    version = libcudnn.load().version
    return engine.layout(spec), {"cudnn": version_text(version), "asked": f"on {engine.device}", "why": None}


def _compared(region: Region, different: Differences) -> list[Any]:
    if region.key not in different:
        return [f"{region.offset:,}", "="]
    other = different[region.key][1]
    return ["none" if other is None else f"{other.offset:,}", Text("≠ differs", style="bold red")]


def _described(spec: RNNSpec, layout: ParamLayout) -> dict[str, Any]:
    names = ("pseudo_layer", "layer", "lin_layer_id", "gate", "kind", "side", "offset", "shape")
    regions = [
        {name: getattr(region, name) for name in names} | {"direction": region.pseudo_layer % region.num_dirs}
        for region in layout.regions
    ]
    return {"size": layout.size, "nbytes": layout.size * spec.dtype.itemsize, "regions": regions}
