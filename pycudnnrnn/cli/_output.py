"""Print lines, tables and JSON: shared by all commands."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from pycudnnrnn.cli import printable, printable_lines

WIDTH: Final = 4096
"""Columns of the console: the terminal wraps its lines, so that nothing of a table is cut off."""


class SafeConsole(Console):
    """A console that escapes all control sequences except its own colours."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable_lines(segment.text))

    def say(self, text: str) -> None:
        """Print one line without wrapping it; the terminal may wrap it."""
        self.print(printable(text), soft_wrap=True)


def console(*, stderr: bool = False) -> SafeConsole:
    """Return the console of standard output, or of standard error, without markup."""
    return SafeConsole(highlight=False, markup=False, emoji=False, stderr=stderr, width=WIDTH)


def echo_json(value: Any) -> None:
    """Print one JSON value on standard output. NaN and infinity become null."""
    click.echo(json.dumps(_finite(value), indent=1, allow_nan=False))


def print_table(out: SafeConsole, columns: Sequence[str], rows: list[list[Any]]) -> None:
    """Print a table. Its cells are plain text, without markup."""
    table = Table(header_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(printable(str(cell))) for cell in row))
    out.print(table)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
