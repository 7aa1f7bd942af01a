"""What commands share in what they print."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPED_WIDTH = 160
"""Columns where standard output is not a terminal: names in files are long, and nobody sees them wrap."""


def console() -> Console:
    """Give the console of standard output; text goes there as it is."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH
    return Console(highlight=False, markup=False, emoji=False, width=width)


def echo_json(value: Any) -> None:
    """Print one JSON value on standard output; a number that JSON does not have becomes null."""
    click.echo(json.dumps(_finite(value), indent=1, allow_nan=False))


def table(columns: list[str], rows: list[list[Any]]) -> Table:
    """Make a table whose cells are text as it is: a shape in brackets is no markup, and nothing steers the terminal.

    The first column gives way in a narrow terminal, and nothing is cut off.
    """
    made = Table(header_style="bold", box=box.SIMPLE_HEAD)
    for i, column in enumerate(columns):
        made.add_column(column, overflow="fold", no_wrap=i > 0)
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(printable(str(cell))) for cell in row))
    return made


def printable(text: str) -> str:
    """Write control characters as escapes: a file's names may be chosen by anybody."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
