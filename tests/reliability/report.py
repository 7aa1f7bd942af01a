"""`docs/reliability.md`, made from the results file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docs.generate import gpu_results
from pycudnnrnn._atomic import write_atomically
from tests.reliability.rows import ROWS, Row

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results.json"
LOAD = Path(__file__).with_name("load.json")
GUIDED = ROOT / "tests" / "fuzz" / "guided.json"
DOCUMENT = ROOT / "docs" / "reliability.md"

HEAD = """# Reliability, as measured

`make reliability` writes this page from `tests/reliability/results.json`; do not edit it. Each row has a promise, its
target, and the numbers from the last run of its tests. A row is "met" only if a fault planted in the code made one of
its tests fail. The second table lists these faults. If the code has changed since, the row names the fault's commit.

The tests of the cuDNN engine run with the real libcudnn's descriptors and a stand-in for the GPU. They check the calls,
not cuDNN's results. A row that needs a GPU shows the newest file in `tests/gpu/results`. Its fault is planted on the
stand-in.
"""


def numbers(result: dict[str, Any]) -> str:
    found = [f"{value:,} {name.replace('_', ' ')}" for name, value in result.get("measured", {}).items()]
    tests = f"{result['tests']} test{'s' * (result['tests'] != 1)}" if "tests" in result else ""
    skipped = f"{result['skipped']} skipped" if result.get("skipped") else ""
    return ", ".join(filter(None, [*found, tests, skipped])) or "-"


def on_gpu(row: Row, result: dict[str, Any], runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row's result from the newest GPU run that has it, with its fault; else the result unchanged."""
    run = next((run for run in runs if row.name in run.get("reliability", {})), None)
    if not row.needs or run is None:
        return result
    found = run["reliability"][row.name]
    status = "failed" if found["failed"] else "met" if result.get("red") else "not counted: no fault was seen"
    return {**result, **found, "date": run["date"][:10], "commit": run["commit"], "gpu": run["gpu"], "status": status}


def line(row: Row, result: dict[str, Any]) -> str:
    ran = "measured" in result and "date" in result
    when = ", ".join(filter(None, [result["date"], result["commit"][:7], result.get("gpu")])) if ran else "-"
    return f"| {row.name} | {row.promise} | {row.target} | {numbers(result)} | {result['status']} | {when} |"


def document(results: dict[str, Any], runs: list[dict[str, Any]]) -> str:
    """Return the page of the results, and of the runs on a GPU, the newest first."""
    nothing = {"status": "not run"}
    lines = [HEAD, "| | promise | target | measured | status | when |", "| --- | --- | --- | --- | --- | --- |"]
    lines += [line(row, on_gpu(row, results.get(row.name, nothing), runs)) for row in ROWS]
    lines += ["", "| | fault planted | first test that it turned red |", "| --- | --- | --- |"]
    for row in ROWS:
        result = results.get(row.name, nothing)
        if result.get("fault"):
            as_of = "" if result["fault"] == str(row.fault) else f" (as of {result.get('commit', '-')[:7]})"
            fault = result["fault"].replace("|", "\\|").replace("\n", " ")
            lines.append(f"| {row.name} | {fault}{as_of} | `{result['red'] or 'none'}` |")
    return "\n".join([*lines, *fuzzed(json.loads(GUIDED.read_text())), *loaded()]) + "\n"


def loaded() -> list[str]:
    """Return what the latest long run did, if there was one."""
    if not LOAD.is_file():
        return []
    found = json.loads(LOAD.read_text())
    names = ("forwards", "threads", "checked", "save", "cancelled", "growth_bytes", "seconds")
    numbers = " | ".join(f"{found[name]:,}" for name in names)
    what = (
        "A simulated server, in one run: threads share a model, with changing numbers of steps and sequences, unequal "
        "lengths, streams and gradients. At the same time, checkpoints are saved and restored, and calls are cancelled "
        f"(`{found['command']}`)."
    )
    head = "| forwards | threads | compared | saves | cancelled | bytes grown | seconds | wrong | when |"
    row = f"| {numbers} | {len(found['wrong'])} | {found['date']}, {found['commit'][:7]} |"
    return ["", what, "", head, "|" + " --- |" * head.count(" | ") + " --- |", row]


def fuzzed(targets: dict[str, dict[str, Any]]) -> list[str]:
    """Return the table of coverage-guided fuzzing: nightly, so that its results are a file of their own."""
    lines = [
        "", "Coverage-guided fuzzing (`make fuzz`, nightly) of each reader of untrusted data:", "",
        "| target | runs | seconds | branches | corpus | worst ms | peak bytes | found | when |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for name, t in targets.items():
        numbers = " | ".join(
            f"{t[key]:,}" for key in ("runs", "seconds", "branches", "corpus", "worst_ms", "peak_bytes")
        )
        lines.append(f"| {name} | {numbers} | {t['finding'] or 'nothing'} | {t['date']}, {t['commit'][:7]} |")
    return lines


def write_document() -> None:
    write_atomically(DOCUMENT, document(json.loads(RESULTS.read_text()), gpu_results()).encode())
