"""Code for a child process: it forks COUNT times, and each fork goes on behind it and has to end with EXPECTED."""

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
