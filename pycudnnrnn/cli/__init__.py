"""The command line: `pycudnnrnn COMMAND`, one file per command. Needs the extra "cli"."""

from __future__ import annotations

import sys

from pycudnnrnn.errors import MissingDependencyError, PycudnnrnnError


def main() -> None:
    """Run the command line; exit with 0 when it worked, 1 on an error of ours, 2 on wrong usage."""
    try:
        try:
            import click  # noqa: PLC0415, F401
            import rich  # noqa: PLC0415, F401
        except ImportError as error:
            raise MissingDependencyError(str(error.name), "cli", "the command line", "click rich") from error
        from pycudnnrnn.cli.commands import pycudnnrnn  # noqa: PLC0415

        pycudnnrnn()
    except (PycudnnrnnError, OSError) as error:
        lines = [line.strip() for line in str(error).splitlines()]
        sys.stderr.write(f"pycudnnrnn: {' '.join(lines)}\n")
        sys.exit(1)
