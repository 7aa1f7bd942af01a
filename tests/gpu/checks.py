"""What the triage asks: of the machine and its libraries, and whether a first call is right.

Each check runs in a process of its own, and says what it saw.
"""

import contextlib
import importlib
import importlib.metadata
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.gpu import sanitize
from tests.gpu.children import ROOT, started
from tests.gpu.machine import ON_SHIM
from tests.gpu.numbers import DTYPES, lstm, problem_of, run, run_numpy, worst

PACKAGES = (
    "numpy", "safetensors", "cupy-cuda13x", "cuda-pathfinder", "ml-dtypes", "torch", "triton", "jax", "jaxlib",
    "nvidia-cudnn-cu13", "nvidia-cublas", "nvidia-cuda-nvrtc", "nvidia-nccl-cu13", "pytest", "hypothesis", "click",
    "rich",
)  # fmt: skip
LIBRARIES = ("libcudnn", "libcublas", "libnvrtc", "libcudart", "libnccl", "libcuda.")
KEPT = 3000
"""Characters of a log that are kept."""


def say(mend="", **facts):
    """Print a line that the triage reads; `mend` is what the facts ask for, if they do."""
    print(json.dumps(facts | ({"mend": mend} if mend else {}), default=str), flush=True)  # noqa: T201


def first(cuda):
    """One forward and backward of two layers: before anything else works."""
    problem = problem_of(lstm(), None)
    ratio = round(worst(run(cuda, problem), run_numpy(problem), problem)[0], 3)
    say(mend="" if ratio <= 1 else "wrong numbers", share_of_what_is_allowed=ratio)


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
    smi = shutil.which("nvidia-smi")
    clocks = started([smi, "-q", "-d", "CLOCK,MEMORY"], 20)[0] if smi else "no nvidia-smi"
    say(clocks_and_memory=clocks[: 2 * KEPT])


def tools():
    """What the machine has, and whether `tests` is ours: another package of that name in its site folder would win."""
    import tests

    folders = os.pathsep.join([os.environ["PATH"], "/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer"])
    programs = ("git", "make", "timeout", "nvcc", "g++", "nvidia-smi", "compute-sanitizer")
    say(programs={name: shutil.which(name, path=folders) for name in programs})
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    missing = [name for name in ("pytest", "hypothesis", "click", "rich") if name not in versions]
    say(mend=f"{', '.join(missing)} missing: their tests cannot run" if missing else "", versions=versions)
    found = list(tests.__path__)
    say(mend="" if found[0] == str(ROOT / "tests") else "`tests` is another package", tests=found)


def library(cuda):
    """Without torch: which libcudnn, whether it opens what it needs, how long its first handle takes; and NCCL."""
    began = time.perf_counter()
    cuda.engine.runtime.handles.on(cuda.device.stream())
    first_handle_s = round(time.perf_counter() - began, 2)
    say(library=str(cuda.engine.library), first_handle_s=first_handle_s, libraries=in_this_process())
    say(nccl_available=importlib.import_module("cupy.cuda.nccl").available)


def loaded():
    """Which of NVIDIA's libraries are in a process behind torch and JAX, and whether ours can then be one of them."""
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


def collect():
    """Whether pytest can read the whole suite."""
    words = ["-c", "tests/gpu/pytest.ini", "--rootdir", ".", "-p", "no:cacheprovider", "tests/gpu", "--collect-only"]
    plain = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYCUDNNRNN_GPU_RESULTS": ""}
    out, err, code = started([sys.executable, "-m", "pytest", *words, "-q"], 100, **plain)
    say(mend=f"the suite cannot be read: {out[-KEPT:]}{err[-400:]}" if code else "", last=out.splitlines()[-1:])


def benchmarks():
    """One row of the benchmarks, by everyone who runs it: the C++ program is built for it, and everything imported."""
    module = "tests.stand_in.bench_gpu" if ON_SHIM else "benchmarks.gpu"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", module, "--rows", "1", "--seconds", "60", "--out", folder]
        out, err, code = started(command, 110)
        lines = [json.loads(line) for path in Path(folder).rglob("*.jsonl") for line in path.read_text().splitlines()]
    rows = [line for line in lines if "status" in line]
    failed = sorted({f"{row.get('competitor')}: {row.get('reason')}" for row in rows if row["status"] == "failed"})
    mend = f"exit code {code}: {err[-800:]}" if code != 0 else "; ".join(failed) if failed or rows else "no row came"
    say(
        mend,
        rows=[{name: row.get(name) for name in ("competitor", "status", "reason")} for row in rows],
        table=out[-KEPT:],
    )


def sanitizer():
    """Run one case under memcheck, and keep what it wrote: its format is known then."""
    try:
        program = sanitize.program()
    except FileNotFoundError as error:
        say(skipped=str(error))
        return
    case = [sys.executable, "-m", "tests.gpu.cases", "lstm float32 unidirectional ragged"]
    out, err, code = started([program, "--tool", "memcheck", *sanitize.OPTIONS, *case], 100)
    log = out + err
    whole = "cases: all" in log and sanitize.summary_of(log) is not None
    say(mend="" if whole else "memcheck did not get to the end, or its count cannot be read", code=code, log=log[:KEPT])
