"""What the tests of the binding share: the real library, its headers, child processes and compiled fakes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pycudnnrnn import libcudnn
from pycudnnrnn._discovery import NotFoundError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def lib():
    """The real libcudnn; without one CI fails, and another machine skips. One that does not load is a failure."""
    try:
        return libcudnn.load()
    except NotFoundError as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI installs libcudnn (make test), and there is none: {error}")
        pytest.skip(f"needs libcudnn (make test installs it): {error}")


@pytest.fixture(scope="session")
def include(lib):
    """The headers that came with the library."""
    folder = Path(lib.path).parents[1] / "include"
    if not (folder / "cudnn_version.h").is_file():
        pytest.skip(f"{lib.path} came without headers")
    return folder


@pytest.fixture
def child(lib, tmp_path):
    """Run Python code in a process of its own, strictly; the result has returncode, stdout and stderr."""

    def run(code, *, cwd=tmp_path, env=None):
        command = [sys.executable, "-X", "dev", "-W", "error", "-P", "-c", textwrap.dedent(code)]
        names = ("PATH", "HOME", "PYCUDNNRNN_LIBRARY", "COVERAGE_PROCESS_CONFIG")
        inherited = {name: os.environ[name] for name in names if name in os.environ}
        env = inherited | {"PYTHONPATH": str(ROOT)} | (env or {})
        return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="session")
def compile_library():
    """Compile C into a shared library."""

    def build(path, source, *options):
        path.parent.mkdir(parents=True, exist_ok=True)
        command = ["gcc", "-shared", "-fPIC", "-o", str(path), "-x", "c", "-", "-x", "none", *options]
        subprocess.run(command, input=source, text=True, check=True)
        return path

    return build


@pytest.fixture(scope="session")
def build_shim(lib, compile_library):
    """Put C functions in front of the real library's: what the shim does not define falls through to it."""

    def build(folder, source, *options):
        real = Path(lib.path)
        folder.mkdir(exist_ok=True)
        for part in map(Path, lib.parts):
            (folder / part.name).symlink_to(part)
        linked = ["-Wl,--no-as-needed", str(real), f"-Wl,-rpath,{real.parent}", "-Wl,-soname,libshim.so"]
        return compile_library(folder / real.name, source, *options, *linked)

    return build
