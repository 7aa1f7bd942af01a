"""Small cases of every path under compute-sanitizer's memcheck: `python -m tests.gpu.sanitize --out FILE.jsonl`.

It writes a results file, as the suite does. All that memcheck reports is a finding, as is a run that did not get to the
end of the cases. Each case runs its arrays in allocations of their own, so that a byte next to one belongs to nobody.
`python -m tests.gpu.sanitize --cases` runs the cases alone, and names each.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from pycudnnrnn import ops
from pycudnnrnn.testing.goldens import KINDS
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu import processes
from tests.gpu.machine import environment, machine
from tests.gpu.numbers import run
from tests.gpu.prepared import captured
from tests.gpu.results_file import ResultsFile

OPTIONS = ("--tool", "memcheck", "--show-backtrace=no", "--print-limit=20000", "--report-api-errors=no")

FOLDERS = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/cuda/bin")
"""Where CUDA's toolkit puts it, in addition to PATH."""

REFUSED = "Device not supported"
MARK = "========="
ABOUT_ITSELF = ("COMPUTE-SANITIZER", "Target application", "LEAK SUM")
SUMMARY = re.compile(r"^=+ [A-Z]+ SUMMARY: (\d+)", re.MULTILINE)
NOT_PRINTED = re.compile(r"^=+ [A-Z]+ SUMMARY: (\d+) \w+ were not printed", re.MULTILINE)

U, RAGGED = 12, [4, 1, 3]

CASES = {
    f"{kind} {dtype} {direction} {'ragged' if lengths else 'equal'}": (
        KINDS[kind], {"dtype": dtype, "direction": direction}, lengths, {},
    )
    for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")
    for dtype in ("float32", "float16")
    for direction in ("unidirectional", "bidirectional")
    for lengths in (None, RAGGED)
}  # fmt: skip
CASES |= {
    "projection": (ops.CudnnLSTM, {"num_proj": 5}, RAGGED, {}),
    "clip": (ops.CudnnLSTM, {"cell_clip": 0.3, "dtype": "float64"}, None, {}),
    "skip input": (ops.CudnnGRU, {"input_mode": "skip_input", "input_size": U}, RAGGED, {}),
    "no bias": (ops.CudnnRNNTanh, {"bias_mode": "none"}, None, {}),
    "dropout": (ops.CudnnLSTM, {"dropout": 0.5, "seed": 1}, None, {}),
    "parts": (ops.CudnnLSTM, {"direction": "bidirectional"}, [4, 0, 3], {}),
    "recomputing": (ops.CudnnGRU, {}, None, {"checkpoint_every": 2}),
    "graph": (ops.CudnnLSTM, {}, RAGGED, None),
}


def run_cases():
    """Run each case in this process, and print its name, by which the log shows where a finding belongs."""
    with machine() as cuda:
        if not cuda.on_shim:
            cuda.device.xp.cuda.set_allocator(None)
        for name, (kind, options, lengths, keywords) in CASES.items():
            print(f"case: {name}", flush=True)  # noqa: T201
            op = kind(**{"num_layers": 2, "num_units": U, "input_size": 7} | options)
            problem = make_problem(op, 4, 3, lengths, seed=3)
            assert all(np.isfinite(array.astype("f4")).all() for array in results(cuda, problem, keywords))
            if cuda.on_shim and not all(memory.intact() for memory in cuda.device.allocations):
                sys.exit(f"{name}: bytes outside an array were written")
        print("cases: all", flush=True)  # noqa: T201


def results(cuda, problem, keywords):
    """Results of a forward and backward, eager, or captured and replayed where there are no keywords."""
    if keywords is not None:
        return run(cuda, problem, **keywords).values()
    graph = captured(problem)
    for _ in range(2):
        graph.replay()
    return cuda.get(graph.y), cuda.get(graph.d_params)


def findings_in(log):
    """Each finding with its case. It begins with a line of the tool's that is not indented; indented ones follow."""
    case, findings = "before the first", []
    for line in log.splitlines():
        text = line.removeprefix(MARK).strip() if line.startswith(MARK) else ""
        if line.startswith("case: "):
            case = line.removeprefix("case: ")
        elif text and findings and line.startswith(f"{MARK}  "):
            findings[-1] += f" | {text}"
        elif text and not text.startswith(ABOUT_ITSELF) and " SUMMARY: " not in text:
            findings.append(f"{case}: {text}")
    return findings


def summary_of(log):
    """How many errors the tool itself counted; None if it never came to that."""
    summary = SUMMARY.search(log)
    return int(summary[1]) if summary else None


def judge(log):
    """Return why a run is skipped, if it is; else its findings."""
    if REFUSED in log:
        return REFUSED, []
    findings, counted, unread = findings_in(log), summary_of(log), NOT_PRINTED.search(log)
    if unread:
        findings.append(f"memcheck has more findings than it printed: {unread[1]}")
    if counted is None or "cases: all" not in log:
        findings.append(f"memcheck did not get to the end: {log[-500:]}")
    elif counted and not findings:
        findings.append(f"memcheck counted {counted} errors, and none could be read in its log")
    return "", findings


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="results file")
    parser.add_argument("--seconds", type=float, default=140)
    parser.add_argument("--cases", action="store_true", help="run the cases in this process, without the sanitizer")
    options = parser.parse_args()
    if options.cases:
        run_cases()
        return
    program = shutil.which("compute-sanitizer", path=os.pathsep.join([os.environ.get("PATH", ""), *FOLDERS]))
    if options.out is None or program is None:
        parser.error(f"expecting --out, and compute-sanitizer on PATH or in {', '.join(FOLDERS)}")
    processes.stoppable()
    file = ResultsFile(options.out)
    with machine() as cuda:
        file.start("python -m tests.gpu.sanitize", environment(cuda))
    file.add(begin="sanitize.py::memcheck")
    command = [program, *OPTIONS, sys.executable, "-m", "tests.gpu.sanitize", "--cases"]
    _, log, _ = processes.run(command, options.seconds, stderr=subprocess.STDOUT)  # with the names of the cases
    skipped, findings = judge(log)
    outcome = "skipped" if skipped else "failed" if findings else "passed"
    file.add(end="sanitize.py::memcheck", outcome=outcome, why=skipped or "\n".join(findings)[:2000])
    file.add(question="memcheck", answer={"cases": log.count("case: "), "findings": findings})
    print(json.dumps({"outcome": outcome, "why": skipped, "findings": findings})[:2000], flush=True)  # noqa: T201
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
