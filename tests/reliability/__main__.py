"""Measure the reliability table: `make reliability` runs its tests, plants its faults, and writes down what came out.

The numbers are the tests' own: they say them through the fixture `measured`. The results file is what
`docs/reliability.md` is made from.
"""

from __future__ import annotations

import argparse
import collections
import datetime as dt
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from tests.reliability.report import RESULTS, write_document
from tests.reliability.rows import ROWS, Fault, Row

ROOT = Path(__file__).parents[2]
KEPT = (
    "pycudnnrnn",
    "tests",
    "benchmarks",
    "docs",
    "examples",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "Makefile",
)


def pytest(folder: Path, arguments: list[str], profile: str, report: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HYPOTHESIS_PROFILE": profile, "CI": "true", "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def counts_of(report: Path) -> tuple[dict[str, int], dict[str, dict[str, float]], list[str]]:
    """Read what passed, what the rows measured (sums; the largest of what is named worst_ or peak_), what failed."""
    suite = next(ET.parse(report).getroot().iter("testsuite"))
    counts = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    measured: dict[str, dict[str, float]] = collections.defaultdict(dict)
    failed = []
    for case in suite.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        for found in case.iter("property"):
            row = measured[str(found.get("name"))]
            for name, value in json.loads(str(found.get("value"))).items():
                worst = name.startswith(("worst_", "peak_"))
                row[name] = max(row.get(name, 0), value) if worst else row.get(name, 0) + value
    return counts, measured, failed


def plant(fault: Fault, tests: tuple[str, ...], folder: Path) -> str:
    """Return the first test that a fault turned red, or what went wrong with planting it."""
    copy = folder / "copy"
    for name in KEPT:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)
    path = copy / fault.path
    text = path.read_text()
    if text.count(fault.old) < 1:
        raise SystemExit(f"{fault.path} has no {fault.old!r} any more: give the row another fault")
    path.write_text(text.replace(fault.old, fault.new, 1))
    pytest(copy, ["-x", "-p", "no:cacheprovider", *tests], "dev", folder / "fault.xml")
    _, _, failed = counts_of(folder / "fault.xml")
    return failed[0] if failed else ""


def measure(row: Row, profile: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "copy").mkdir()
        done = pytest(ROOT, ["-n", "2", *row.tests], profile, folder / "row.xml")
        if not (folder / "row.xml").is_file():
            raise SystemExit(done.stdout + done.stderr)
        counts, measured, failed = counts_of(folder / "row.xml")
        red = plant(row.fault, row.tests, folder) if row.fault else ""
    return {
        "status": "failed" if failed else "not counted: its fault stayed green" if not red else "met",
        **counts,
        "failed": failed,
        "measured": measured.get(row.name, {}),
        "fault": f"{row.fault.path}: `{row.fault.old.strip()}` -> `{row.fault.new.strip()}`" if row.fault else "",
        "red": re.sub(r"\[.*", "", red),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", help="rows to measure anew (default: all); the others keep what they have")
    parser.add_argument("--profile", default="ci", choices=["dev", "ci", "nightly"])
    asked = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if asked.rows and RESULTS.is_file() else {}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    for row in ROWS:
        if row.needs:
            results[row.name] = {"status": f"not run: it needs {row.needs}"}
        elif not asked.rows or row.name in asked.rows:
            results[row.name] = {
                "date": dt.datetime.now(dt.UTC).date().isoformat(),
                "commit": commit.stdout.strip(),
                "command": f"make reliability ARGS='{row.name} --profile {asked.profile}'",
                "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
                **measure(row, asked.profile),
            }
        else:
            continue
        print(row.name, json.dumps(results[row.name]), flush=True)  # noqa: T201  a program that reports
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    write_document()
    if any(result["status"].startswith(("failed", "not counted")) for result in results.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
