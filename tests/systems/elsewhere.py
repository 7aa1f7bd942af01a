"""Run the quick tests on another Python or processor: `python -m tests.systems.elsewhere NAME`, which make calls.

They need no framework and no child process. What ran goes to `tests/systems/results/NAME.json`, which the page of
compatibility is made from. A file whose requirements are missing is named there as not run. On a Python without the GIL
it is a failure when the GIL is on at the end, because an extension may turn it on.
"""

import datetime as dt
import importlib.util
import json
import os
import platform
import sys
from pathlib import Path

import numpy as np
import pytest

from pycudnnrnn import libcudnn
from pycudnnrnn.engines.numpy_engine.kernels_in_use import kernels_in_use
from pycudnnrnn.errors import EngineError

RESULTS = Path(__file__).parent / "results"
TESTS = (
    "numpy_engine/test_dropout.py", "numpy_engine/test_goldens.py",
    "numpy_engine/test_threads.py", "properties/test_laws.py",
    "properties/test_recompute.py", "ops/test_backward.py", "ops/test_misfits.py", "ops/test_ops.py",
    "convert/test_malformed.py", "convert/test_orders.py", "spec_and_layout/test_layout.py",
    "spec_and_layout/test_properties.py", "spec_and_layout/test_schedule.py", "tf1/test_layers.py",
    "tf1/test_tf_cell_page.py", "abi/test_arguments.py", "abi/test_descriptors.py", "abi/test_status.py",
)  # fmt: skip
NEED_NUMBA = ("numpy_engine/test_products.py", "properties/test_numpy_engine.py")
NEED_SAFETENSORS = ("checkpoint/test_bundles.py", "checkpoint/test_saved_files.py")
NEED_CUPY = (
    "cudnn_engine/test_concurrency.py", "cudnn_engine/test_plan.py", "cudnn_engine/test_bound.py",
    "cudnn_engine/test_graphs.py", "abi/test_owners.py",
)  # fmt: skip


class Counts:
    """A pytest plugin that keeps the numbers of a run."""

    def __init__(self):
        self.outcomes = {"passed": 0, "failed": 0, "skipped": 0}

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.outcome] += 1


def gil_is_on():
    return getattr(sys, "_is_gil_enabled", lambda: True)()


def cudnn_version():
    try:
        return libcudnn.version_text(libcudnn.load().version)
    except EngineError:
        return None


def main():
    name, *options = sys.argv[1:]
    was_on = gil_is_on()
    groups = {"pytest": TESTS, "numba": NEED_NUMBA, "safetensors": NEED_SAFETENSORS, "cupy": NEED_CUPY}
    installed = {need: importlib.util.find_spec(need) is not None for need in groups}
    chosen, not_run = (
        [path for need, paths in groups.items() if installed[need] is one for path in paths] for one in (True, False)
    )
    counts = Counts()
    marks = "not gpu and not long" + ("" if kernels_in_use().kernels == "numba" else " and not compiled")
    arguments = ["-q", "-m", marks, "-p", "no:cacheprovider", *options, *(f"tests/{path}" for path in chosen)]
    status = pytest.main(arguments, [counts])
    record = {
        "date": dt.datetime.now(dt.UTC).date().isoformat(), "commit": os.environ.get("COMMIT"),
        "command": f"python -m tests.systems.elsewhere {' '.join(sys.argv[1:])}", "python": platform.python_version(),
        "machine": platform.machine(), "numpy": np.__version__, "cudnn": cudnn_version(),
        "kernels": kernels_in_use().kernels, "gil": gil_is_on(), **counts.outcomes,
        "not_run": not_run,
    }  # fmt: skip
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    raise SystemExit("the GIL is on: an extension module turned it on" if gil_is_on() != was_on else status)


if __name__ == "__main__":
    main()
