"""What is started for a GPU is ended with all that it has started, whoever is stopped, and whenever."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.gpu import processes
from tests.gpu.results_file import ResultsFile

ROOT = Path(__file__).parents[2]
STARTS_A_CHILD = "echo begun; echo worse >&2; sleep 1000 & echo $! > {pid}; wait"


def gone(pid):
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def until(condition):
    while not condition():
        time.sleep(0.05)


def test_what_ends_by_itself_is_returned_with_its_code_and_both_its_texts():
    assert processes.run(["bash", "-c", "echo a; echo b >&2; exit 3"], 600) == (3, "a\n", "b\n")
    assert processes.run(["bash", "-c", "echo a; echo b >&2"], 600, stderr=subprocess.STDOUT) == (0, "a\nb\n", "")


def test_what_ends_by_itself_leaves_nothing_that_it_has_started(tmp_path):
    pid = tmp_path / "pid"
    background = f"sleep 1000 & echo $! > {pid}; echo begun"
    assert processes.run(["bash", "-c", background], 600) == (0, "begun\n", "")
    until(lambda: gone(pid.read_text().strip()))


def test_what_takes_too_long_is_ended_with_what_it_started(tmp_path):
    pid = tmp_path / "pid"
    code, out, err = processes.run(["bash", "-c", STARTS_A_CHILD.format(pid=pid)], 3)
    assert (code, out, err) == (None, "begun\n", "worse\n")
    until(lambda: gone(pid.read_text().strip()))


def test_who_is_stopped_while_it_waits_ends_what_it_waits_for(tmp_path):
    pid = tmp_path / "pid"
    program = (
        "from tests.gpu import processes; processes.stoppable()\n"
        f"processes.run(['bash', '-c', {STARTS_A_CHILD.format(pid=pid)!r}], 1000)"
    )
    waiting = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE)
    until(lambda: pid.exists() and pid.read_text().endswith("\n"))
    waiting.send_signal(signal.SIGTERM)
    assert "KeyboardInterrupt" in waiting.communicate()[1].decode()
    until(lambda: gone(pid.read_text().strip()))


def test_who_is_stopped_while_it_starts_a_program_knows_it_and_ends_it(tmp_path):
    """The stop comes in the moment in which the program runs, and nobody has been told of it."""
    pid = tmp_path / "pid"
    program = f"""
import os, signal, subprocess, sys
from pathlib import Path
from tests.gpu import processes

def started_and_stopped(*given, right=subprocess.Popen, **keywords):
    process = right(*given, **keywords)
    Path({str(pid)!r}).write_text(str(process.pid))
    os.kill(os.getpid(), signal.SIGTERM)
    return process

processes.stoppable()
subprocess.Popen = started_and_stopped
processes.run(["sleep", "1000"], 1000)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "KeyboardInterrupt" in done.stderr
    left = not gone(pid.read_text())
    if left:
        os.kill(int(pid.read_text()), signal.SIGKILL)
    assert not left


@pytest.mark.long
@pytest.mark.parametrize("program", ["triage", "suite"])
def test_stopping_a_run_stops_what_it_started(tmp_path, program):
    """`timeout` sends SIGTERM to the run alone; a process in a session of its own would be left on the GPU."""
    out = tmp_path / "results.jsonl"
    environment = os.environ | {"PYCUDNNRNN_GPU_ON_SHIM": "1", "PYTHONPATH": str(ROOT)}
    rest = ["--", "-q", "-k", "ten_thousand"] if program == "suite" else []
    command = [sys.executable, "-m", f"tests.gpu.{program}", "--out", str(out), *rest]
    run = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
    until(lambda: ResultsFile(out).begun() and children.read_text())
    started = children.read_text().split()
    run.send_signal(signal.SIGTERM)
    run.communicate()
    assert all(map(gone, started)), "at once: by itself it goes on for seconds"
    assert ResultsFile(out).lines(), "what it had stays"
