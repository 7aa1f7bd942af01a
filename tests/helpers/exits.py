"""Children that end: one imports everything and forks COUNT times; each fork goes on, and has to end with EXPECTED."""

import os
import subprocess
import sys
from pathlib import Path

from tests.helpers.examples import PROFILE

ENDS = 100 if PROFILE == "nightly" else 10
"""How many ends of a process a test looks at: HYPOTHESIS_PROFILE=nightly is the soak."""

FORKS = """
import os, sys

for number in range(COUNT):
    pid = os.fork()
    if pid == 0:
        break
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) != EXPECTED:
        print("exit", os.waitstatus_to_exitcode(status), "at", number)
        os._exit(1)
else:
    print("all ended")
    sys.stdout.flush()
    os._exit(0)
"""


def check_ends(imports, work, *options, expected=0):
    """Let many interpreters end after some work, and assert that each does so quietly, with this exit code."""
    code = f"COUNT, EXPECTED = {ENDS}, {expected}\n{imports}{FORKS}{work}\n"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, *options, "-P", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("all ended\n", "", 0)
