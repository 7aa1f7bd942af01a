"""The GPU suite: `make gpu-check`. It writes one JSON file with what ran, what came out, and the questions' answers.

With PYCUDNNRNN_GPU_ON_SHIM=1 it runs on the shim, without a GPU: that checks the suite's own code, and says nothing of
a GPU.
"""

import contextlib
import datetime as dt
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pycudnnrnn.engines import use_engine

ON_SHIM = os.environ.get("PYCUDNNRNN_GPU_ON_SHIM") == "1"
REQUIRED = os.environ.get("PYCUDNNRNN_REQUIRE_GPU") == "1"
RESULTS = pytest.StashKey()


class Cuda:
    """A device and its engine, and the way to and from it."""

    def __init__(self, engine, device):
        self.engine, self.device, self.on_shim = engine, device, ON_SHIM

    def put(self, array):
        return self.device.from_host(np.ascontiguousarray(array))

    def get(self, array):
        return self.device.to_host(array)


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in Path(item.path).parents:
            item.add_marker(pytest.mark.gpu)


def pytest_configure(config):
    config.stash[RESULTS] = {"questions": {}, "environment": {}}


@pytest.fixture(scope="session")
def cuda(request, tmp_path_factory):
    results = request.config.stash[RESULTS]
    with contextlib.ExitStack() as stack:
        if ON_SHIM:
            from tests.shim.host_device import host_allocator
            from tests.shim.shim import Shim, build

            engine, device = Shim(build(tmp_path_factory.mktemp("shim"))).engine_and_device()
            stack.enter_context(host_allocator(device))
            stack.enter_context(use_engine(engine))
        else:
            from pycudnnrnn.engines.cudnn.device import CudaDevice
            from pycudnnrnn.engines.cudnn.engine import cudnn_engine
            from pycudnnrnn.errors import PycudnnrnnError

            try:
                device, engine = CudaDevice(), cudnn_engine(None)
                results["environment"] = _environment(engine, device)
            except PycudnnrnnError as error:
                (pytest.fail if REQUIRED else pytest.skip)(f"no GPU: {error}")
        yield Cuda(engine, device)


@pytest.fixture
def answer(request):
    """Give a function that records the answer to a named question."""
    return request.config.stash[RESULTS]["questions"].__setitem__


def _environment(engine, device):
    runtime = device.xp.cuda.runtime
    properties = runtime.getDeviceProperties(device.index)
    return {
        "gpu": properties["name"].decode(),
        "compute_capability": f"{properties['major']}.{properties['minor']}",
        "driver": runtime.driverGetVersion(),
        "cuda_runtime": runtime.runtimeGetVersion(),
        "cudnn": engine.library.version,
        "cudnn_path_found_via": engine.library.found_via,
        "cupy": importlib.metadata.version(device.xp.__name__)
        if device.xp.__name__ != "cupy"
        else device.xp.__version__,
        "numpy": np.__version__,
        "python": sys.version.split()[0],
    }


def _outcomes(reporter):
    """By test, without its parameters: how many of its cases passed, failed, were skipped."""
    found = {}
    for outcome in ("passed", "failed", "skipped", "error"):
        for report in reporter.stats.get(outcome, []):
            counts = found.setdefault(report.nodeid.removeprefix("tests/gpu/").partition("[")[0], {})
            counts[outcome] = counts.get(outcome, 0) + 1
    return found


def pytest_sessionfinish(session):
    path = os.environ.get("PYCUDNNRNN_GPU_RESULTS")
    if not path:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    counts = {name: len(reporter.stats.get(name, [])) for name in ("passed", "failed", "skipped", "error")}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    results = session.config.stash[RESULTS]
    content = {
        "schema": 1,
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": commit or os.environ.get("PYCUDNNRNN_COMMIT", "unknown"),
        "command": "make gpu-check",
        "on_shim": ON_SHIM,
        **results["environment"],
        "collected": session.testscollected,
        **counts,
        "failures": [report.nodeid for report in reporter.stats.get("failed", [])],
        "tests": _outcomes(reporter),
        "questions": results["questions"],
    }
    Path(path).write_text(json.dumps(content, indent=1, default=str) + "\n")
