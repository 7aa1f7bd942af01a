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
from tests.gpu.shards import SHARDS, VARIABLE

ROOT = Path(__file__).parents[2]
FOLDER = "tests/gpu"

PROCESSES = 40
"""Most processes of a run. What ends more than so many is not some tests' fault, and each takes seconds to start."""


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
    words = ["-c", f"{FOLDER}/pytest.ini", "--rootdir", ".", "-p", "no:cacheprovider", FOLDER, *arguments]
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
