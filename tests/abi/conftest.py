"""What the tests of the binding share: the real library, its headers, child processes and compiled fakes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pycudnnrnn import libcudnn
from pycudnnrnn.errors import LibraryError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def lib():
    """The real libcudnn; a machine that must have one fails without it."""
    try:
        return libcudnn.load()
    except LibraryError as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI installs libcudnn (make test), and it does not load: {error}")
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

    def run(code, *arguments, cwd=tmp_path, env=None, timeout=120):
        command = [sys.executable, "-X", "dev", "-W", "error", "-P", "-c", textwrap.dedent(code)]
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "PYCUDNNRNN_LIBRARY") if name in os.environ}
        return subprocess.run(
            [*command, *map(str, arguments)],
            cwd=cwd,
            env=inherited | {"PYTHONPATH": str(ROOT)} | (env or {}),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def compile_library():
    """Compile C into a shared library."""

    def build(path, source, *options):
        path.parent.mkdir(parents=True, exist_ok=True)
        command = ["gcc", "-shared", "-fPIC", "-o", str(path), "-x", "c", "-", *options]
        subprocess.run(command, input=textwrap.dedent(source), text=True, check=True)
        return path

    return build
