"""Run the GPU suite to its end: `python -m tests.gpu.suite --out FILE.jsonl -- PYTEST-ARGUMENT...`.

pytest runs in a process of its own. One that crashes, hangs, or loses the device is replaced by another, which goes on
behind the test that did it; that test has ended with its process.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from tests.gpu import processes
from tests.gpu.results_file import ResultsFile, load

ROOT = Path(__file__).parents[2]
FOLDER = "tests/gpu"

FILES = {
    "numbers": ("layout", "numbers", "calls"),
    "torch": ("torch", "graphs", "arrays", "layers"),
    "jax": ("jax", "services"),
}
"""The files `test_<name>.py` of each shard, in the order of worth: a framework is imported only where it is tested."""

SHARDS = (*FILES, "apart")
"""They run side by side. `apart` has the tests marked so, which may take their process or the device with them."""

APART = ("graphs", "numbers")
"""The files of that shard. The last tests compile kernels for every shape."""

PROCESSES = 40
"""Most processes of a run. What ends more than so many is not some tests' fault, and each takes seconds to start."""


def words_of(shard):
    """What pytest is told for a shard, or for all of the suite."""
    names = APART if shard == "apart" else FILES.get(shard, ())
    marks = ["-m", "apart" if shard == "apart" else "not apart"] if shard else []
    return [*marks, *([f"{FOLDER}/test_{name}.py" for name in names] or [FOLDER])]


def run(out, arguments, seconds, hang_s, shard=""):
    """Start processes until one comes to the end of the suite, or of one shard of it; return whether one did.

    Plugins that happen to be installed are left out: the suite uses none, and none can then be in its way.
    """
    file, stop_at = ResultsFile(out), time.time() + seconds
    words = ["-c", f"{FOLDER}/pytest.ini", "--rootdir", ".", "-p", "no:cacheprovider", *words_of(shard), *arguments]
    sharded = ["--shard", shard] if shard else []
    environment = os.environ | {
        "PYCUDNNRNN_GPU_RESULTS": str(out.resolve()),
        "PYCUDNNRNN_GPU_COMMAND": " ".join(["python -m tests.gpu.suite", *sharded, "--", *arguments]),
        "PYCUDNNRNN_GPU_HANG_S": str(hang_s),
        "PYCUDNNRNN_REQUIRE_GPU": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(ROOT),
    }
    for _ in range(PROCESSES):
        before, left = len(file.begun()), stop_at - time.time()
        command = [sys.executable, "-m", "pytest", *words]
        code, *_ = processes.run(command, left, cwd=ROOT, env=environment, stdout=None, stderr=None)
        if file.complete():
            return True
        file.add(process_ended=code, after=file.begun()[-1:])
        if time.time() > stop_at or len(file.begun()) == before:
            break
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="results file; one that exists is continued")
    parser.add_argument("--shard", choices=SHARDS, default="", help="this part alone; each test is in one")
    parser.add_argument("--seconds", type=float, default=3600, help="for all of it")
    parser.add_argument("--hang", type=float, default=150, help="seconds for one test")
    parser.add_argument("arguments", nargs="*", help="pytest's, after --")
    asked = parser.parse_args()
    processes.stoppable()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    whole = run(asked.out, asked.arguments, asked.seconds, asked.hang, asked.shard)
    sys.exit(0 if whole and not load(asked.out)["failures"] else 1)


if __name__ == "__main__":
    main()
