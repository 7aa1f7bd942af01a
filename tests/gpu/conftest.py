"""The GPU suite: `python -m tests.gpu.suite`. Each test's outcome, and each answer, is in the results file at once.

With PYCUDNNRNN_GPU_ON_SHIM=1 it runs on the shim, without a GPU: that checks the suite's own code, and says nothing of
a GPU.
"""

import faulthandler
import os
from pathlib import Path

import pytest

from pycudnnrnn.errors import PycudnnrnnError
from tests.gpu.machine import REQUIRED, environment, machine
from tests.gpu.results_file import ResultsFile

SUITE = pytest.StashKey()


class Suite:
    """A plugin that writes the results file; it knows the GPU once a test has asked for it."""

    def __init__(self):
        self.file = ResultsFile(os.environ.get("PYCUDNNRNN_GPU_RESULTS"))
        self.command = os.environ.get("PYCUDNNRNN_GPU_COMMAND", "pytest")
        self.cuda, self.phases = None, []
        self.file.start(self.command, environment(None))
        self.watch()

    def watch(self):
        """End this process if it does not come here again in time: its traceback is then in the results file."""
        if self.file.path is not None:
            file = self.file.path.open("a")
            faulthandler.dump_traceback_later(float(os.environ["PYCUDNNRNN_GPU_HANG_S"]), exit=True, file=file)
            self.traceback = file  # which stays open as long

    def pytest_collectreport(self, report):
        if report.failed:
            self.file.add(end=report.nodeid, outcome="error", why=str(report.longrepr)[-2000:])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item):
        self.phases.clear()
        self.file.add(begin=item.nodeid)
        self.watch()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item):
        report = yield
        self.phases.append(report)
        if report.when == "teardown":
            self.end(item)
        return report

    def end(self, item):
        """Write down how a test came out: as the first of its phases that did not pass."""
        worst = next((report for report in self.phases if not report.passed), self.phases[-1])
        outcome = "error" if worst.failed and worst.when != "call" else worst.outcome
        why = "" if worst.passed else worst.longrepr[-1] if worst.skipped else str(worst.longrepr)[-2000:]
        seconds = round(sum(report.duration for report in self.phases), 3)
        self.file.add(end=item.nodeid, outcome=outcome, why=why, seconds=seconds)
        if worst.failed and self.device_is_lost():
            item.session.shouldstop = f"the device was lost in {item.nodeid}"

    def device_is_lost(self):
        """Whether CUDA fails for good in this process: every test after this one would fail with it."""
        if self.cuda is None or self.cuda.on_shim:
            return False
        try:
            self.cuda.device.xp.cuda.runtime.deviceSynchronize()
        except RuntimeError:
            return True
        return False

    def pytest_sessionfinish(self, session):
        if not session.shouldstop and session.exitstatus in {0, 1, 5}:
            self.file.add(complete=session.testscollected)


def pytest_configure(config):
    config.stash[SUITE] = suite = Suite()
    config.pluginmanager.register(suite, "gpu-suite")


def pytest_collection_modifyitems(config, items):
    """Mark the tests of this folder, and leave out what began in this results file already."""
    begun = set(config.stash[SUITE].file.begun())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in begun])
    items[:] = [item for item in items if item.nodeid not in begun]
    for item in items:
        if Path(__file__).parent in Path(item.path).parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session")
def cuda(request):
    suite = request.config.stash[SUITE]
    context = machine()
    try:
        device = context.__enter__()
    except PycudnnrnnError as error:
        (pytest.fail if REQUIRED else pytest.skip)(f"no GPU: {error}")
    suite.cuda = device
    suite.file.start(suite.command, environment(device))
    yield device
    context.__exit__(None, None, None)


@pytest.fixture
def answer(request):
    """Give a function that records the answer to a named question."""
    suite = request.config.stash[SUITE]

    def record(question, answer):
        suite.file.add(question=question, answer=answer)

    return record
