"""The tools of a GPU run, without one: outcomes, processes that are ended, and what its tools report."""

import time
from pathlib import Path

from tests.gpu import checks, processes, sanitize, suite, triage
from tests.gpu.results_file import load

ROOT = Path(__file__).parents[2]


def test_each_outcome_is_written_and_a_test_that_takes_its_process_with_it_ends_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("PYCUDNNRNN_GPU_ON_SHIM", "1")
    monkeypatch.setattr(suite, "FOLDER", str(tmp_path))
    for name in ("conftest.py", "pytest.ini"):
        (tmp_path / name).write_text((ROOT / "tests/gpu" / name).read_text())
    (tmp_path / "test_it.py").write_text("""
import os, signal
import pytest
def test_good(answer):
    answer("how", {"a": 1})
def test_bad():
    assert 1 == 2
def test_left_out():
    pytest.skip("not here")
@pytest.fixture
def broken():
    raise RuntimeError("no")
def test_never(broken):
    pass
def test_crash():
    os.kill(os.getpid(), signal.SIGKILL)
@pytest.mark.parametrize("n", [1, 2])
def test_many(n):
    pass
""")
    assert suite.run(tmp_path / "results.jsonl", ["-q"], 600, 600)
    found = load(tmp_path / "results.jsonl")
    assert {case.partition("::")[2]: outcome for case, outcome in found["cases"].items()} == {
        "test_good": "passed", "test_bad": "failed", "test_left_out": "skipped", "test_never": "error",
        "test_crash": "ended", "test_many[1]": "passed", "test_many[2]": "passed",
    }  # fmt: skip
    outcomes = [found[name] for name in ("collected", "passed", "failed", "skipped", "error", "ended")]
    assert outcomes == [7, 3, 1, 1, 1, 1]
    assert found["questions"] == {"how": {"a": 1}}
    assert "assert 1 == 2" in next(why for case, why in found["failures"].items() if case.endswith("test_bad"))
    assert found["on_shim"] is True


def test_what_takes_too_long_is_ended_with_what_it_started(tmp_path):
    pid = tmp_path / "pid"
    code, out, err = processes.run(["bash", "-c", f"echo begun; sleep 1000 & echo $! > {pid}; wait"], 2)
    assert (code, out, err) == (None, "begun\n", "")
    stat = Path(f"/proc/{pid.read_text().strip()}/stat")
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.05)


def test_every_finding_of_compute_sanitizers_log_is_read_with_its_case_and_its_kernel():
    """The log has the format of NVIDIA's manual and of logs that others have published."""
    log = (ROOT / "tests/gpu/fixtures/compute-sanitizer.log").read_text()
    found = sanitize.findings_in(log)
    assert [(case, text.partition(" | ")[0]) for case, text in found] == [
        ("lstm float32 unidirectional equal", "Invalid __global__ write of size 4 bytes"),
        ("lstm float32 unidirectional equal", "Invalid __global__ read of size 2 bytes"),
        ("lstm float32 unidirectional equal", "Error: Race reported between Write access at theirs(float *)+0xb0"),
        ("clip", "Warning: Race reported between Write access at fold(float *)+0x550"),
        ("clip", "Uninitialized __global__ memory read of size 4 bytes"),
    ]
    assert "at void elemWiseRNNcell<float>(int, float *)+0x160 in rnn_cell.cu:34" in found[0][1]
    assert sanitize.summary_of(log) == 105
    text = "Uninitialized __global__ memory read of size 4 bytes | at {}+0x70 in memset_error.cu:41"
    theirs, ours = "void LSTM_elementWise_fp<float, (int)2>(int, T1 *)", "void fold<(int)8>(float *)"
    assert [sanitize.theirs("initcheck", text.format(name)) for name in (theirs, ours)] == ["LSTM_elementWise_fp", ""]
    assert not sanitize.theirs("memcheck", text.format(theirs)), "what memcheck finds is ours in any kernel"


def test_a_device_with_wrong_numbers_is_found_by_the_triage(monkeypatch, capsys):
    monkeypatch.setattr("tests.gpu.machine.ON_SHIM", True)
    right = checks.run
    for wrong in (False, True):
        monkeypatch.setattr(checks, "run", lambda *a, w=wrong: {n: -x if w else x for n, x in right(*a).items()})
        triage.run_here(checks.first)
        assert ("wrong numbers" in capsys.readouterr().out) is wrong
