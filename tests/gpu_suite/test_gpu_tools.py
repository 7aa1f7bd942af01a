"""The tools of a GPU run, without one: outcomes, processes that are ended, and what its tools report."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.gpu import processes, sanitize, suite, triage
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
    results = load(tmp_path / "results.jsonl")
    assert {case.partition("::")[2]: outcome for case, outcome in results["cases"].items()} == {
        "test_good": "passed", "test_bad": "failed", "test_left_out": "skipped", "test_never": "error",
        "test_crash": "ended", "test_many[1]": "passed", "test_many[2]": "passed",
    }  # fmt: skip
    outcomes = [results[name] for name in ("collected", "passed", "failed", "skipped", "error", "ended")]
    assert outcomes == [7, 3, 1, 1, 1, 1]
    assert results["questions"] == {"how": {"a": 1}}
    assert "assert 1 == 2" in next(why for case, why in results["failures"].items() if case.endswith("test_bad"))
    assert results["on_shim"] is True


def test_a_shard_reads_its_own_files_so_that_torch_is_imported_where_it_is_tested():
    files = {shard: {path.removeprefix("tests/gpu/test_") for path in suite.files_of(shard)} for shard in suite.SHARDS}
    assert all((ROOT / path).is_file() for shard in suite.SHARDS for path in suite.files_of(shard))
    assert set().union(*files.values()) == {p.name.removeprefix("test_") for p in ROOT.glob("tests/gpu/test_*.py")}
    assert [shard for shard in suite.SHARDS if "torch.py" in files[shard]] == ["torch"]
    others = sorted({path for shard in ("numbers", "jax", "apart") for path in suite.files_of(shard)})
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


def test_every_finding_of_memchecks_log_is_read_with_its_case():
    """The log has the format of NVIDIA's manual and of logs that others have published."""
    log = (ROOT / "tests/gpu/fixtures/compute-sanitizer.log").read_text()
    assert [finding.partition(" | ")[0] for finding in sanitize.findings_in(log)] == [
        "lstm float32 unidirectional equal: Invalid __global__ write of size 4 bytes",
        "lstm float32 unidirectional equal: Invalid __global__ read of size 2 bytes",
        "clip: Program hit invalid device function (error 98) on CUDA API call to cudaLaunchKernel.",
    ]
    assert "at void elemWiseRNNcell<float>(int, float *)+0x160 in rnn_cell.cu:34" in sanitize.findings_in(log)[0]
    assert sanitize.judge(log)[1][-1] == "memcheck has more findings than it printed: 100"


@pytest.mark.parametrize(
    ("log", "findings"),
    [
        ("cases: all\n========= ERROR SUMMARY: 0 errors", []),
        ("cases: all\n========= ERROR SUMMARY: 2 errors", ["memcheck counted 2 errors, and none could be read"]),
        ("case: clip\n========= ERROR SUMMARY: 0 errors", ["memcheck did not get to the end"]),
        ("cases: all", ["memcheck did not get to the end"]),
    ],
)
def test_a_run_without_findings_is_judged_by_its_end_and_its_count(log, findings):
    skipped, messages = sanitize.judge(log)
    assert (skipped, len(messages)) == ("", len(findings))
    assert all(message.startswith(start) for message, start in zip(messages, findings, strict=True))
    assert sanitize.judge("========= Error: Device not supported") == ("Device not supported", [])


def test_a_device_with_wrong_numbers_is_reported_by_the_triage(monkeypatch, capsys):
    monkeypatch.setattr("tests.gpu.machine.ON_SHIM", True)
    right = triage.run
    for wrong in (False, True):
        monkeypatch.setattr(triage, "run", lambda *a, w=wrong: {n: -x if w else x for n, x in right(*a).items()})
        triage.run_here(triage.first)
        assert ("wrong numbers" in capsys.readouterr().out) is wrong


def test_libraries_are_read_ahead_in_the_order_of_need_and_no_others(tmp_path):
    names = (
        "torch/lib/libtorch_cuda.so", "torch/lib/libtorch_cpu.so", "nvidia/cudnn/lib/libcudnn_adv.so.9",
        "nvidia/cudnn/lib/libcudnn_graph.so.9", "nvidia/cudnn/lib/libcudnn_cnn.so.9",
        "nvidia/cu13/lib/libcublasLt.so.13", "jax_plugins/xla_cuda13/xla_cuda_plugin.so",
    )  # fmt: skip
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert [str(path.relative_to(tmp_path)) for path in triage.ahead([tmp_path])] == [
        names[3], names[2], names[5], names[0], names[6]
    ]  # fmt: skip
