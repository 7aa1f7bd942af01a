"""First contact with a GPU: `python -m tests.gpu.triage NAME... --out FILE.jsonl`; without names, every check.

Each check runs in a process of its own, four at a time. It writes what it saw, a line of JSON each, and what must be
mended before a long call is worth its time. The summary repeats what must be mended.
`python -m tests.gpu.triage NAME` runs one check in this process.
"""

import argparse
import concurrent.futures
import contextlib
import functools
import importlib
import importlib.metadata
import inspect
import json
import math
import os
import shutil
import site
import sys
import threading
import time
from pathlib import Path

import numpy as np

from tests.gpu import processes
from tests.gpu.children import ROOT, lines_of, say
from tests.gpu.machine import ON_SHIM, environment, machine
from tests.gpu.numbers import DTYPES, lstm, problem_of, run, run_numpy, worst
from tests.gpu.results_file import ResultsFile

COMMAND = "python -m tests.gpu.triage"
AT_ONCE = 4
LIMIT_S = 120
"""For one check: a machine that nobody has used reads 2 GB of libraries."""

NEEDED = ("numpy", "safetensors", "filelock", "click", "rich", "ml-dtypes", "pytest", "hypothesis")
"""Packages without which the suite does not run."""

COMPARED = (
    "cupy-cuda13x", "cupy-cuda12x", "cuda-pathfinder", "torch", "triton", "jax", "jaxlib", "numba",
    "nvidia-cudnn-cu13", "nvidia-cublas", "nvidia-cuda-nvrtc", "nvidia-nccl-cu13",
)  # fmt: skip
"""Packages whose versions a reader of the results asks for."""

LIBRARIES = ("libcudnn", "libcublas", "libnvrtc", "libcudart", "libnccl", "libcuda.")

AHEAD = ("libcudnn_graph", "libcudnn_ops", "libcudnn_adv", "libcublasLt", "libnvrtc", "libtorch_cuda", "xla_cuda")
"""Libraries that the first calls load, in the order in which they are needed."""


def first(cuda):
    """One forward and backward of two layers: before anything else works."""
    problem = problem_of(lstm())
    ratio = round(worst(run(cuda, problem), run_numpy(problem), problem)[0], 3)
    say(mend="" if ratio <= 1 else "wrong numbers", share_of_what_is_allowed=ratio)


def where():
    """Who may write to libcudnn and the folders above it: where others may, it is refused, and all else fails."""
    from pycudnnrnn import _discovery, libcudnn
    from pycudnnrnn.errors import EngineError

    try:
        candidate, _ = _discovery.find(_discovery.Context())
        path = candidate.path.resolve()
        places = [
            {"place": str(p), "mode": oct(p.stat().st_mode), "owner": p.stat().st_uid} for p in (path, *path.parents)
        ]
        say(library=str(path), user=os.geteuid(), places=places)
        libcudnn.load()
    except EngineError as error:
        say(mend=error.reason, tried=error.attempts)


def loaded():
    """Which of NVIDIA's libraries are in a process after torch and JAX, and whether ours can then be one of them."""
    from pycudnnrnn import libcudnn
    from pycudnnrnn.errors import EngineError

    say(after="nothing", libraries=in_this_process())
    import torch

    if torch.cuda.is_available():
        torch.nn.LSTM(4, 4, device="cuda")(torch.zeros(1, 1, 4, device="cuda"))
    missing = not ON_SHIM and not torch.cuda.is_available()
    say("this torch has no CUDA" if missing else "", after="torch", libraries=in_this_process())
    import jax

    missing = not ON_SHIM and jax.default_backend() != "gpu"
    devices = [str(device) for device in jax.devices()]
    say("this JAX has no CUDA" if missing else "", after="JAX", devices=devices, libraries=in_this_process())
    try:
        libcudnn.load()
        mend = ""
    except EngineError as error:
        mend = f"behind torch and JAX: {error.reason}"
    say(mend, after="ours", libraries=in_this_process())


