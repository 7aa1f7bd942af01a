"""What all commands share."""

import json
import subprocess
import sys

import pytest

from pycudnnrnn.cli.commands import pycudnnrnn

COMMANDS = sorted(pycudnnrnn.commands)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_by_example_line_by_line(run, command):
    code, out, err = run(command, "--help")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    start = lines.index("  Examples:") + 1
    assert lines[start].startswith((f"    pycudnnrnn {command}", f"    PYCUDNNRNN_LIBRARY=/opt pycudnnrnn {command}"))
    assert "\\b" not in out


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option_is_wrong_usage(run, command):
    code, out, err = run(command, "--nonsense")
    assert (code, out) == (2, "")
    assert "--nonsense" in err


def test_json_is_alone_on_standard_output_of_a_process():
    for arguments in (["info"], ["layout", "lstm", "1", "4", "3"], ["check"]):
        command = [sys.executable, "-m", "pycudnnrnn", *arguments, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        json.loads(done.stdout)
