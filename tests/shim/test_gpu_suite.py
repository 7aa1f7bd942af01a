"""The GPU suite itself runs, on the shim: its code is checked here, its claims only on a GPU."""

import json
import os
import subprocess
import sys

import pytest

from docs.generate import gpu_suite


@pytest.mark.long
def test_the_gpu_suite_runs_on_the_shim_and_writes_its_results(tmp_path):
    results = tmp_path / "results.json"
    environment = os.environ | {"PYCUDNNRNN_GPU_ON_SHIM": "1", "PYCUDNNRNN_GPU_RESULTS": str(results)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/gpu", "-m", "gpu"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    written = json.loads(results.read_text())
    assert written["on_shim"] is True
    assert written["failed"] == 0
    assert written["collected"] == written["passed"] + written["skipped"]
    assert written["questions"]["layout"]["compared"] >= 200
    assert written["tests"].keys() == {asked.name for asked in gpu_suite()}
    assert sum(sum(counts.values()) for counts in written["tests"].values()) == written["collected"]
