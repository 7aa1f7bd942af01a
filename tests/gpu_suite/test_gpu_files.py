"""The tools of a GPU run, without one: the sanitizer's reports, the files that come back, and what is made of them."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.gpu import sanitize
from tests.gpu.cases import CASES
from tests.gpu.checkpoints import FIXTURE, largest_difference
from tests.gpu.machine import environment
from tests.gpu.results_file import ResultsFile, load

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "tests/gpu/results"

LOG = ROOT / "tests/gpu/fixtures/compute-sanitizer.log"
"""What the tools write, in the format of NVIDIA's manual and of logs that others have published, one after another."""

INVALID_WRITE = """\
========= Invalid __global__ write of size 4 bytes
=========     at void elemWiseRNNcell<float>(int)+0x160
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7f0000000400 is out of bounds
========="""


@pytest.mark.parametrize("path", [FIXTURE, *RESULTS.glob("*.safetensors")], ids=lambda path: path.name)
def test_a_checkpoint_from_another_machine_is_restored_here(path):
    assert path.stat().st_size < 64 << 10
    assert largest_difference(path, "cpu", np.asarray, np.asarray) <= 1e-5


@pytest.mark.long
def test_the_cases_run_and_write_beside_nothing():
    assert len(CASES) <= 40
    environment = os.environ | {"PYCUDNNRNN_GPU_ON_SHIM": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.gpu.cases"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [*(f"case: {name}" for name in CASES), "cases: all"]


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Put a program in compute-sanitizer's place: it runs the cases and says beside them what it is told to."""

    def make(found="", summary="========= ERROR SUMMARY: {count} error", ends=True):
        count = found.count("Invalid")
        program = tmp_path / "compute-sanitizer"
        program.write_text(
            f"#!{sys.executable}\n"
            "import subprocess, sys\n"
            "print('========= COMPUTE-SANITIZER')\n"
            "print('case: first', flush=True)\n"
            f"print({found!r}, flush=True)\n"
            f"print('case: last\\ncases: all' if {ends} else 'case: last')\n"
            f"print({summary.format(count=count)!r})\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return make


def test_a_finding_is_told_with_its_case_and_one_that_is_explained_is_not(tool):
    tool(f"{INVALID_WRITE}\n{INVALID_WRITE.replace('elemWiseRNNcell', 'theirs')}")
    known = [{"tool": "memcheck", "pattern": r"at void theirs<", "reason": "not ours"}]
    result = sanitize.watch("memcheck", ["cases"], known, 60)
    assert (result["counted"], result["suppressed"], len(result["findings"])) == (2, 1, 1)
    assert result["findings"][0].startswith("first: Invalid __global__ write of size 4 bytes | at void elemWiseRNNcell")
    tool(f"{INVALID_WRITE.replace('elemWiseRNNcell', 'fold')}\n{INVALID_WRITE.replace('elemWiseRNNcell', 'theirs')}")
    assert len(sanitize.watch("racecheck", ["cases"], known, 60)["findings"]) == 2, "an explanation is for one tool"


THEIRS = {
    "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_nn>(T1::Params)": "cutlass::Kernel2",
    "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n": "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n",
    "void cublasLt::splitKreduce_kernel<(int)32, float>(cublasLt::Params<T2>)": "cublasLt::splitKreduce_kernel",
    "ampere_sgemm_32x128_tn": "ampere_sgemm_32x128_tn",
    "void LSTM_elementWise_fp<float, (cudnnRNNBiasMode_t)2>(int, T1 *)": "LSTM_elementWise_fp",
    "void RNN_blockPersist_fp_LSTM<float, (int)64>(T1 *)": "RNN_blockPersist_fp_LSTM",
}
OURS = ["vectorAdd(int *)", "cupy_copy__float32_float32", "void fold<(int)8>(float *)", "asm90_sum", "fold(int *)"]


@pytest.mark.parametrize(
    "text",
    [
        "Uninitialized __global__ memory read of size 4 bytes | at {}+0x70 in memset_error.cu:41",
        "Uninitialized __global__ memory read of size 1 bytes | at 0x150 in {} | by thread (0,0,0)",  # before 2023
        "Race reported between Write access at {}+0xf0 in race.cu:40 | and Read access at {}+0x280 in race.cu:46",
    ],
)
def test_a_finding_in_a_kernel_of_cudnns_counts_by_its_name_and_in_any_other_it_is_ours(text):
    """What memcheck finds is ours in any kernel, and so is what two kernels do to each other."""
    for tool in sanitize.SCRATCH_TOOLS:
        assert {name: sanitize.theirs(tool, text.replace("{}", name)) for name in THEIRS} == THEIRS
        assert not any(sanitize.theirs(tool, text.replace("{}", name)) for name in OURS)
    assert not any(sanitize.theirs("memcheck", text.replace("{}", name)) for name in THEIRS)
    assert not sanitize.theirs("racecheck", text.replace("{}", OURS[0], 1).replace("{}", next(iter(THEIRS))))


@pytest.mark.parametrize(
    "options", [{"summary": ""}, {"ends": False}, {"summary": "========= ERROR SUMMARY: 3 errors"}]
)
def test_a_tool_that_broke_off_or_cannot_be_read_has_found_nothing_out(tool, options):
    tool(**options)
    (finding,) = sanitize.watch("memcheck", ["cases"], [], 60)["findings"]
    assert "did not get to the end" in finding or "none could be read" in finding


def test_every_finding_of_a_log_is_read_with_its_case():
    found = sanitize.findings_in(LOG.read_text())
    assert [(case, text.partition(" | ")[0]) for case, text in found] == [
        ("lstm float32 unidirectional equal", "Invalid __global__ write of size 4 bytes"),
        ("lstm float32 unidirectional equal", "Invalid __global__ read of size 2 bytes"),
        ("lstm float32 unidirectional equal", "Error: Race reported between Write access at theirs(float *)+0xb0"),
        ("clip", "Warning: Race reported between Write access at fold(float *)+0x550"),
        ("clip", "Uninitialized __global__ memory read of size 4 bytes"),
    ]
    assert "at void elemWiseRNNcell<float>(int, float *)+0x160 in rnn_cell.cu:34" in found[0][1]
    assert sanitize.summary_of(LOG.read_text()) == 105


def written(results, path):
    file = ResultsFile(path)
    file.start("make gpu-sanitize", environment(None))
    for result in results:
        file.add(begin=f"sanitize.py::{result['tool']}")
        sanitize.write(file, result)
    sanitize.write_row(file, results)
    return load(path)


def test_the_row_is_red_by_one_finding_and_not_there_for_some_of_the_tools(tool, tmp_path):
    tool(INVALID_WRITE)
    results = [sanitize.watch(name, ["cases"], [], 60) for name in sanitize.TOOLS]
    assert written(results, tmp_path / "a.jsonl")["measured"]["sanitizer"]["failed"] == ["sanitize.py::every tool"]
    content = written(results[:1], tmp_path / "b.jsonl")
    assert (content["measured"], content["failed"]) == ({}, 1)
