"""The tools of a GPU run, without one: outcomes, processes that are ended, and what its tools report."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.gpu import processes, sanitize, suite
from tests.gpu.results_file import load

ROOT = Path(__file__).parents[2]


def test_each_outcome_is_written_and_a_test_that_takes_its_process_with_it_ends_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("PYCUDNNRNN_GPU_ON_SHIM", "1")
    monkeypatch.setattr(suite, "FOLDER", str(tmp_path))
    for name in ("conftest.py", "pytest.ini"):
        (tmp_path / name).write_text((ROOT / "tests/gpu" / name).read_text())
    (tmp_path / "test_it.py").write_text("""
import os, signal, time
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
def test_hang(request, monkeypatch):
    monkeypatch.setenv("PYCUDNNRNN_GPU_HANG_S", "0.01")
    request.config.pluginmanager.get_plugin("gpu-suite").watch()
    time.sleep(1000)
@pytest.mark.parametrize("n", [1, 2])
def test_many(n):
    pass
""")
    assert suite.run(tmp_path / "results.jsonl", ["-q"], 600, 600)
    results = load(tmp_path / "results.jsonl")
    assert {case.partition("::")[2]: outcome for case, outcome in results["cases"].items()} == {
        "test_good": "passed", "test_bad": "failed", "test_left_out": "skipped", "test_never": "error",
        "test_crash": "ended", "test_hang": "ended", "test_many[1]": "passed", "test_many[2]": "passed",
    }  # fmt: skip
    outcomes = [results[name] for name in ("collected", "passed", "failed", "skipped", "error", "ended")]
    assert outcomes == [8, 3, 1, 1, 1, 2]
    assert results["questions"] == {"how": {"a": 1}}
    assert "assert 1 == 2" in next(why for case, why in results["failures"].items() if case.endswith("test_bad"))
    assert results["on_shim"] is True
    assert "in test_hang" in (tmp_path / "results.jsonl").read_text(), "where it was"


def test_every_file_is_in_one_shard_and_torch_is_imported_where_it_is_tested():
    names = [name for files in suite.FILES.values() for name in files]
    assert sorted(names) == sorted(path.stem.removeprefix("test_") for path in ROOT.glob("tests/gpu/test_*.py"))
    marked = {
        path.stem.removeprefix("test_") for path in ROOT.glob("tests/gpu/*.py") if "mark.apart" in path.read_text()
    }
    assert marked - {"numbers"} <= {*suite.APART} <= {*names}
    others = [word for shard in ("numbers", "jax") for word in suite.words_of(shard) if word.endswith(".py")]
    words = ["-c", "tests/gpu/pytest.ini", "--rootdir", ".", "-p", "no:cacheprovider", "-q", "--collect-only", *others]
    script = f"import pytest, sys; print(int(pytest.main({words})), sorted({{'torch', 'jax'}} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_what_takes_too_long_is_ended_with_what_it_started(tmp_path):
    pid = tmp_path / "pid"
    code, out, err = processes.run(["bash", "-c", f"echo begun; sleep 1000 & echo $! > {pid}; wait"], 2)
    assert (code, out, err) == (None, "begun\n", "")
    stat = Path(f"/proc/{pid.read_text().strip()}/stat")
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("code", "log", "outcome"),
    [
        (0, "ERROR SUMMARY: 0 errors", "passed"),
        (9, "test_x[lstm] \n========= Invalid __global__ write of size 4 bytes", "failed"),
        (1, "FAILED test_x[lstm]", "failed"),
        (None, "test_x[lstm]", "ended"),
        (1, "========= Error: Device not supported", "skipped"),
    ],
)
def test_memcheck_passes_only_where_every_case_came_to_its_end_without_a_finding(
    monkeypatch, tmp_path, code, log, outcome
):
    monkeypatch.setattr("tests.gpu.machine.ON_SHIM", True)
    monkeypatch.setattr(sanitize.shutil, "which", lambda *_, **__: "compute-sanitizer")
    monkeypatch.setattr(sanitize.processes, "stoppable", lambda: None)
    monkeypatch.setattr(sanitize.processes, "run", lambda *_, **__: (code, log, ""))
    monkeypatch.setattr(sys, "argv", ["sanitize", "--out", str(tmp_path / "x.jsonl")])
    with pytest.raises(SystemExit) as ended:
        sanitize.main()
    results = load(tmp_path / "x.jsonl")
    assert results["cases"] == {"sanitize.py::memcheck": outcome}
    assert (
        bool(ended.value.code)
        is (outcome in {"failed", "ended"})
        is any(log in why for why in results["failures"].values())
    )
