"""Plant each fault of the tables in a copy of the tree, run the tests that should notice it, and list those that live.

A table is a TOML file next to this one, named for a room of the package; `plant.py` says how a fault names its place:

    tests = "checkpoint"                   # of every fault that names none; below `tests/`, several apart by spaces

    ["a length of T + 1 is accepted"]      # the promise that is broken
    at = "schedule.check_lengths"
    old = "array > T"
    new = "array > T + 1"
    tests = "spec_and_layout/test_schedule.py"
    kernels = "numba"                      # of the CPU: "numpy" where it is not given

A fault counts as killed when a test fails, the process dies or the tests do not end. The tests have to pass without it,
which is tried first.
"""

import argparse
import contextlib
import importlib
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.faults.plant import ROOT, TABLES, Fault, faults_of, plant
from tests.helpers.tree import copy_tree

SHARED = ("numpy", "torch", "jax", "keras", "h5py", "onnx", "onnxruntime", "cupy", "click", "rich")
"""Imported once, before each run forks. None of them imports the package."""
LIMIT_S = 900


def make_copy():
    """Give this worker a copy of the tree, and the frameworks that all its runs share."""
    global copy  # noqa: PLW0603  one for each worker process
    copy = copy_tree(Path(tempfile.mkdtemp(prefix="faults-")))
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    sys.path[:] = [str(copy), *(p for p in sys.path if p and Path(p).resolve() != ROOT)]
    for name in [name for name in sys.modules if name.partition(".")[0] in {"tests", "pycudnnrnn", "benchmarks"}]:
        del sys.modules[name]
    for name in SHARED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def run(fault):
    """Plant the fault, run its tests in a fork and take it out again; return (fault, killed, by what, seconds)."""
    start = time.monotonic()
    if not fault.at:
        return fault, *judged(fault.tests, fault.kernels), time.monotonic() - start
    file, planted = plant(fault)
    file = copy / file
    before, stat = file.read_bytes(), file.stat()
    file.write_bytes(planted)
    # Two changes of one file within a second would have one bytecode file.
    os.utime(file, (run.clock, run.clock))
    run.clock += 2
    try:
        return fault, *judged(fault.tests, fault.kernels), time.monotonic() - start
    finally:
        file.write_bytes(before)
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


run.clock = 1_000_000_000


def judged(tests, kernels):
    """Run tests in a fork until one fails; return whether one did, and its name or what else happened."""
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        with (copy / "out").open("w") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        os._exit(run_pytest(tests, kernels))
    deadline = time.monotonic() + LIMIT_S
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return True, f"did not end in {LIMIT_S} s"
        time.sleep(0.05)
    code = os.waitstatus_to_exitcode(ended[1])
    said = (copy / "out").read_text()
    if code not in {0, 1, 2} and code >= 0:
        return False, f"pytest ended with {code}: {said[-300:]}"
    named = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE)
    return code != 0, named[1] if named else f"status {code}: {said[-200:]}" if code else ""


def run_pytest(tests, kernels):
    """Run pytest here until a test fails."""
    os.environ["PYCUDNNRNN_CPU_KERNELS"] = kernels
    import pytest  # after the copy is in its place

    try:
        marks = ["-m", "not gpu and not long"] if kernels == "numba" else []
        options = [*marks, "-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-n", "0"]
        return int(pytest.main([*options, *(f"tests/{name}" for name in tests)]))
    except BaseException:  # noqa: BLE001  whatever it is, the fault did it
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def main():
    """Run the tables that are named, or all."""
    names = sorted(path.stem for path in TABLES.glob("*.toml"))
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__.partition("\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"default: all of {', '.join(names)}")
    parser.add_argument("-k", metavar="TEXT", default="", help="only faults with this text in `what`")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    if unknown := set(arguments.tables) - set(names):
        parser.error(f"no table {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    faults = [
        f for name in arguments.tables or names for f in faults_of(TABLES / f"{name}.toml") if arguments.k in f.what
    ]
    for fault in faults:
        plant(fault)  # here, so that one without a place ends this before the first test
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ |= {"HYPOTHESIS_PROFILE": "faults", "KERAS_BACKEND": "torch", "TF_CPP_MIN_LOG_LEVEL": "3"}
    ways = sorted({(fault.tests, fault.kernels) for fault in faults})
    sound = [Fault("no fault", "", "", "", *way) for way in ways]
    living = []
    # A worker of `multiprocessing.Pool` may start no processes of its own, which some tests do.
    with ProcessPoolExecutor(arguments.jobs, multiprocessing.get_context("fork"), make_copy) as pool:
        for fault, failed, by, seconds in pool.map(run, sound):
            print(f"{'FAILS' if failed else 'passes':6} {seconds:5.0f} s  no fault: {fault[4:]} {by}", flush=True)
            if failed or by:
                sys.exit("the tests have to pass without a fault")
        for fault, killed, by, seconds in pool.map(run, faults):
            print(f"{'killed' if killed else 'LIVES':6} {seconds:5.0f} s  {fault.what}  [{by}]", flush=True)
            living += [fault] * (not killed)
    print(f"\n{len(faults)} faults, {len(faults) - len(living)} killed, {len(living)} live")
    for fault in living:
        print(f"  lives: {fault.at}: {fault.what}  (tests: {', '.join(fault.tests)})")
    sys.exit(bool(living))


if __name__ == "__main__":
    main()
