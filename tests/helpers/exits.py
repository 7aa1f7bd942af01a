"""Code for a child process: it forks COUNT times, and each fork goes on behind it and has to end with EXPECTED."""

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
