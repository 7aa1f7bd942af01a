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
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from pycudnnrnn._atomic import write_atomically
from tests.reliability.measures import MEASURES, ROOT, copy_tree, run
from tests.reliability.report import RESULTS, write_document
from tests.reliability.rows import ROWS, Fault, Row


def pytest(folder: Path, arguments: list[str], profile: str, report: Path) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "pytest", "-q", "-m", "not gpu", f"--junitxml={report}")
    return run(folder, *command, *arguments, profile=profile)


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


def plant(fault: Fault, folder: Path) -> None:
    path = folder / fault.path
    text = path.read_text()
    if fault.old not in text:
        raise SystemExit(f"{fault.path} has no {fault.old!r} any more: give the row another fault")
    path.write_text(text.replace(fault.old, fault.new, 1))


def by_tests(row: Row, profile: str, folder: Path) -> dict[str, Any]:
    """Run a row's tests on a copy of the tree; then again with its fault in the copy, until one is red."""
    done = pytest(copy_tree(folder), ["-n", "2", *row.tests], profile, folder / "row.xml")
    if not (folder / "row.xml").is_file():
        raise SystemExit(done.stdout + done.stderr)
    counts, measured, failed = counts_of(folder / "row.xml")
    red: list[str] = []
    if row.fault:
        plant(row.fault, folder)
        pytest(folder, ["-x", "-p", "no:cacheprovider", *row.tests], "dev", folder / "fault.xml")
        _, _, red = counts_of(folder / "fault.xml")
    return {**counts, "measured": measured.get(row.name, {}), "failed": failed, "red": "".join(red[:1])}


def by_measure(row: Row, folder: Path) -> dict[str, Any]:
    """Measure a copy of the tree; then another, with the row's fault."""
    right, wrong = folder / "right", folder / "wrong"
    right.mkdir()
    wrong.mkdir()
    found = MEASURES[row.measure](copy_tree(right), row.tests, planted=False)
    red = []
    if row.fault:
        plant(row.fault, copy_tree(wrong))
        red = MEASURES[row.measure](wrong, row.tests, planted=True)["failed"]
    return {**found, "red": "".join(red[:1])}


def measure(row: Row, profile: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        found = by_measure(row, Path(name)) if row.measure else by_tests(row, profile, Path(name))
    status = "failed" if found["failed"] else "met" if found["red"] else "not counted: its fault stayed green"
    if row.needs:  # what ran was a stand-in: it shows that the tests see the fault
        status = f"not run: it needs {row.needs}" if status == "met" else status
        found = {"failed": found["failed"], "red": found["red"]}
    return {"status": status, **found, "fault": str(row.fault or ""), "red": re.sub(r"\[.*", "", found["red"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", help="rows to measure anew (default: all); the others keep what they have")
    parser.add_argument("--profile", default="ci", choices=["dev", "ci", "nightly"])
    asked = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if asked.rows and RESULTS.is_file() else {}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    for row in ROWS:
        if not asked.rows or row.name in asked.rows:
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
        write_atomically(RESULTS, (json.dumps(results, indent=1) + "\n").encode())
    write_document()
    if any(result["status"].startswith(("failed", "not counted")) for result in results.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
