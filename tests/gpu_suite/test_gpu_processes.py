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


def test_what_takes_too_long_is_ended_with_what_it_started(tmp_path):
    pid = tmp_path / "pid"
    code, out, err = processes.run(["bash", "-c", STARTS_A_CHILD.format(pid=pid)], 3)
    assert (code, out, err) == (None, "begun\n", "worse\n")
    until(lambda: gone(pid.read_text().strip()))


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
