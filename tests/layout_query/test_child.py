"""The child process that asks a libcudnn without a GPU: one for many specs, and its end is an error or no trace."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from pycudnnrnn import RNNSpec, testing
from pycudnnrnn.errors import ArgumentTypeError, EngineError
from pycudnnrnn.layout import arithmetic_layout
from pycudnnrnn.testing import queried
from tests.helpers.exits import FORKS

ROOT = Path(__file__).parents[2]
SPEC = RNNSpec("lstm", 2, 4, 3, direction="bidirectional", num_proj=2)


@pytest.fixture
def children(lib):
    """The children of this process, none at first."""
    queried._end_all()
    yield queried._children
    queried._end_all()


def pid_of(children):
    (child,) = children.values()
    return child._process.pid


def test_one_child_serves_all_specs_and_all_threads(children):
    specs = [SPEC.replace(num_units=units) for units in range(3, 23)]
    testing.queried_layout(SPEC)
    pid = pid_of(children)
    with ThreadPoolExecutor(len(specs)) as threads:
        assert list(threads.map(testing.queried_layout, specs)) == list(map(arithmetic_layout, specs))
    assert pid_of(children) == pid


def test_a_child_that_ends_is_an_error_that_names_how_and_the_next_query_starts_another(children):
    testing.queried_layout(SPEC)
    first = pid_of(children)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(EngineError, match=r"libcudnn.so.9 ended the process .* a GPU \(SIGKILL\): ask on a"):
        testing.queried_layout(SPEC)
    assert not children
    assert testing.queried_layout(SPEC) == arithmetic_layout(SPEC)
    with pytest.raises(ChildProcessError):  # it has been waited for
        os.waitpid(first, os.WNOHANG)


def test_a_library_that_reads_the_handle_is_an_error_and_what_it_prints_is_no_answer(children, monkeypatch, capfd):
    """The log of cuDNN itself does, and can print to standard output."""
    with monkeypatch.context() as patch:
        patch.setenv("CUDNN_LOGLEVEL_DBG", "3")
        patch.setenv("CUDNN_LOGDEST_DBG", "stdout")
        with pytest.raises(EngineError, match="SIGSEGV"):
            testing.queried_layout(SPEC)
    assert "cudnnSetRNNDescriptor" in capfd.readouterr().err
    assert testing.queried_layout(SPEC) == arithmetic_layout(SPEC)


def test_an_interrupted_query_leaves_no_answer_behind(children, monkeypatch):
    testing.queried_layout(SPEC)
    (child,) = children.values()
    with monkeypatch.context() as patch:
        patch.setattr(queried.pickle, "load", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            testing.queried_layout(SPEC)
    assert child._process.returncode == -signal.SIGKILL
    other = SPEC.replace(num_units=7)
    assert testing.queried_layout(other) == arithmetic_layout(other)


def test_errors_of_the_child_are_raised_here_and_it_lives_on(children, tmp_path):
    broken = tmp_path / "libcudnn.so.9"
    with pytest.raises(EngineError, match="names no file"):
        testing.queried_layout(SPEC, broken)
    broken.write_bytes(b"no ELF")
    pids = []
    for _ in range(2):
        with pytest.raises(EngineError, match="cannot be used"):
            testing.queried_layout(SPEC, broken)
        pids.append(pid_of(children))
    assert pids[0] == pids[1]
    with pytest.raises(ArgumentTypeError, match="spec"):
        testing.queried_layout("lstm")


PROLOGUE = """
from pycudnnrnn import RNNSpec, testing
from pycudnnrnn.layout import arithmetic_layout
from pycudnnrnn.testing import queried

SPEC = RNNSpec("gru", 1, 3, 2)

def ask():
    assert testing.queried_layout(SPEC) == arithmetic_layout(SPEC)
    return [child._process.pid for child in queried._children.values()]

first = ask()
"""


def run_code(code):
    strict = ["-X", "dev", "-W", "error", "-W", "ignore:This process"]  # Python 3.12 warns of a fork beside threads
    command = [sys.executable, *strict, "-c", PROLOGUE + code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_forked_process_asks_a_child_of_its_own_and_leaves_the_parents(lib):
    """Also while another thread asks: nothing hangs, and each answer is for its own question."""
    code = """
import os, sys, threading

pid = os.fork()
if pid == 0:
    sys.exit(7 * (ask() != first))
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
done = threading.Event()

def go_on():
    while not done.is_set():
        ask()

asking = threading.Thread(target=go_on)
asking.start()
COUNT, EXPECTED = 3, 7
"""
    forks = FORKS.replace("os._exit(0)", "done.set(); asking.join(); assert ask() == first; sys.exit(0)")
    done = run_code(code + forks + "\nassert ask() != first\nsys.exit(7)\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "all ended\n", "")


@pytest.mark.parametrize("end", ["", "os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_the_child_ends_with_its_parent_however_that_ends(lib, end):
    done = run_code(f"import os, signal\nprint(*first, flush=True)\n{end}\n")
    (pid,) = map(int, done.stdout.split())
    assert done.stderr == ""
    status = Path(f"/proc/{pid}/cmdline")
    while status.exists() and b"testing.queried" in status.read_bytes():  # until whoever adopted it has waited for it
        pass
