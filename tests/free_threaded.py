"""The tests that threads matter to, with the GIL off: `make free-threaded PYTHON=python3.14t`.

Every module of the package is imported, too; those that cannot be, since what they need is not there, are named. It is
a failure when the GIL is on at the end: any extension module may turn it on. Writes what ran to a JSON file, which
`docs/compatibility.md` is made from.
"""

import datetime as dt
import importlib
import json
import pkgutil
import platform
import sys
import sysconfig
import warnings
from pathlib import Path

import pytest

import pycudnnrnn
from pycudnnrnn import libcudnn

RESULTS = Path(__file__).with_suffix(".json")
EXIT = "tests/abi/test_exits.py::test_the_interpreter_ends_quietly"
TESTS = (
    "tests/numpy_engine/test_threads.py", "tests/spec_and_layout/test_schedule.py",
    "tests/spec_and_layout/test_layout.py", "tests/spec_and_layout/test_error_texts.py", "tests/ops/test_plan_hold.py",
    "tests/properties/test_laws.py", "tests/properties/test_numpy_engine.py", "tests/cudnn_engine/test_concurrency.py",
    "tests/cudnn_engine/test_plan.py", "tests/cudnn_engine/test_bound.py", "tests/cudnn_engine/test_graphs.py",
    "tests/abi/test_owners.py", "tests/abi/test_status.py", "tests/abi/test_arguments.py",
    f"{EXIT}[made and freed by a daemon thread]", f"{EXIT}[in another thread's frame]",
    f"{EXIT}[in a thread-local]", f"{EXIT}[made while the interpreter looks for finalizers]",
)  # fmt: skip


class Counts:
    """A pytest plugin that keeps the numbers of a run."""

    def pytest_sessionfinish(self, session):
        self.tests, self.failed = session.testscollected, session.testsfailed


def gil_is_on():
    return getattr(sys, "_is_gil_enabled", lambda: True)()


def import_all():
    """Import every module; return how many came, and why the others did not."""
    missing = {}
    names = [m.name for m in pkgutil.walk_packages(pycudnnrnn.__path__, "pycudnnrnn.") if "__main__" not in m.name]
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing[name] = str(error)
    return len(names) - len(missing), missing


def main():
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise SystemExit(f"needs a free-threaded Python: make free-threaded PYTHON=python3.14t, not {sys.executable}")
    counts = Counts()
    status = pytest.main(["-q", "-m", "not gpu", "-p", "no:cacheprovider", *TESTS, *sys.argv[1:]], [counts])
    with warnings.catch_warnings(action="error"):
        modules, missing = import_all()
    found = {
        "date": dt.datetime.now(dt.UTC).date().isoformat(), "python": platform.python_version(),
        "cudnn": libcudnn.version_text(libcudnn.load().version), "gil": gil_is_on(), "tests": counts.tests,
        "failed": counts.failed, "modules": modules, "not_imported": missing,
    }  # fmt: skip
    print(json.dumps(found, indent=1))
    if not sys.argv[1:]:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    raise SystemExit("the GIL is on: an extension module turned it on" if found["gil"] else status)


if __name__ == "__main__":
    main()
