"""First contact with a GPU: `python -m tests.gpu.triage --out FILE.jsonl`, in two and a half minutes.

Each check runs in a process of its own, four at a time, and says what it saw, a line of JSON each, and what has to be
mended before a long call is worth its time. The summary has all that is to be mended. What cuDNN makes of a call is
asked by the suite. `python -m tests.gpu.triage NAME` runs one check, here.
"""

import argparse
import concurrent.futures
import contextlib
import functools
import inspect
import json
import math
import os
import site
import subprocess
import sys
import time
from pathlib import Path

from tests.gpu import checks, processes
from tests.gpu.children import ROOT, lines_of
from tests.gpu.machine import ON_SHIM, environment, machine
from tests.gpu.results_file import ResultsFile

COMMAND = "python -m tests.gpu.triage"
AT_ONCE = 4
LIMIT_S = 120
"""For one check: a machine that nobody has used reads 2 GB of libraries."""

CHECKS = {
    check.__name__: check
    for check in (
        checks.where, checks.first, checks.benchmarks, checks.loaded, checks.kernels, checks.collect, checks.library,
        checks.tools, checks.sanitizer,
    )
}  # fmt: skip
"""Functions that say what they saw, in order of risk; one that has a parameter is given the device."""


def run_here(function):
    """Run a check in this process."""
    if not inspect.signature(function).parameters:
        function()
        return
    with machine() as cuda:
        function(cuda)


def ask(file, stop_at, name):
    """Run a check in a process of its own; write down what it said, to its end or not; return what is to be mended."""
    limit_s, started = min(LIMIT_S, stop_at - time.monotonic()), time.monotonic()
    file.add(begin=f"triage.py::{name}")
    command = [sys.executable, "-m", "tests.gpu.triage", name]
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


def libraries():
    """The libraries of the installed packages that the checks load, for the page cache."""
    folders = ("nvidia/*/lib", "torch/lib", "cupy", "cupy_backends", "jaxlib", "jax_plugins")
    found = [Path(packages).glob(f"{folder}/**/*.so*") for packages in site.getsitepackages() for folder in folders]
    return [str(path) for paths in found for path in paths]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *CHECKS], help="one runs in this process")
    parser.add_argument("--out", type=Path, help="results file")
    parser.add_argument("--seconds", type=float, default=math.inf, help="for all of them")
    given = parser.parse_args()
    if given.names and given.out is None:
        run_here(CHECKS[given.names[0]])
        return
    processes.stoppable()
    stop_at, file, names = time.monotonic() + given.seconds, ResultsFile(given.out), given.names or list(CHECKS)
    file.start(COMMAND, environment(None))
    read = [] if ON_SHIM else libraries()
    reader = processes.Program(["cat", os.devnull, *read], math.inf, stdout=subprocess.DEVNULL)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(functools.partial(ask, file, stop_at), names)
        to_mend = {name: wrong for name, wrong in zip(names, found, strict=True) if wrong}
    reader.end()
    print("\nmend before the long calls:" if to_mend else "\nnothing to mend")  # noqa: T201
    for name, wrong in to_mend.items():
        print(f"- {name}: {'; '.join(wrong)}")  # noqa: T201
    with contextlib.suppress(Exception), machine() as cuda:  # after all checks: none of them needs it to be free
        file.start(COMMAND, environment(cuda))
    sys.exit(bool(to_mend))


if __name__ == "__main__":
    main()
