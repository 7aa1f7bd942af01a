"""The command group."""

from __future__ import annotations

from typing import Any, Final

import click

import pycudnnrnn as package
from pycudnnrnn.cli.check import check
from pycudnnrnn.cli.convert import convert
from pycudnnrnn.cli.info import info
from pycudnnrnn.cli.inspect import inspect
from pycudnnrnn.cli.layout import layout

MOVED: Final = {"bench": "python -m benchmarks", "demo": "make demo"}
"""Commands of earlier versions, and what to run in a checkout instead."""


class Commands(click.Group):
    """The group of commands, which knows those that moved."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] in MOVED:
            raise click.UsageError(f"{args[0]!r} is not a command any more: run `{MOVED[args[0]]}` in a checkout", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
)
@click.version_option(package.__version__, prog_name="pycudnnrnn")
@click.pass_context
def pycudnnrnn(context: click.Context) -> None:
    """Run, inspect and convert RNNs that follow cuDNN's semantics."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in (check, convert, info, inspect, layout):
    pycudnnrnn.add_command(_command)
