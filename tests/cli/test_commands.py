"""What all commands share."""

import pytest

from pycudnnrnn import __version__
from pycudnnrnn.cli import command_group

COMMANDS = sorted(command_group().commands)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_by_example_line_by_line(run, command):
    code, out, err = run(command, "--help")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    start = lines.index("  Examples:") + 1
    assert lines[start].startswith((f"    pycudnnrnn {command}", f"    PYCUDNNRNN_LIBRARY=/opt pycudnnrnn {command}"))
    assert "\\b" not in out


def test_without_a_command_the_help_is_printed(run):
    assert run() == (0, run("--help")[1], "")


def test_an_unknown_command_is_wrong_usage_and_the_version_is_told(run):
    code, _, err = run("dmeo")
    assert (code, "No such command" in err) == (2, True)
    assert run("--version") == (0, f"pycudnnrnn, version {__version__}\n", "")
