"""What the tests of the binding share: the real library, its headers, compiled fakes, and child processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RUNNER = """
import json, os, sys, traceback
from pycudnnrnn import errors, libcudnn
found = {}
for name, (environment, code) in json.load(sys.stdin).items():
    read, write = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.dup2(write, 1)
        os.dup2(write, 2)
        os.environ.update(environment)
        try:
            exec(code, {"errors": errors, "libcudnn": libcudnn})
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(0)
    os.close(write)
    with open(read) as text:
        found[name] = text.read().strip()
    os.waitpid(pid, 0)
print(json.dumps(found))
"""
"""A library that was opened cannot be closed again, so each piece of code runs in a fork of one process."""


@pytest.fixture(scope="session")
def include(lib):
    """The headers that came with the library."""
    folder = Path(lib.path).parents[1] / "include"
    if not (folder / "cudnn_version.h").is_file():
        pytest.skip(f"{lib.path} came without headers")
    return folder


@pytest.fixture(scope="session")
def child(lib, tmp_path_factory):
    """Run Python code in its own process, strictly; the result has returncode, stdout and stderr."""
    empty = tmp_path_factory.mktemp("child")

    def run(code, *, cwd=empty, env=None, **options):
        command = [sys.executable, "-X", "dev", "-W", "error", "-P", "-c", textwrap.dedent(code)]
        names = ("PATH", "HOME", "PYCUDNNRNN_LIBRARY", "COVERAGE_PROCESS_CONFIG")
        inherited = {name: os.environ[name] for name in names if name in os.environ}
        env = inherited | {"PYTHONPATH": str(ROOT)} | (env or {})
        return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, **options)

    return run


@pytest.fixture(scope="session")
def forks(child):
    """Run pieces of code, {name: (environment, code)}, each in a fork of one child; return what each printed."""

    def run(pieces):
        done = child(RUNNER, env={"PYCUDNNRNN_LIBRARY": ""}, input=json.dumps(pieces))
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="session")
def compile_library(tmp_path_factory):
    """Return a shared library made of C, compiled once a session for each source."""
    built, folder = {}, tmp_path_factory.mktemp("built")

    def build(source, *options):
        if (source, options) not in built:
            path = folder / f"{len(built)}.so"
            command = ["gcc", "-shared", "-fPIC", "-o", str(path), "-x", "c", "-", "-x", "none", *options]
            subprocess.run(command, input=source, text=True, check=True)
            built[source, options] = path
        return built[source, options]

    return build
