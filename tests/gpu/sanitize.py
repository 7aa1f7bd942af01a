"""Run the small cases under compute-sanitizer: `make gpu-sanitize`. It writes one JSON file, beside the suite's.

What `suppressions.toml` does not explain is a finding, and so is a tool that did not get to the end of the cases; one
that refuses the device is skipped.
"""

import argparse
import datetime as dt
import json
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

from pycudnnrnn._atomic import write_atomically
from tests.gpu.cases import CASES
from tests.gpu.machine import environment, machine

TOOLS = {"memcheck": ("--report-api-errors=no",), "initcheck": (), "racecheck": ()}
SUPPRESSIONS = Path(__file__).with_name("suppressions.toml")
REFUSED = "Device not supported"
MARK = "========= "
ABOUT_ITSELF = (
    "COMPUTE-SANITIZER",
    "ERROR SUMMARY",
    "RACECHECK SUMMARY",
    "Target application",
    "Saved host",
    "LEAK SUM",
)


def findings_in(log):
    """Each finding's text, and the case that it came in: its lines stand together between bare marks."""
    case, lines = "before the first", []
    for line in [*log.splitlines(), MARK.strip()]:
        if line.startswith("case: "):
            case = line.removeprefix("case: ")
        elif line.startswith(MARK) and line.strip() != MARK.strip():
            text = line.removeprefix(MARK).strip()
            if not text.startswith(ABOUT_ITSELF):
                lines.append(text)
                continue
        if lines and not line.startswith(MARK.strip() + "  "):
            yield case, " | ".join(lines)
            lines = []


def summary_of(log):
    """How many errors the tool itself counted; None if it never came to that."""
    found = re.search(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (\d+)", log, re.MULTILINE)
    return int(found[1]) if found else None


def suppressed(tool, text, suppressions):
    return any(known["tool"] == tool and re.search(known["pattern"], text) for known in suppressions)


def watch(tool, command, suppressions, timeout_s):
    """Run the cases under one tool."""
    started = time.perf_counter()
    whole = ["compute-sanitizer", "--tool", tool, *TOOLS[tool], *command]
    try:
        done = subprocess.run(
            whole, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout_s, check=False
        )
        log = done.stdout
    except subprocess.TimeoutExpired as late:
        log = (late.stdout or b"").decode(errors="replace")
    found = list(findings_in(log))
    left = [f"{case}: {text}" for case, text in found if not suppressed(tool, text, suppressions)]
    counted = summary_of(log)
    if REFUSED in log:
        return {"tool": tool, "skipped": REFUSED, "suppressed": 0, "findings": []}
    if counted is None or "cases: all" not in log:
        left.append(f"{tool} did not get to the end: {log[-500:]}")
    elif counted and not found:
        left.append(f"{tool} counted {counted} errors, and none could be read in what it wrote")
    return {
        "tool": tool,
        "cases": log.count("case: "),
        "counted": counted,
        "suppressed": len(found) - sum(1 for case, text in found if not suppressed(tool, text, suppressions)),
        "findings": left,
        "seconds": round(time.perf_counter() - started, 1),
    }


def content_of(found, machine_):
    """The results file's content: of the suite's form, with one row for the reliability table."""
    ran = [result for result in found if "skipped" not in result]
    failed = [f"{result['tool']}: {text}" for result in ran for text in result["findings"]]
    passed = sum(not result["findings"] for result in ran)
    measured = {
        "tools": len(ran), "cases": len(CASES), "findings": len(failed),
        "suppressed": sum(result["suppressed"] for result in found),
    }  # fmt: skip
    return {
        "schema": 2,
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "command": "make gpu-sanitize",
        **machine_,
        "collected": len(found), "passed": passed, "failed": len(ran) - passed, "skipped": len(found) - len(ran),
        "error": 0,
        "failures": failed,
        "tests": {},
        "reliability": {"R11": {"tests": len(ran), "measured": measured, "failed": failed}} if ran == found else {},
        "questions": {f"compute-sanitizer {result['tool']}": result for result in found},
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="results file")
    parser.add_argument("--tool", action="append", choices=list(TOOLS), help="these alone")
    parser.add_argument("--seconds", type=float, default=140, help="for each tool")
    asked = parser.parse_args()
    with machine() as cuda:
        about = environment(cuda)
    suppressions = tomllib.loads(SUPPRESSIONS.read_text()).get("suppression", [])
    command = [sys.executable, "-m", "tests.gpu.cases"]
    found = [watch(tool, command, suppressions, asked.seconds) for tool in asked.tool or TOOLS]
    write_atomically(asked.out, (json.dumps(content_of(found, about), indent=1) + "\n").encode())
    for result in found:
        print(json.dumps(result)[:2000])  # noqa: T201  a program that reports
    sys.exit(any(result["findings"] for result in found))


if __name__ == "__main__":
    main()
