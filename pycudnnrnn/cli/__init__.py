"""The command line: `pycudnnrnn COMMAND`, one file or package per command."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any, Final, TextIO

from pycudnnrnn.errors import PycudnnrnnError

ERROR_MAX: Final = 4000
"""Most characters of an error that are printed: it may quote a whole file."""

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as in shells: 128 and SIGINT's number."""


def main() -> None:
    """Run the command line; exit with 0 when it worked, 1 on an error, 2 on wrong usage, 130 on Ctrl-C."""
    try:
        _open_streams()
        status = _run()
        sys.stdout.flush()
        sys.exit(status)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader has closed the pipe
        sys.exit(1)
    except MemoryError:
        sys.exit(_failed("there is not enough memory"))
    except OSError as error:
        sys.exit(_failed(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)))
    except (PycudnnrnnError, ImportError) as error:
        sys.exit(_failed(str(error)))
    finally:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            _leave(stream)


def printable(text: str) -> str:
    """Escape characters that are not printable: escape sequences, line ends, marks that reverse the text.

    Everything that commands print passes through here: tables, lines, hints, errors and progress.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    """Escape each line by itself, and keep the line ends."""
    return "\n".join(map(printable, text.split("\n")))


def command_group() -> Any:
    """Return the click group of all commands."""
    import click  # noqa: PLC0415 here, Ctrl-C ends the import without a traceback

    import pycudnnrnn as package  # noqa: PLC0415
    from pycudnnrnn.cli import check, convert, info, inspect, layout  # noqa: PLC0415

    @click.group(
        commands=[check.check, convert.convert, info.info, inspect.inspect, layout.layout],
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

    return pycudnnrnn


def _run() -> int:
    import click  # noqa: PLC0415

    try:
        return int(command_group().main(standalone_mode=False) or 0)
    except click.ClickException as error:
        context: click.Context | None = getattr(error, "ctx", None)
        if context is not None:
            hint = f"Try '{context.command_path} {context.help_option_names[0]}' for help."
            sys.stderr.write(printable_lines(f"{context.get_usage()}\n{hint}\n\n"))
        sys.stderr.write(f"Error: {_shown(error.format_message())}\n")
        return error.exit_code
    except click.Abort:
        return INTERRUPTED


def _open_streams() -> None:
    """Escape characters that the streams cannot encode. Refuse to run with one that is closed.

    A file opened later would get its number, and receive what is printed.
    """
    if None in (sys.stdin, sys.stdout, sys.stderr):
        raise OSError("standard input, output or error is closed")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _failed(text: str) -> int:
    with contextlib.suppress(OSError, AttributeError):  # it may be closed
        sys.stderr.write(f"pycudnnrnn: {_shown(text)}\n")
    return 1


def _shown(text: str) -> str:
    """Return an error as one line."""
    line = printable(" ".join(line.strip() for line in text.splitlines()))
    return line if len(line) <= ERROR_MAX else f"{line[:ERROR_MAX]}..."


def _leave(stream: TextIO) -> None:
    """Flush, and discard what cannot be written: the interpreter would try again at exit, and print a traceback."""
    try:
        stream.flush()
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
