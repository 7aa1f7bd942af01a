"""Run the small cases under compute-sanitizer: `make gpu-sanitize`. It writes a results file, as the suite does.

What `suppressions.toml` does not explain is a finding, and so is a tool that did not get to the end of the cases; one
that refuses the device is skipped. What initcheck and racecheck report in kernels of cuDNN and cuBLAS is counted by
kernel, and is no finding: those read scratch memory that nobody wrote, and order shared memory by means that racecheck
does not know. All that memcheck reports is a finding.
"""

import argparse
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

from tests.gpu import processes
from tests.gpu.cases import CASES
from tests.gpu.machine import environment, machine
from tests.gpu.results_file import ResultsFile

TOOLS = {"memcheck": ("--report-api-errors=no",), "initcheck": (), "racecheck": ()}
SCRATCH_TOOLS = ("initcheck", "racecheck")
PRINTED_MAX = 20_000
"""Findings that are printed; its own limit of 100 is soon reached by those of cuDNN's kernels."""

FOLDERS = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/cuda/bin")
"""Where CUDA's toolkit puts it, beside PATH."""

SUPPRESSIONS = Path(__file__).with_name("suppressions.toml")
REFUSED = "Device not supported"
MARK = "========="
ABOUT_ITSELF = ("COMPUTE-SANITIZER", "Target application", "LEAK SUM")
SUMMARY = re.compile(r"^=+ [A-Z]+ SUMMARY: (\d+)", re.MULTILINE)
NOT_PRINTED = re.compile(r"^=+ [A-Z]+ SUMMARY: (\d+) \w+ were not printed", re.MULTILINE)

WHERE = re.compile(
    r"(?:^|(?:Read|Write) (?:access|Thread .*?) )at "
    r"(?:0x[0-9a-f]+ in (?:\S+:\d+:)?(?P<old>.+)|(?P<new>.+?)\+0x[0-9a-f]+)"
)
"""Where a line names a kernel: `name(arguments)+0x70`, or `0x70 in file:41:name(arguments)` in versions before 2023."""

THEIRS = re.compile(
    r"cudnn|cublas|cutlass|cask|xmma|nvjet|splitK|gemm|gemv|RNN_|elemWiseRNN|(?:LSTM|GRU|RNN)_elementWise|persist|"
    r"(?:^|[^a-z])(?:sm\d{2,3}|volta|turing|ampere|hopper|blackwell)_",
    re.IGNORECASE,
)
"""Kernels of cuDNN and of cuBLAS, which it calls, by their names in profiles that others have published."""


def findings_in(log):
    """Each finding's text, and the case that it came in.

    It begins with a line of the tool's that is not indented, and has the indented ones after it.
    """
    case, found = "before the first", []
    for line in log.splitlines():
        text = line.removeprefix(MARK).strip() if line.startswith(MARK) else ""
        if line.startswith("case: "):
            case = line.removeprefix("case: ")
        elif text and found and line.startswith(f"{MARK}  "):
            found[-1][1].append(text)
        elif text:
            found.append((case, [text]))
    return [
        (case, " | ".join(lines))
        for case, lines in found
        if not lines[0].startswith(ABOUT_ITSELF) and " SUMMARY: " not in lines[0]
    ]


def summary_of(log):
    """How many errors the tool itself counted; None if it never came to that."""
    found = SUMMARY.search(log)
    return int(found[1]) if found else None


def kernels_of(text):
    """The kernels that a finding is in; none for what the host did."""
    found = (WHERE.search(line) for line in text.split(" | "))
    return [(match["old"] or match["new"]).removeprefix("void ") for match in found if match]


def theirs(tool, text):
    """Name the kernel, without its arguments, of what is left out; "" for a finding."""
    kernels = kernels_of(text) if tool in SCRATCH_TOOLS else []
    return re.split(r"[<( ]", kernels[0])[0] if kernels and all(map(THEIRS.search, kernels)) else ""


