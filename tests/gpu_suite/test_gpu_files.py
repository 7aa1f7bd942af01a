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
from tests.gpu.children import without_cupys
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


# Samples from NVIDIA's manual of Compute Sanitizer (racecheck, initcheck), with other kernels in them.
RACE = """\
========= Error: Race reported between Write access at {}+0xf0 in raceGroupBasic.cu:40
=========     and Read access at {}+0x280 in raceGroupBasic.cu:46 [4 hazards]
"""
HAZARD = """\
========= ERROR: Potential WAW hazard detected at __shared__ 0x0 in block (0,0,0) :
=========     Write Thread (0,0,0) at {}+0x2f0 in raceWAW.cu:20
=========     Write Thread (1,0,0) at {}+0x2f0 in raceWAW.cu:20
=========     Current Value : 1, Incoming Value : 2
"""
UNINITIALIZED = """\
========= Uninitialized __global__ memory read of size 4 bytes
=========     at {}+0x70 in memset_error.cu:41
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
"""
# Logs of 2021 and 2022 in issues of cuDF and Kokkos, with other kernels in them.
BEFORE_2023 = """\
========= Uninitialized __global__ memory read of size 1 bytes
=========     at 0x150 in {}
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7fc406200400
"""
WITH_A_FILE = BEFORE_2023.replace("at 0x150 in {}", "at 0xa0a50 in /usr/include/cub/thread_load.cuh:272:{}")
RACE_BEFORE_2023 = """\
========= Warning: Race reported between Read access at 0x570 in {}
=========     and Write access at 0x590 in {} [64 hazards]
"""
# From an issue of NVIDIA's compute-sanitizer-samples: no kernel is in it.
BY_THE_HOST = """\
========= Host API memory access error at host access to 0x7f14c9e00200 of size 16 bytes
=========     Uninitialized access at 0x7f14c9e00200 on access by cudaMemcpy source
"""
FORMATS = [RACE, HAZARD, UNINITIALIZED, BEFORE_2023, WITH_A_FILE, RACE_BEFORE_2023]
THEIRS = {
    "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_nn>(T1::Params)": "cutlass::Kernel2",
    "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n": "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n",
    "void cublasLt::splitKreduce_kernel<(int)32, float>(cublasLt::Params<T2>)": "cublasLt::splitKreduce_kernel",
    "ampere_sgemm_32x128_tn": "ampere_sgemm_32x128_tn",
    "void LSTM_elementWise_fp<float, (cudnnRNNBiasMode_t)2>(int, T1 *)": "LSTM_elementWise_fp",
    "void RNN_blockPersist_fp_LSTM<float, (int)64>(T1 *)": "RNN_blockPersist_fp_LSTM",
}
OURS = ["vectorAdd(int *)", "cupy_copy__float32_float32", "void fold<(int)8>(float *)", "asm90_sum", "fold(int *)"]


@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.parametrize("name", sanitize.TOOLS)
def test_a_finding_in_a_kernel_of_cudnns_counts_by_its_name_and_in_any_other_it_is_ours(tool, name, text):
    kernels = [*THEIRS, *OURS]
    tool("\n".join(text.format(*[kernel] * text.count("{}")) for kernel in kernels))
    result = sanitize.watch(name, ["cases"], [], 60)
    assert result["in cuDNN's kernels"] == ({} if name == "memcheck" else dict.fromkeys(THEIRS.values(), 1))
    left = kernels if name == "memcheck" else OURS
    assert [kernel in finding for kernel, finding in zip(left, result["findings"], strict=True)] == [True] * len(left)


def test_what_is_in_two_kernels_or_in_none_is_ours(tool):
    library, other = next(iter(THEIRS)), OURS[0]
    tool(RACE.format(library, other) + RACE.format(other, library) + BY_THE_HOST)
    for name in ("racecheck", "initcheck"):
        result = sanitize.watch(name, ["cases"], [], 60)
        assert (len(result["findings"]), result["in cuDNN's kernels"]) == (3, {})


def test_findings_that_were_not_printed_are_one(tool):
    """What is not read may be anybody's. The line is NVIDIA's."""
    unread = "========= ERROR SUMMARY: 669 errors were not printed. Use --print-limit option to adjust the number"
    tool(UNINITIALIZED.format(next(iter(THEIRS))), f"========= ERROR SUMMARY: 670 errors\n{unread}")
    (finding,) = sanitize.watch("initcheck", ["cases"], [], 60)["findings"]
    assert finding == "initcheck has more findings than it printed: 669"


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


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("========= RACECHECK SUMMARY: 3 hazards displayed (1 error, 2 warnings)", 3),
        ("========= ERROR SUMMARY: 0 errors", 0),
        ("========= Error: No attachable process found. compute-sanitizer timed-out.", None),
    ],
)
def test_the_tools_own_count_is_read(line, count):
    assert sanitize.summary_of(f"========= COMPUTE-SANITIZER\n{line}\n") == count


