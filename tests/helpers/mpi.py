"""Python on several ranks of this machine; without mpi4py or MPICH, importing this skips the tests that do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.oracles import need

need("mpi4py")

ROOT = Path(__file__).parents[2]
if not (Path(sys.executable).parent / "mpiexec").exists() and not os.environ.get("CI"):
    pytest.skip("needs the mpich wheel", allow_module_level=True)
MPIEXEC = [str(Path(sys.executable).parent / "mpiexec"), "-iface", "lo"]


def mpiexec(count, *command, module=()):
    """Run Python on `count` ranks; whatever comes of it."""
    return subprocess.run(
        [*MPIEXEC, "-n", str(count), sys.executable, *module, *map(str, command)],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
