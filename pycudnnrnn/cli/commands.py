"""The command group."""

from __future__ import annotations

import click

import pycudnnrnn as package
from pycudnnrnn.cli.check import check
from pycudnnrnn.cli.convert import convert
from pycudnnrnn.cli.info import info
from pycudnnrnn.cli.inspect import inspect
from pycudnnrnn.cli.layout import layout


@click.group(
    commands=[check, convert, info, inspect, layout],
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