def suppressed(tool, text, suppressions):
    return any(known["tool"] == tool and re.search(known["pattern"], text) for known in suppressions)


def program():
    """Where compute-sanitizer is.

    Raises:
        FileNotFoundError: on PATH it is not, nor where CUDA's toolkit has it.
    """
    found = shutil.which("compute-sanitizer", path=os.pathsep.join([os.environ.get("PATH", ""), *FOLDERS]))
    if found is None:
        raise FileNotFoundError(f"compute-sanitizer: expecting it on PATH or in {', '.join(FOLDERS)}")
    return found


def watch(tool, command, suppressions, timeout_s):
    """Run the cases under one tool."""
    started = time.perf_counter()
    options = ["--show-backtrace=no", f"--print-limit={PRINTED_MAX}", *TOOLS[tool]]
    command = [program(), "--tool", tool, *options, *command]
    _, log, _ = processes.run(command, timeout_s, stderr=subprocess.STDOUT)  # with the cases, which it would leave
    found = findings_in(log)
    kernels = collections.Counter(theirs(tool, text) for _, text in found)
    ours = [(case, text) for case, text in found if not theirs(tool, text)]
    left = [f"{case}: {text}" for case, text in ours if not suppressed(tool, text, suppressions)]
    counted, explained, unread = summary_of(log), len(ours) - len(left), NOT_PRINTED.search(log)
    if REFUSED in log:
        return {"tool": tool, "skipped": REFUSED, "suppressed": 0, "findings": []}
    if unread:
        left.append(f"{tool} has more findings than it printed: {unread[1]}")
    if counted is None or "cases: all" not in log:
        left.append(f"{tool} did not get to the end: {log[-500:]}")
    elif counted and not found:
        left.append(f"{tool} counted {counted} errors, and none could be read in what it wrote")
    return {
        "tool": tool,
        "cases": log.count("case: "),
        "counted": counted,
        "suppressed": explained,
        "in cuDNN's kernels": {kernel: count for kernel, count in kernels.most_common() if kernel},
        "findings": left,
        "seconds": round(time.perf_counter() - started, 1),
    }


def write(file, result):
    """Add what one tool found to a results file."""
    skipped = result.get("skipped", "")
    file.add(
        end=f"sanitize.py::{result['tool']}",
        outcome="skipped" if skipped else "failed" if result["findings"] else "passed",
        why=skipped or "\n".join(result["findings"])[:2000],
        measured=[],
    )
    file.add(question=f"compute-sanitizer {result['tool']}", answer=result)


def write_row(file, results):
    """Add the case of all tools: not unless each of them ran."""
    if [result["tool"] for result in results if "skipped" not in result] != list(TOOLS):
        return
    findings = sum(len(result["findings"]) for result in results)
    explained = sum(result["suppressed"] for result in results)
    numbers = {"tools": len(results), "cases": len(CASES), "findings": findings, "suppressed": explained}
    outcome = "failed" if findings else "passed"
    file.add(end="sanitize.py::every tool", outcome=outcome, why="", measured=[["sanitizer", numbers]])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="results file")
    parser.add_argument("--tool", action="append", choices=list(TOOLS), help="these alone")
    parser.add_argument("--seconds", type=float, default=140, help="for each tool")
    asked = parser.parse_args()
    processes.stoppable()
    file = ResultsFile(asked.out)
    with machine() as cuda:
        file.start("make gpu-sanitize", environment(cuda))
    suppressions = tomllib.loads(SUPPRESSIONS.read_text()).get("suppression", [])
    command, results = [sys.executable, "-m", "tests.gpu.cases"], []
    for tool in asked.tool or TOOLS:
        file.add(begin=f"sanitize.py::{tool}")
        results.append(watch(tool, command, suppressions, asked.seconds))
        write(file, results[-1])
        print(json.dumps(results[-1])[:2000], flush=True)  # noqa: T201  a program that reports
    write_row(file, results)
    sys.exit(any(result["findings"] for result in results))


if __name__ == "__main__":
    main()
