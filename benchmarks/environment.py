"""Where and with what a run was made: the first line of every results file."""

from __future__ import annotations

import datetime as dt
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pycudnnrnn

ROOT = Path(__file__).parents[1]


def environment(**settings: Any) -> dict[str, Any]:
    """Describe the machine, the commit and the command; `settings` are the run's own."""
    known, changed = commit(), _output("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")
    return {
        "date": now(),
        "commit": known[:7] if known else "unknown",
        "dirty": bool(changed) if known and changed is not None else None,
        "command": command_line(),
        "machine": cpu(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "gpu": gpus(),
        "versions": {"python": platform.python_version(), "pycudnnrnn": pycudnnrnn.__version__},
    } | settings


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


def gpus() -> list[str]:
    """Name, driver and memory of each GPU, as nvidia-smi says them; empty where there is none."""
    query = "--query-gpu=name,driver_version,memory.total"
    return (_output("nvidia-smi", query, "--format=csv,noheader") or "").splitlines()


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
