"""Small cases of the suite under compute-sanitizer's memcheck: `python -m tests.gpu.sanitize --out FILE.jsonl`.

It writes a results file, as the suite does. All that memcheck reports is a finding, as is a run that did not get to the
end of the cases. Each array has an allocation of its own, so that a byte next to one belongs to nobody.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.gpu import processes
from tests.gpu.machine import environment, machine
from tests.gpu.results_file import ResultsFile

OPTIONS = (
    "--tool", "memcheck", "--error-exitcode=9", "--show-backtrace=no", "--print-limit=200", "--report-api-errors=no",
)  # fmt: skip
CASES = (
    "-m", "pytest", "-c", "tests/gpu/pytest.ini", "--rootdir", ".", "-p", "no:cacheprovider", "-v",
    "tests/gpu/test_numbers.py", "tests/gpu/test_graphs.py",
    "-k", "(float32 and numbers and not algorithm and not auto) or dropout_goes_on or streaming",
)  # fmt: skip
FOLDERS = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/cuda/bin")
"""Where CUDA's toolkit puts it, in addition to PATH."""

REFUSED = "Device not supported"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="results file")
    parser.add_argument("--seconds", type=float, default=140)
    options = parser.parse_args()
    program = shutil.which("compute-sanitizer", path=os.pathsep.join([os.environ.get("PATH", ""), *FOLDERS]))
    if program is None:
        parser.error(f"expecting compute-sanitizer on PATH or in {', '.join(FOLDERS)}")
    processes.stoppable()
    file = ResultsFile(options.out)
    with machine() as cuda:
        file.start("python -m tests.gpu.sanitize", environment(cuda))
    file.add(begin="sanitize.py::memcheck")
    variables = {"PYCUDNNRNN_GPU_POOL": "none", "PYCUDNNRNN_REQUIRE_GPU": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [program, *OPTIONS, sys.executable, *CASES]
    code, log, _ = processes.run(command, options.seconds, env=os.environ | variables, stderr=subprocess.STDOUT)
    outcome = "skipped" if REFUSED in log else "failed" if code else "passed" if code == 0 else "ended"
    # Case by case, as `-v` names them: memcheck's lines stand behind the name of the case that ran.
    why = "" if outcome == "passed" else "\n".join(log.splitlines()[-400:])[-20000:]
    file.add(end="sanitize.py::memcheck", outcome=outcome, why=why)
    print(json.dumps({"outcome": outcome, "exit code": code, "log": log[-1000:]}), flush=True)  # noqa: T201
    sys.exit(outcome not in {"passed", "skipped"})


if __name__ == "__main__":
    main()
