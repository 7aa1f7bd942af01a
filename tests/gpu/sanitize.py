"""Run the small cases under compute-sanitizer, as `python3 -m tests.gpu.sanitize`. It writes a results file.

A tool that did not get to the end of the cases is a finding; one that refuses the device is skipped. What initcheck and
racecheck report in kernels of cuDNN and cuBLAS is counted by kernel, and is no finding: those read scratch memory that
nobody wrote, and order shared memory by means that racecheck does not know. All that memcheck reports is a finding.
"""

import argparse
import collections
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.gpu import processes
from tests.gpu.machine import environment, machine
from tests.gpu.results_file import ResultsFile

TOOLS = ("memcheck", "initcheck", "racecheck")
OPTIONS = ("--show-backtrace=no", "--print-limit=20000")
"""The tool's own limit of 100 is soon reached by findings in cuDNN's kernels."""

FOLDERS = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/cuda/bin")
"""Where CUDA's toolkit puts it, beside PATH."""

REFUSED = "Device not supported"
MARK = "========="
ABOUT_ITSELF = ("COMPUTE-SANITIZER", "Target application", "LEAK SUM")
SUMMARY = re.compile(r"^=+ [A-Z]+ SUMMARY: (\d+)", re.MULTILINE)
NOT_PRINTED = re.compile(r"^=+ [A-Z]+ SUMMARY: (\d+) \w+ were not printed", re.MULTILINE)

WHERE = re.compile(r"(?:^|(?:Read|Write) access )at (?P<kernel>.+?)\+0x[0-9a-f]+")
"""Where a line names a kernel: `name(arguments)+0x70`."""

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


def theirs(tool, text):
    """Name the kernel, without its arguments, of what is left out; "" for a finding."""
    found = [] if tool == "memcheck" else filter(None, map(WHERE.search, text.split(" | ")))
    kernels = [match["kernel"].removeprefix("void ") for match in found]
    return re.split(r"[<( ]", kernels[0])[0] if kernels and all(map(THEIRS.search, kernels)) else ""


def program():
    """Where compute-sanitizer is.

    Raises:
        FileNotFoundError: on PATH it is not, nor where CUDA's toolkit has it.
    """
    found = shutil.which("compute-sanitizer", path=os.pathsep.join([os.environ.get("PATH", ""), *FOLDERS]))
    if found is None:
        raise FileNotFoundError(f"compute-sanitizer: expecting it on PATH or in {', '.join(FOLDERS)}")
    return found


def watch(tool, command, timeout_s):
    """Run the cases under one tool; return why it is skipped, if it is, its findings, and what else it said."""
    own = ["--report-api-errors=no"] if tool == "memcheck" else []
    command = [program(), "--tool", tool, *OPTIONS, *own, *command]
    _, log, _ = processes.run(command, timeout_s, stderr=subprocess.STDOUT)  # with the cases, which it would leave
    if REFUSED in log:
        return REFUSED, [], {}
    found = findings_in(log)
    kernels = collections.Counter(filter(None, (theirs(tool, text) for _, text in found)))
    left = [f"{case}: {text}" for case, text in found if not theirs(tool, text)]
    counted, unread = summary_of(log), NOT_PRINTED.search(log)
    if unread:
        left.append(f"{tool} has more findings than it printed: {unread[1]}")
    if counted is None or "cases: all" not in log:
        left.append(f"{tool} did not get to the end: {log[-500:]}")
    elif counted and not found:
        left.append(f"{tool} counted {counted} errors, and none could be read in what it wrote")
    return "", left, {"cases": log.count("case: "), "counted": counted, "in cuDNN's kernels": dict(kernels)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="results file")
    parser.add_argument("--tool", action="append", choices=TOOLS, help="these alone")
    parser.add_argument("--seconds", type=float, default=140, help="for each tool")
    asked = parser.parse_args()
    processes.stoppable()
    file, failed = ResultsFile(asked.out), False
    with machine() as cuda:
        file.start("python3 -m tests.gpu.sanitize", environment(cuda))
    for tool in asked.tool or TOOLS:
        file.add(begin=f"sanitize.py::{tool}")
        skipped, findings, said = watch(tool, [sys.executable, "-m", "tests.gpu.cases"], asked.seconds)
        outcome, failed = "skipped" if skipped else "failed" if findings else "passed", failed or bool(findings)
        file.add(end=f"sanitize.py::{tool}", outcome=outcome, why=skipped or "\n".join(findings)[:2000])
        file.add(question=f"compute-sanitizer {tool}", answer=said | {"findings": findings})
        print(json.dumps({"tool": tool, "outcome": outcome, **said, "findings": findings})[:2000], flush=True)  # noqa: T201
    sys.exit(failed)


if __name__ == "__main__":
    main()
