"""Where and with what a run was made: the first line of every results file."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pycudnnrnn

ROOT = Path(__file__).parents[1]

SCHEMA: Final = 2
"""Of results files. 1 had H for U, and neither A/A nor the keys of `state`."""

GPU_FACTS: Final = "name driver_version memory.total compute_cap persistence_mode ecc.mode.current mig.mode.current"
GPU_STATE: Final = (
    "pstate clocks.sm clocks.mem temperature.gpu power.draw power.limit utilization.gpu clocks_throttle_reasons.active"
)
"""What nvidia-smi is asked of a GPU: once, and before and after a run."""

VARIABLES: Final = ("OMP_", "MKL_", "OPENBLAS_", "NUMBA_", "XLA_", "CUDA_", "CUDNN_", "NVIDIA_", "PYCUDNNRNN_")
"""Environment variables that begin so are recorded: they change what is timed."""


def environment(**settings: Any) -> dict[str, Any]:
    """Describe the machine, the commit and the command; `settings` are the run's own."""
    known, changed = commit(), _output("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")
    return {
        "schema": SCHEMA,
        "date": now(),
        "commit": known[:7] if known else "unknown",
        "dirty": bool(changed) if known and changed is not None else None,
        "command": command_line(),
        "machine": cpu(),
        "cores": os.cpu_count(),
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": [sorted(core) for core in cores()],
        "variables": {name: value for name, value in os.environ.items() if name.startswith(VARIABLES)},
        "gpu": [", ".join([*gpu.values()][:3]) for gpu in gpus(GPU_FACTS)],
        "gpu_facts": gpus(GPU_FACTS),
        "before": state(),
        "versions": {"python": platform.python_version(), "pycudnnrnn": pycudnnrnn.__version__},
    } | settings


def state() -> dict[str, Any]:
    """Return what changes while a machine works; it is recorded before and after a run."""
    found: dict[str, Any] = {"load": list(os.getloadavg()), "gpu": gpus(GPU_STATE)}
    with contextlib.suppress(OSError):  # a virtual machine has none
        found["governor"] = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").read_text("utf-8").strip()
    return found


def cores() -> list[set[int]]:
    """Return the processors that this process may use, core by core: hardware threads of one core are together."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    together: dict[str, set[int]] = {}
    for number in sorted(allowed):
        path = Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        together.setdefault(path.read_text(encoding="utf-8") if path.exists() else str(number), set()).add(number)
    return list(together.values())


def processors(threads: int) -> list[int]:
    """Choose processors for so many threads: the last ones, each in a core of its own as long as there are cores."""
    turns = [sorted(core) for core in reversed(cores())]
    order = [core[turn] for turn in range(max(map(len, turns))) for core in turns if turn < len(core)]
    return sorted(order[:threads])


def commit() -> str | None:
    """What PYCUDNNRNN_COMMIT says, for a copy of the tree without its history; or the checkout's own."""
    return os.environ.get("PYCUDNNRNN_COMMIT") or _output("git", "-C", str(ROOT), "rev-parse", "HEAD")


def now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def cpu() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


def gpus(names: str) -> list[dict[str, str]]:
    """Return properties of each GPU, as nvidia-smi says them; empty where there is none."""
    rows = (_output("nvidia-smi", f"--query-gpu={names.replace(' ', ',')}", "--format=csv,noheader") or "").splitlines()
    return [dict(zip(names.split(), row.split(", "), strict=False)) for row in rows]


def libraries() -> list[str]:
    """Return the files of cuDNN, CUDA, BLAS and OpenMP that this process has loaded."""
    if not (maps := Path("/proc/self/maps")).exists():
        return []
    pattern = r"/\S*/lib(?:cudnn|cublas|cudart|nvrtc|openblas|scipy_openblas|mkl|[gi]*omp)[^/\s]*$"
    paths = set(re.findall(pattern, maps.read_text(encoding="utf-8"), re.MULTILINE))
    return sorted(path.rpartition("/site-packages/")[2] for path in paths)


def command_line() -> str:
    """What was typed, with the module's name in the place of its path."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = f"python -m {spec.name.removesuffix('.__main__')}" if spec else Path(sys.argv[0]).name
    return " ".join([name, *sys.argv[1:]])


def machine_folder(environment: dict[str, Any]) -> str:
    """The folder of `results/` that a run belongs in: its GPU's name, or "cpu"."""
    if not environment["gpu"]:
        return "cpu"
    return re.sub(r"[^a-z0-9]+", "-", environment["gpu"][0].partition(",")[0].lower()).strip("-")


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
