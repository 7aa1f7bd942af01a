"""The tools of a GPU run, without one: the sanitizer's reports, the files that come back, and what is made of them."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.gpu import sanitize
from tests.gpu.cases import CASES
from tests.gpu.machine import environment
from tests.gpu.test_demo import FIXTURE, largest_difference

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "tests/gpu/results"

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
    assert len(sanitize.watch("racecheck", ["cases"], known, 60)["findings"]) == 2, "an explanation is for one tool"


@pytest.mark.parametrize(
    "options", [{"summary": ""}, {"ends": False}, {"summary": "========= ERROR SUMMARY: 3 errors"}]
)
def test_a_tool_that_broke_off_or_cannot_be_read_has_found_nothing_out(tool, options):
    tool(**options)
    (finding,) = sanitize.watch("memcheck", ["cases"], [], 60)["findings"]
    assert "did not get to the end" in finding or "none could be read" in finding


def test_a_tool_that_refuses_the_device_has_not_run(tool):
    tool("========= Error: Device not supported", ends=False)
    content = sanitize.content_of([sanitize.watch("memcheck", ["cases"], [], 60)], environment(None))
    assert (content["skipped"], content["failed"], content["reliability"]) == (1, 0, {})


def test_nothing_found_is_a_row_without_failures(tool, tmp_path):
    tool()
    found = [sanitize.watch(name, ["cases"], [], 60) for name in sanitize.TOOLS]
    content = sanitize.content_of(found, environment(None))
    assert content["reliability"]["R11"]["failed"] == []
    assert (content["collected"], content["passed"], content["failed"]) == (3, 3, 0)
    assert json.loads(json.dumps(content)) == content
