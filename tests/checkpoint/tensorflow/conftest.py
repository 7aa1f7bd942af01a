"""TensorFlow in a child process: it writes once for all workers, and reads when a test asks it to."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from tests.helpers.oracles import missing

ROOT = Path(__file__).parents[3]


def run_tensorflow(module, *arguments):
    """Run a module that uses TensorFlow; return what it printed."""
    for name in ("tensorflow", "tf_keras"):
        if importlib.util.find_spec(name) is None:
            missing(name)
    command = [sys.executable, "-m", f"tests.checkpoint.tensorflow.{module}", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def written_once(tmp_path_factory, module):
    """Return the folder that a module wrote, for all workers of one run."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder, done = shared / module, shared / f"{module}.done"
    with FileLock(shared / f"{module}.lock"):
        if not done.exists():
            folder.mkdir()
            run_tensorflow(module, folder)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """The folder of the checkpoints that TensorFlow wrote, with what `tests.checkpoint.tensorflow.arrays` has."""
    return written_once(tmp_path_factory, "write_files")


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """The folder of the checkpoints of `tests.checkpoint.tensorflow.models`, with TensorFlow's outputs."""
    return written_once(tmp_path_factory, "write_models")
