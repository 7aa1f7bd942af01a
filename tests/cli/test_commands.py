"""What all commands share."""

import pytest

from pycudnnrnn import __version__
from pycudnnrnn.cli.commands import pycudnnrnn
from pycudnnrnn.errors import CudnnError, EngineError

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


@pytest.mark.parametrize(
    "error",
    [
        EngineError("There is none.", ("wheel: none", "conda: none")),
        CudnnError("cudnnCreate", 1001, "NOT_INITIALIZED", "NOT_INITIALIZED", 92800, "", "see nvidia-smi"),
        OSError(28, "No space left on device", "a.png"),
    ],
)
def test_an_error_of_several_lines_is_one_line_here(run, monkeypatch, error):
    def fail(_):
        raise error

    monkeypatch.setattr("pycudnnrnn.cli.layout.arithmetic_layout", fail)
    code, out, err = run("layout", "lstm", "1", "4", "3")
    assert (code, out) == (1, "")
    assert err.startswith("pycudnnrnn: ")
    assert len(err.splitlines()) == 1
    told = "a.png: No space left on device" if isinstance(error, OSError) else str(error)
    assert all(line.strip() in err for line in told.splitlines())


def test_without_a_command_the_help_is_printed(run):
    assert run() == (0, run("--help")[1], "")


def test_an_unknown_command_is_wrong_usage_and_the_version_is_told(run):
    code, _, err = run("dmeo")
    assert (code, "No such command" in err) == (2, True)
    assert run("--version") == (0, f"pycudnnrnn, version {__version__}\n", "")
