"""First contact with a GPU: `python -m tests.gpu.triage --out FILE.jsonl`, in two and a half minutes.

Each check runs in a process of its own, four at a time, and says what it saw, a line of JSON each, and what has to be
mended before a long call is worth its time. The summary has all that is to be mended. What cuDNN makes of a call is
asked by the suite. `python -m tests.gpu.triage NAME` runs one check, here.
"""

import argparse
import collections
import contextlib
import dataclasses
import inspect
import json
import math
import os
import site
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.gpu import checks
from tests.gpu.children import ROOT, lines_of
from tests.gpu.machine import ON_SHIM, environment, machine
from tests.gpu.processes import LOOK_EVERY_S, Program, stoppable, unstopped
from tests.gpu.results_file import ResultsFile

COMMAND = "python -m tests.gpu.triage"
AT_ONCE = 4


@dataclasses.dataclass(frozen=True)
class Check:
    """A function that says what it saw; one that has a parameter is given the device."""

    function: Callable[..., None]
    limit_s: float = 60
    """The first ones have more: a machine that nobody has used reads 2 GB of libraries."""


CHECKS = {
    check.function.__name__: check
    for check in (
        Check(checks.where, 120),
        Check(checks.first, 120),
        Check(checks.benchmarks, 120),
        Check(checks.loaded, 120),
        Check(checks.kernels),
        Check(checks.collect, 110),
        Check(checks.library),
        Check(checks.callbacks),
        Check(checks.tools),
        Check(checks.memcheck, 90),
        Check(checks.initcheck, 90),
        Check(checks.racecheck, 90),
    )
}
"""In order of risk."""


def run_here(function):
    """Run a check in this process."""
    if not inspect.signature(function).parameters:
        function()
        return
    with machine() as cuda:
        function(cuda)


def start(name, limit_s):
    """Start one check in a process of its own."""
    command = [sys.executable, "-m", "tests.gpu.triage", name]
    return Program(command, limit_s, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})


def report(file, name, program, limit_s):
    """Write down what a check has said, also if it did not come to its end; return what is to be mended."""
    out, err = program.texts
    lines = list(lines_of(out))
    wrong = [line["mend"] for line in lines if "mend" in line]
    if program.code != 0:
        ended = f"no end within {limit_s:.0f} s" if program.code is None else f"exit code {program.code}"
        whole = [line for line in err.splitlines() if line[:1].strip()]  # what is indented belongs to a line before
        wrong.append(f"{ended}: {whole[-1]}" if whole else ended)
        lines.append({"stderr": err[-1500:]})
    took = round(program.seconds, 1)
    file.add(question=f"triage {name}", answer=lines)
    outcome = "failed" if wrong else "passed"
    file.add(end=f"triage.py::{name}", outcome=outcome, why="\n".join(wrong), measured=[], seconds=took)
    for line in lines:
        print(json.dumps({"check": name, **line}), flush=True)  # noqa: T201
    print(json.dumps({"check": name, "seconds": took, "mend": wrong}), flush=True)  # noqa: T201
    return wrong


def triage(file, names, seconds=math.inf, at_once=AT_ONCE):
    """Ask checks side by side, until the seconds are over; return what is to be mended, by check."""
    stop_at = time.monotonic() + seconds
    waiting, running, to_mend = collections.deque(names), {}, {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                name, left = waiting.popleft(), stop_at - time.monotonic()
                if left <= 0:
                    to_mend[name] = ["not asked: no time was left"]
                    file.add(question=f"triage {name}", answer="not asked: no time was left")
                    continue
                file.add(begin=f"triage.py::{name}")
                limit_s = min(CHECKS[name].limit_s, left)
                with unstopped():
                    running[name] = start(name, limit_s), limit_s
            for name in [name for name, (program, _) in running.items() if program.over()]:
                to_mend[name] = report(file, name, *running.pop(name))
            time.sleep(LOOK_EVERY_S)
    finally:
        for name, (program, limit_s) in running.items():
            program.end()
            report(file, name, program, limit_s)
    return {name: to_mend[name] for name in names if to_mend.get(name)}


def by_text(to_mend):
    """What is to be mended, each once, with the checks that want it: one cause may turn all of them red."""
    found = {}
    for name, wrong in to_mend.items():
        for text in wrong:
            found.setdefault(text, []).append(name)
    return found


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
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="checks beside each other")
    given = parser.parse_args()
    if given.names and given.out is None:
        run_here(CHECKS[given.names[0]].function)
        return
    stoppable()
    file = ResultsFile(given.out)
    file.start(COMMAND, environment(None))
    read = [] if ON_SHIM else libraries()
    reader = None
    try:
        with unstopped():
            reader = Program(["cat", os.devnull, *read], given.seconds, stdout=subprocess.DEVNULL)
        to_mend = triage(file, given.names or CHECKS, given.seconds, given.at_once)
    finally:
        if reader is not None:
            reader.end()
    print("\nmend before the long calls:" if to_mend else "\nnothing to mend")  # noqa: T201
    for text, names in by_text(to_mend).items():
        print(f"- {', '.join(names)}: {text}")  # noqa: T201
    with contextlib.suppress(Exception), machine() as cuda:  # after all checks: none of them needs it to be free
        file.start(COMMAND, environment(cuda))
    sys.exit(bool(to_mend))


if __name__ == "__main__":
    main()
