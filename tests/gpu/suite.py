"""Run the GPU suite to its end: `python -m tests.gpu.suite --out FILE.jsonl -- PYTEST-ARGUMENT...`.

pytest runs in a process of its own. One that crashes, hangs, or loses the device is replaced by another, which goes on
behind the test that did it; that test has ended with its process.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from tests.gpu.processes import LOOK_EVERY_S, Program, stoppable
from tests.gpu.results_file import ResultsFile, load

ROOT = Path(__file__).parents[2]
FOLDER = "tests/gpu"

VARIABLE = "PYCUDNNRNN_GPU_SHARD"

FILES = {
    "layout": "numbers",
    "numbers": "numbers",
    "questions": "numbers",
    "safe_ways": "numbers",
    "torch": "torch",
    "jax": "jax",
    "graphs": "torch",
    "arrays": "torch",
    "recompute": "numbers",
    "layers": "torch",
    "command_line": "jax",
    "demo": "torch",
    "distributed": "jax",
    "memory": "numbers",
}
"""The shard of each file `test_<name>.py`, in the order of worth."""

APART = ("questions", "safe_ways", "lost", "numbers", "graphs", "algorithms")
"""The files that have tests which may take their process or the device with them, in the order in which those run.

They are the shard `apart`. The last one compiles kernels for every shape, and has the persistent ones tried.
"""

SHARDS = ("numbers", "torch", "jax", "apart")
"""They run side by side."""

PROCESSES = 40
"""Most processes of a run. What ends more than so many is not some tests' fault, and each takes seconds to start."""


def place_of(item):
    """The shard of a test, and its place in the order; None and the last place in a file that is not listed."""
    name, apart = Path(item.path).stem.removeprefix("test_"), item.get_closest_marker("apart") is not None
    files = list(APART if apart else FILES)
    rank = files.index(name) if name in files else len(files)
    return ("apart" if name in APART else None) if apart else FILES.get(name), (apart, rank)


def arrange(items):
    """Return the tests of the shard that the environment names, all without one, in their order; and the others."""
    shard = os.environ.get(VARIABLE)
    chosen = [item for item in items if not shard or place_of(item)[0] == shard]
    others = [item for item in items if shard and place_of(item)[0] != shard]
    return sorted(chosen, key=lambda item: place_of(item)[1]), others


def files_of(shard):
    """What pytest reads for a shard: its files alone, so that a framework is imported only where it is tested."""
    names = APART if shard == "apart" else [name for name in FILES if FILES[name] == shard]
    return [f"{FOLDER}/test_{name}.py" for name in names] or [FOLDER]


def run_once(command, environment, file, hang_s, seconds):
    """Run one process until it ends, no time is left, or nothing was written for too long; return its exit code."""
    program = Program(command, seconds, cwd=ROOT, env=environment, stdout=None, stderr=None)
    started = time.time()
    try:
        while not program.over() and time.time() - max(started, file.written()) <= hang_s:
            time.sleep(LOOK_EVERY_S)
    finally:
        program.end()
    return program.code


def run(out, arguments, seconds, hang_s, shard=""):
    """Start processes until one comes to the end of the suite, or of one shard of it; return whether one did.

    Plugins that happen to be installed are left out: the suite uses none, and none can then be in its way.
    """
    file, stop_at = ResultsFile(out), time.time() + seconds
    words = ["-c", f"{FOLDER}/pytest.ini", "--rootdir", ".", "-p", "no:cacheprovider", *files_of(shard), *arguments]
    sharded = ["--shard", shard] if shard else []
    environment = os.environ | {
        "PYCUDNNRNN_GPU_RESULTS": str(out.resolve()),
        "PYCUDNNRNN_GPU_COMMAND": " ".join(["python -m tests.gpu.suite", *sharded, "--", *arguments]),
        VARIABLE: shard,
        "PYCUDNNRNN_REQUIRE_GPU": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(ROOT),
    }
    for _ in range(PROCESSES):
        before, left = len(file.begun()), stop_at - time.time()
        code = run_once([sys.executable, "-m", "pytest", *words], environment, file, hang_s, left)
        if file.complete():
            return True
        file.add(process_ended=code, after=file.begun()[-1:])
        if time.time() > stop_at or len(file.begun()) == before:
            break
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="results file; one that is there is continued")
    parser.add_argument("--shard", choices=SHARDS, default="", help="this part alone; each test is in one")
    parser.add_argument("--seconds", type=float, default=3600, help="for all of it")
    parser.add_argument("--hang", type=float, default=150, help="seconds without a test that begins or ends")
    parser.add_argument("arguments", nargs="*", help="pytest's, after --")
    asked = parser.parse_args()
    stoppable()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    whole = run(asked.out, asked.arguments, asked.seconds, asked.hang, asked.shard)
    sys.exit(0 if whole and not load(asked.out)["failures"] else 1)


if __name__ == "__main__":
    main()
