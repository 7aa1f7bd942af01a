"""What is printed, whatever a file holds and wherever it goes: every terminal, closed and full streams, pipes."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from safetensors.numpy import save_file

from pycudnnrnn.cli import printable
from pycudnnrnn.cli._output import SafeConsole, print_table
from pycudnnrnn.errors import EngineError, PycudnnrnnError

ROOT = Path(__file__).parents[2]
HOSTILE = "a\x1b]0;owned\x07\x1b[31m\u202egnp.\u2066\udc80\u0085é☃\nchecksum: right"
"""A title, a colour, text read backwards, half a surrogate pair, and a line that is not ours."""


def process(arguments, *, shell=""):
    """Run `pycudnnrnn` in a process, with a shell's redirections after its arguments."""
    command = f'exec "{sys.executable}" -m pycudnnrnn {arguments} {shell}'
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False, cwd=ROOT, env=usual)
    return done.returncode, done.stdout, done.stderr


def is_plain(text):
    return all(line.isprintable() for line in text.split("\n"))


@pytest.fixture
def hostile_file(tmp_path):
    """A file of hostile names, under a hostile name."""
    path = tmp_path / f"{HOSTILE.replace('/', '')}.safetensors"
    save_file({HOSTILE.replace("\udc80", ""): np.ones((2, 3), "f4"), "plain": np.ones(1, "f4")}, path)
    return path


def test_names_in_files_and_of_files_are_written_out_wherever_they_are_printed(run, hostile_file, tmp_path):
    code, out, err = run("inspect", hostile_file)
    assert (code, err, is_plain(out), "\\x1b]0;owned" in out) == (0, "", True, True)
    assert not any(line.strip().startswith("checksum: right") for line in out.splitlines())
    json.loads(run("inspect", hostile_file, "--json")[1])
    for arguments in (
        ["convert", hostile_file, "x.onnx", "--from", "flax"],  # the keys are in the error
        ["inspect", tmp_path / HOSTILE], ["convert", tmp_path / HOSTILE, "x.pt"], [HOSTILE], ["layout", HOSTILE],
        ["convert", hostile_file, "x.pt", "--from", "flax", "-s", HOSTILE],
    ):  # fmt: skip
        code, out, err = run(*arguments)
        assert code in (1, 2)
        assert is_plain(out + err)
        assert "owned" in err
        assert code == 2 or len(err.splitlines()) == 1


def test_a_console_lets_nothing_through_but_its_own_colours():
    stream = io.StringIO()
    out = SafeConsole(
        file=stream, force_terminal=True, color_system="standard", width=80, markup=False, highlight=False
    )
    out.print(HOSTILE.replace("\n", "|"), style="red")
    out.say(HOSTILE)
    print_table(out, ["name"], [[HOSTILE]])
    assert is_plain(re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()))
    assert "\x1b[31ma\\x1b]0;owned" in stream.getvalue()
    assert printable("plain é ☃") == "plain é ☃"


@pytest.mark.parametrize("arguments", ["layout lstm 1 4 3", pytest.param("info --json", marks=pytest.mark.long)])
def test_closed_and_full_streams_are_one_line_and_an_exit_status(arguments):
    assert process(arguments, shell=">&-") == (1, b"", b"pycudnnrnn: standard input, output or error is closed\n")
    code, out, err = process(arguments, shell=">/dev/full")
    assert (code, out, len(err.splitlines()), b"No space left" in err) == (1, b"", 1, True)
    assert process(arguments, shell=">/dev/full 2>/dev/full") == (1, b"", b"")
    assert process(arguments, shell="2>&-") == (1, b"", b""), "a file that is opened would be the stream"


def test_a_reader_that_leaves_is_no_error():
    code, out, err = process("layout lstm 60 4 3 --json", shell="| head -n 1")
    assert (code, out, err) == (0, b"{\n", b"")


@pytest.mark.parametrize("columns", ["x", "1", "40", "9" * 30])
def test_a_terminal_of_any_width_gets_every_word_and_every_column(run, monkeypatch, columns):
    expected = [line.split() for line in run("layout", "lstm", "1", "4", "3")[1].splitlines() if "forward" in line]
    with monkeypatch.context() as only_here:  # pytest looks at it, too, when it reports
        only_here.setenv("COLUMNS", columns)
        code, out, err = run("layout", "lstm", "1", "4", "3")
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines() if "forward" in line] == expected
    assert max(map(len, out.splitlines())) < 5000


ERRORS = [
    (MemoryError(), 1, "pycudnnrnn: there is not enough memory"),
    (KeyboardInterrupt(), 130, ""),
    (BrokenPipeError(), 1, None),
    (OSError(28, "No space left on device", "a.png"), 1, "pycudnnrnn: a.png: No space left on device"),
    (EngineError("There is none.", ("wheel: none", "conda: none")), 1, "conda: none"),
    (PycudnnrnnError(HOSTILE * 5000), 1, "owned"),
    (click.ClickException(HOSTILE * 5000), 1, "owned"),
    (click.UsageError(HOSTILE * 5000), 2, "owned"),
]


@pytest.mark.parametrize(("error", "status", "text"), ERRORS, ids=[type(error).__name__ for error, *_ in ERRORS])
def test_any_error_is_one_line_that_quotes_a_file_written_out_and_not_at_length(run, monkeypatch, error, status, text):
    def fail(_):
        raise error

    monkeypatch.setattr("pycudnnrnn.cli.layout.arithmetic_layout", fail)
    code, out, err = run("layout", "lstm", "1", "4", "3")
    assert (code, out) == (status, "")
    assert is_plain(err)
    assert text in err if text is not None else not err
    assert len(err) < 6000
    assert status == 2 or len(err.splitlines()) <= 1
    assert not any(line.startswith("checksum") for line in err.splitlines())