def written(results, path):
    file = ResultsFile(path)
    file.start("make gpu-sanitize", environment(None))
    for result in results:
        file.add(begin=f"sanitize.py::{result['tool']}")
        sanitize.write(file, result)
    sanitize.write_row(file, results)
    return load(path)


def test_a_tool_that_refuses_the_device_has_not_run(tool, tmp_path):
    tool("========= Error: Device not supported", ends=False)
    content = written([sanitize.watch("memcheck", ["cases"], [], 60)], tmp_path / "a.jsonl")
    assert (content["skipped"], content["failed"], content["measured"]) == (1, 0, {})


def test_nothing_found_is_a_row_without_failures(tool, tmp_path):
    tool()
    content = written([sanitize.watch(name, ["cases"], [], 60) for name in sanitize.TOOLS], tmp_path / "a.jsonl")
    assert content["measured"]["sanitizer"]["failed"] == []
    assert content["measured"]["sanitizer"]["measured"]["tools"] == 3
    assert (content["collected"], content["passed"], content["failed"]) == (4, 4, 0)


def test_the_row_is_red_by_one_finding_and_not_there_for_some_of_the_tools(tool, tmp_path):
    tool(INVALID_WRITE)
    results = [sanitize.watch(name, ["cases"], [], 60) for name in sanitize.TOOLS]
    assert written(results, tmp_path / "a.jsonl")["measured"]["sanitizer"]["failed"] == ["sanitize.py::every tool"]
    content = written(results[:1], tmp_path / "b.jsonl")
    assert (content["measured"], content["failed"]) == ({}, 1)


def test_the_program_is_found_beside_path_and_missed_by_name(tmp_path, monkeypatch, tool):
    tool()
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sanitize, "FOLDERS", (str(tmp_path),))
    assert sanitize.program() == str(tmp_path / "compute-sanitizer")
    monkeypatch.setattr(sanitize, "FOLDERS", ("/nor/here",))
    with pytest.raises(FileNotFoundError, match="compute-sanitizer: expecting it on PATH or in /nor/here"):
        sanitize.program()


def test_cupys_noise_of_a_lost_device_is_told_from_what_we_write():
    """The shape of what CuPy 14 leaves on stderr at the end of a process whose device is lost."""
    noise = (
        "Exception ignored in: 'cupy.cuda.graph.Graph.__dealloc__'\n"
        "Traceback (most recent call last):\n"
        '  File "cupy/cuda/graph.pyx", line 40, in cupy.cuda.graph.Graph.__dealloc__\n'
        "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorIllegalAddress: an illegal memory access was met\n"
        "Exception ignored in: <function finish at 0x7f>\n"
        "Traceback (most recent call last):\n"
        '  File "cupy/cuda/memory.pyx", line 1, in x\n'
        "cupy_backends.cuda.api.driver.CUDADriverError: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was met\n"
    )
    ours = (
        "Exception ignored in: <function Owned.close at 0x7f>\n"
        "Traceback (most recent call last):\n"
        '  File "pycudnnrnn/engines/cudnn/owned.py", line 1, in close\n'
        "ValueError: no"
    )
    assert without_cupys(noise) == ""
    assert without_cupys(f"{noise}{ours}") == ours
    assert without_cupys("a warning") == "a warning"


PROGRAMS = sorted(
    f"{path.parent.name}.{path.stem}" if path.stem != "__main__" else path.parent.name
    for folder in ("api", "fuzz", "gpu", "stand_in", "wheel")
    for path in (ROOT / "tests" / folder).glob("*.py")
    if "__main__" in path.read_text() or path.stem == "__main__"
)


def test_another_package_of_the_name_tests_is_never_taken_for_ours(tmp_path):
    """Python takes a package that somebody has installed before a folder without `__init__.py`, wherever they are."""
    assert len(PROGRAMS) > 8
    theirs = tmp_path / "tests"
    (theirs / "gpu").mkdir(parents=True)
    for folder in (theirs, theirs / "gpu"):
        (folder / "__init__.py").write_text("raise ImportError('this is not ours')\n")
    source = (
        "import importlib.util, sys\nfor name in sys.argv[1:]: print(importlib.util.find_spec('tests.' + name).origin)"
    )
    for order in ([str(tmp_path)], [str(tmp_path), str(ROOT)]):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(order)}
        command = [sys.executable, "-c", source, *PROGRAMS]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert all(line.startswith(f"{ROOT}/tests/") for line in done.stdout.splitlines()), done.stdout
        assert len(done.stdout.splitlines()) == len(PROGRAMS), done.stderr


@pytest.mark.filterwarnings("default")
def test_nccl_is_found_where_nobody_has_imported_it():
    """In a process of its own: once imported by anyone it is an attribute."""
    source = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "import cupy; from tests.gpu.asked import nccl_of\n"
        "assert not hasattr(cupy.cuda, 'nccl'); print(nccl_of(cupy).available)"
    )
    done = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr
