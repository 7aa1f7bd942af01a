"""The GPU suite: `make gpu-check`. It writes one JSON file with what ran, what came out, and the questions' answers.

With PYCUDNNRNN_GPU_ON_SHIM=1 it runs on the shim, without a GPU: that checks the suite's own code, and says nothing of
a GPU.
"""

import datetime as dt
import json
import os
import signal
from pathlib import Path

import pytest

from pycudnnrnn._atomic import write_atomically
from pycudnnrnn.errors import PycudnnrnnError
from tests.conftest import measured  # noqa: F401  a fixture; pytest.ini ends the search for it here
from tests.gpu.machine import REQUIRED, environment, machine

RESULTS = pytest.StashKey()
OUTCOMES = ("passed", "failed", "skipped", "error")


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in Path(item.path).parents:
            item.add_marker(pytest.mark.gpu)


def pytest_configure(config):
    if os.environ.get("PYCUDNNRNN_GPU_RESULTS"):  # what is stopped by `timeout` writes down how far it came
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    config.stash[RESULTS] = {"questions": {}, "environment": environment(None)}


@pytest.fixture(scope="session")
def cuda(request):
    results = request.config.stash[RESULTS]
    context = machine()
    try:
        found = context.__enter__()
    except PycudnnrnnError as error:
        (pytest.fail if REQUIRED else pytest.skip)(f"no GPU: {error}")
    results["environment"] = environment(found)
    yield found
    context.__exit__(None, None, None)


@pytest.fixture
def whole_cupy(cuda, monkeypatch):
    """CuPy itself, or what stands for its functions and operators on the shim."""
    if cuda.on_shim:
        from tests.shim.host_cupy import use_host_cupy

        for name in ("xp", "empty"):
            monkeypatch.setattr(cuda.device, name, getattr(cuda.device, name))  # put back afterwards
        use_host_cupy(cuda.device)


@pytest.fixture
def answer(request):
    """Give a function that records the answer to a named question."""
    return request.config.stash[RESULTS]["questions"].__setitem__


@pytest.fixture
def beside():
    """Where a file goes that is to be kept with the results; None where no results are written."""
    path = os.environ.get("PYCUDNNRNN_GPU_RESULTS")
    return path and Path(path).parent


def pytest_terminal_summary(terminalreporter, config):
    terminalreporter.section("answers")
    for question, found in config.stash[RESULTS]["questions"].items():
        terminalreporter.write_line(f"{question}: {json.dumps(found, default=str)[:160]}")


def _outcomes(reporter):
    """By test, without its parameters: how many of its cases passed, failed, were skipped."""
    found = {}
    for outcome in OUTCOMES:
        for report in reporter.stats.get(outcome, []):
            counts = found.setdefault(report.nodeid.removeprefix("tests/gpu/").partition("[")[0], {})
            counts[outcome] = counts.get(outcome, 0) + 1
    return found


def _rows(reporter):
    """By row of the reliability table: what its tests measured, and which of them failed."""
    found = {}
    for outcome in ("passed", "failed"):
        for report in reporter.stats.get(outcome, []):
            for name, value in report.user_properties:
                row = found.setdefault(name, {"tests": 0, "measured": {}, "failed": []})
                row["tests"] += 1
                row["failed"] += [report.nodeid] if outcome == "failed" else []
                for what, number in json.loads(value).items():
                    worst, before = what.startswith(("worst_", "peak_")), row["measured"].get(what, 0)
                    row["measured"][what] = max(before, number) if worst else before + number
    return found


def pytest_sessionfinish(session):
    path = os.environ.get("PYCUDNNRNN_GPU_RESULTS")
    if not path:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    results = session.config.stash[RESULTS]
    content = {
        "schema": 2,
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "command": " ".join(["make gpu-check", os.environ.get("PYCUDNNRNN_GPU_ARGS", "")]).strip(),
        **results["environment"],
        "collected": session.testscollected,
        **{name: len(reporter.stats.get(name, [])) for name in OUTCOMES},
        "failures": [report.nodeid for name in ("failed", "error") for report in reporter.stats.get(name, [])],
        "tests": _outcomes(reporter),
        "reliability": _rows(reporter),
        "questions": results["questions"],
    }
    write_atomically(Path(path), (json.dumps(content, indent=1, default=str) + "\n").encode())