def in_this_process():
    """The paths of NVIDIA's libraries that are loaded."""
    paths = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    return sorted(path for path in paths if Path(path).name.startswith(LIBRARIES))


def kernels(cuda):
    """CuPy's kernels for each type that the engine copies; each is compiled at its first use."""
    for dtype in DTYPES:
        began, device, ones = time.perf_counter(), cuda.device, np.ones((4, 3, 2), lstm(dtype).dtype.numpy)
        array = device.zeros(ones.shape, ones.dtype)
        device.add_into(array, cuda.put(ones))
        array = device.take(array, cuda.put(np.array([2, 0])), 1)
        right = bool((cuda.get(device.copy(array[::2])).astype("f4") == 1).all())
        took = round(time.perf_counter() - began, 1)
        say(mend="" if right else f"CuPy's {dtype}", dtype=dtype, right=right, s=took)


def library(cuda):
    """Without torch: which libcudnn, whether it opens what it needs, how long its first handle takes; and NCCL."""
    began = time.perf_counter()
    cuda.engine.runtime.handles.on(cuda.device.stream())
    first_handle_s = round(time.perf_counter() - began, 2)
    say(library=str(cuda.engine.library), first_handle_s=first_handle_s, libraries=in_this_process())
    say(nccl_available=importlib.import_module("cupy.cuda.nccl").available)


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


CHECKS = {check.__name__: check for check in (first, where, loaded, kernels, library, tools)}
"""Functions that report what they saw, in order of risk; one that has a parameter gets the device."""


def run_here(function):
    """Run a check in this process."""
    if not inspect.signature(function).parameters:
        function()
        return
    with machine() as cuda:
        function(cuda)


def ask(file, stop_at, name):
    """Run a check in a process of its own; write down its lines, to its end or not; return what must be mended."""
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


def ahead(packages):
    """The libraries in folders of packages that are worth reading into the page cache before they are loaded."""
    folders = ("nvidia/*/lib", "torch/lib", "jax_plugins")
    paths = [path for root in packages for folder in folders for path in sorted(Path(root).glob(f"{folder}/**/*.so*"))]
    return [path for name in AHEAD for path in paths if path.name.startswith(name)]


def read_ahead(file):
    """Read them, and write down how fast this disk is."""
    began, nbytes = time.monotonic(), 0
    for path in ahead(site.getsitepackages()):
        with path.open("rb", buffering=0) as library_file:
            while block := library_file.read(16 << 20):
                nbytes += len(block)
    seconds = round(time.monotonic() - began, 1)
    file.add(question="triage: libraries read ahead", answer={"MB": nbytes >> 20, "seconds": seconds})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *CHECKS], help="one without --out runs in this process")
    parser.add_argument("--out", type=Path, help="results file")
    parser.add_argument("--seconds", type=float, default=math.inf, help="for all of them")
    options = parser.parse_args()
    if options.names and options.out is None:
        run_here(CHECKS[options.names[0]])
        return
    processes.stoppable()
    stop_at, file, names = time.monotonic() + options.seconds, ResultsFile(options.out), options.names or list(CHECKS)
    file.start(COMMAND, environment(None))
    if not ON_SHIM:
        threading.Thread(target=read_ahead, args=(file,), daemon=True).start()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        answers = pool.map(functools.partial(ask, file, stop_at), names)
        to_mend = {name: wrong for name, wrong in zip(names, answers, strict=True) if wrong}
    print("\nmend before the long calls:" if to_mend else "\nnothing to mend")  # noqa: T201
    for name, wrong in to_mend.items():
        print(f"- {name}: {'; '.join(wrong)}")  # noqa: T201
    with contextlib.suppress(Exception), machine() as cuda:  # after all checks: none of them needs it to be free
        file.start(COMMAND, environment(cuda))
    sys.exit(bool(to_mend))


if __name__ == "__main__":
    main()
