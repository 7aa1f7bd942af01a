"""What is measured by more than tests that pass: branch coverage, mutants, the host's time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.results_files import load

ROOT = Path(__file__).parents[2]
KEPT = (
    "pycudnnrnn", "tests", "benchmarks", "docs", "examples", "typing_tests", "pyproject.toml", "README.md",
    "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "Makefile",
)  # fmt: skip
"""What a copy of the tree needs for its tests."""

WHOLE = ("_checks.py", "layout/", "spec/", "schedule.py", "checkpoint/", "_discovery.py", "engines/cudnn/handles.py")
"""Modules whose every branch is to be taken."""


def copy_tree(target: Path) -> Path:
    for name in KEPT:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target / name)
    return target


def run(folder: Path, *command: str, profile: str = "dev") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HYPOTHESIS_PROFILE": profile, "CI": "true", "PYTHONPATH": str(folder)}
    environment["PYCUDNNRNN_GPU_ON_SHIM"] = "1"  # what tests/gpu is to run on here, if it is asked for
    if Path(command[0]).name == "mutmut":  # it puts the mutants' folder first by itself
        del environment["PYTHONPATH"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def coverage(folder: Path, tests: Sequence[str], *, planted: bool) -> dict[str, Any]:
    """Run tests under branch coverage; a failing test, or a branch of WHOLE that is not taken, is a failure.

    Without a fault planted all the tests run besides; less than 95 % of the package taken by them is one too.
    """
    report, done = _covered(folder, tests)
    files = report["files"]
    whole = {name: data for name, data in files.items() if any(f"pycudnnrnn/{part}" in name for part in WHOLE)}
    failed = ["a test failed"] if done.returncode else []
    failed += [
        f"{name}: lines {data['missing_lines']}, branches {data['missing_branches']}"
        for name, data in whole.items()
        if data["missing_lines"] or data["missing_branches"]
    ]
    branches = sum(data["summary"]["num_branches"] for data in whole.values())
    measured = {"files": len(whole), "branches": branches}
    if not planted:
        everything, done = _covered(folder, [])
        percent = everything["totals"]["percent_covered"]
        measured["percent_of_the_package"] = round(percent, 1)
        failed += ["a test failed"] if done.returncode else []
        failed += [f"{percent:.1f} % of the package"] if percent < 95 else []
    return {"measured": measured, "failed": failed}


def _covered(folder: Path, tests: Sequence[str]) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    report = folder / "coverage.json"
    measuring = ["--cov", "--cov-report=", f"--cov-report=json:{report}"]
    done = run(folder, sys.executable, "-m", "pytest", "-q", "-m", "not gpu", "-n", "2", *measuring, *tests)
    return json.loads(report.read_text()), done


def mutation(folder: Path, tests: Sequence[str], *, planted: bool) -> dict[str, Any]:
    """Mutate the modules named in pyproject.toml; fewer than 90 % of the mutants found out is a failure."""
    mutmut = str(Path(sys.executable).with_name("mutmut"))
    done = run(folder, mutmut, "run", "--max-children", "2")
    run(folder, mutmut, "export-cicd-stats")
    stats = json.loads((folder / "mutants" / "mutmut-cicd-stats.json").read_text())
    score = 100 * stats["killed"] / stats["total"]
    failed = [] if score >= 90 else [f"{score:.1f} % of the mutants were found out"]
    if done.returncode:
        failed.append(done.stderr[-500:])
    counts = {name: stats[name] for name in ("total", "killed", "survived", "no_tests")}
    return {"measured": {"percent_found_out": round(score, 1), **counts}, "failed": failed}


def host_cost(folder: Path, tests: Sequence[str], *, planted: bool) -> dict[str, Any]:
    """Time an eager forward beside the bare call; more than 20 us on top is a failure."""
    out = folder / "host.jsonl"
    run(folder, sys.executable, "-m", "benchmarks.host_cost", "--out", str(out))
    (eager,) = load(out).select(goal="B3")
    bare = eager["extras"]["foreign_call_us"]
    above = round(eager["median_us"] - bare, 1)
    measured = {"us_above_the_bare_call": above, "us_the_bare_call": round(bare, 1)}
    return {"measured": measured, "failed": [] if above <= 20 else [f"{above} us"]}


MEASURES = {"coverage": coverage, "mutation": mutation, "host_cost": host_cost}
