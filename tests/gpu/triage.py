"""First contact with a GPU: `python -m tests.gpu.triage --out FILE.jsonl`.

Each check runs in a process of its own, beside the others. It writes what it saw, a line of JSON each, and what must be
mended before a long call is worth its time. The summary repeats what must be mended.
"""

import argparse
import concurrent.futures
import contextlib
import functools
import importlib.metadata
import json
import math
import os
import shutil
import sys
import time
from pathlib import Path

from tests.gpu import processes
from tests.gpu.machine import environment, machine
from tests.gpu.numbers import lstm, problem_of, run, run_numpy, worst
from tests.gpu.results_file import ResultsFile

ROOT = Path(__file__).parents[2]
COMMAND = "python -m tests.gpu.triage"
LIMIT_S = 120
"""For one check: a machine that nobody has used reads 2 GB of libraries."""

NEEDED = ("numpy", "safetensors", "filelock", "click", "rich", "ml-dtypes", "pytest", "hypothesis")
"""Packages without which the suite does not run."""

COMPARED = ("cupy-cuda13x", "cupy-cuda12x", "torch", "jax", "jaxlib", "numba", "nvidia-cudnn-cu13", "nvidia-nccl-cu13")
"""Packages whose versions a reader of the results asks for."""

LIBRARIES = ("libcudnn", "libcublas", "libnvrtc", "libcudart", "libnccl", "libcuda.")


def lines_of(out):
    """What was said; other libraries may have written between it, and the last line may be half of one."""
    for line in out.splitlines():
        with contextlib.suppress(ValueError):
            facts = json.loads(line)
            if isinstance(facts, dict):
                yield facts


def say(mend="", **facts):
    """Print a line that the parent reads; `mend` is what must be mended, if anything."""
    print(json.dumps(facts | ({"mend": mend} if mend else {}), default=str), flush=True)  # noqa: T201


def first():
    """Without torch: which libcudnn, and one forward and backward of two layers, before anything else works."""
    with machine() as cuda:
        say(library=str(cuda.engine.library), libraries=in_this_process())
        problem = problem_of(lstm())
        ratio = round(worst(run(cuda, problem), run_numpy(problem), problem)[0], 3)
        say(mend="" if ratio <= 1 else "wrong numbers", share_of_what_is_allowed=ratio)


def in_this_process():
    """The paths of NVIDIA's libraries that are loaded."""
    paths = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    return sorted(path for path in paths if Path(path).name.startswith(LIBRARIES))


def tools():
    """What the machine has, and whether `tests` is ours: another package of that name in its site folder would win."""
    import tests

    folders = os.pathsep.join([os.environ["PATH"], "/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer"])
    programs = ("timeout", "nvcc", "g++", "nvidia-smi", "compute-sanitizer")
    say(programs={name: shutil.which(name, path=folders) for name in programs})
    versions = {}
    for name in (*NEEDED, *COMPARED):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    missing = ", ".join(name for name in NEEDED if name not in versions)
    say(mend=f"missing: {missing}" if missing else "", versions=versions)
    folder = next(iter(tests.__path__))
    say(mend="" if folder == str(ROOT / "tests") else "`tests` is another package", tests=folder)


CHECKS = ("first", "tools")
"""Functions that report what they saw, in order of risk."""


def ask(file, stop_at, name):
    """Run a check in a process of its own; write down its lines, to its end or not; return what must be mended."""
    limit_s, started = min(LIMIT_S, stop_at - time.monotonic()), time.monotonic()
    file.add(begin=f"triage.py::{name}")
    command = [sys.executable, "-c", f"from tests.gpu.triage import {name}; {name}()"]
    code, out, err = processes.run(command, limit_s, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
    lines = list(lines_of(out))
    wrong = [line["mend"] for line in lines if "mend" in line]
    if code != 0:
        ended = f"no end within {limit_s:.0f} s" if code is None else f"exit code {code}"
        wrong.append(": ".join([ended, *err.splitlines()[-1:]]))
        lines.append({"stderr": err[-1500:]})
    took = round(time.monotonic() - started, 1)
    file.add(question=f"triage {name}", answer=lines)
    file.add(end=f"triage.py::{name}", outcome="failed" if wrong else "passed", why="\n".join(wrong), seconds=took)
    for line in [*lines, {"seconds": took, "mend": wrong}]:
        print(json.dumps({"check": name, **line}), flush=True)  # noqa: T201
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="results file")
    parser.add_argument("--seconds", type=float, default=math.inf, help="for all of them")
    options = parser.parse_args()
    processes.stoppable()
    stop_at, file = time.monotonic() + options.seconds, ResultsFile(options.out)
    file.start(COMMAND, environment(None))
    with concurrent.futures.ThreadPoolExecutor(len(CHECKS)) as pool:
        answers = pool.map(functools.partial(ask, file, stop_at), CHECKS)
        to_mend = {name: wrong for name, wrong in zip(CHECKS, answers, strict=True) if wrong}
    print("\nmend before the long calls:" if to_mend else "\nnothing to mend")  # noqa: T201
    for name, wrong in to_mend.items():
        print(f"- {name}: {'; '.join(wrong)}")  # noqa: T201
    with contextlib.suppress(Exception), machine() as cuda:  # after all checks: none of them needs it to be free
        file.start(COMMAND, environment(cuda))
    sys.exit(bool(to_mend))


if __name__ == "__main__":
    main()
