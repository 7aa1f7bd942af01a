"""Six ways to make a process load a foreign libcudnn; none may run a line of it (CWE-427).

The foreign library is five lines of C whose constructor writes a file.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FAKE = """
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void run(void) { FILE *f = fopen(getenv("MARKER"), "w"); if (f) fclose(f); }
int cudnnRNNForward(void) { return 0; }
unsigned long cudnnGetVersion(void) { return 92800; }
"""

LOAD = """
import ctypes
from pathlib import Path
from pycudnnrnn import errors, libcudnn
from pycudnnrnn.engines.cudnn.descriptors import RNNDescriptor, TensorDescriptor
from pycudnnrnn.spec import RNNSpec
try:
    lib = libcudnn.load()
    RNNDescriptor(lib, RNNSpec("lstm", 1, 4, 4)).close()
    TensorDescriptor(lib, "float32", [1, 2, 3]).close()
except errors.EngineError as error:
    print(type(error).__name__, error)
else:
    print(lib.path)
    for line in sorted({line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}):
        if "libcudnn" in line:
            print(line)
"""


@pytest.fixture
def parts(lib):
    """The file names of this library's major version: the main one first."""
    return [Path(lib.path).name, *(Path(part).name for part in lib.parts)]


@pytest.fixture
def plant(tmp_path, compile_library, parts):
    """Write fakes under the names given, by default all, into a folder; the folder is made private."""

    def write(folder, names=None):
        for name in names or parts:
            path = compile_library(folder / name, FAKE)
            path.chmod(0o755)
        folder.chmod(0o755)
        return folder

    return write


@pytest.fixture
def attack(child, tmp_path, lib):
    """Load libcudnn in a child; return its output, and fail if any foreign code ran or foreign file was mapped."""

    def run(*, env=None, cwd=tmp_path, code=LOAD, expect=None):
        marker = tmp_path / "marker"
        result = child(code, env={"MARKER": str(marker)} | (env or {}), cwd=cwd)
        assert result.returncode == 0, result.stderr
        assert not marker.exists(), "the foreign library ran"
        path, *mapped = result.stdout.splitlines()
        if expect is None:
            folder = Path(lib.path).parent
            assert path == lib.path
            assert len(mapped) >= 4
            assert {Path(file).parent for file in mapped} == {folder}
        else:
            assert re.match(expect, result.stdout), result.stdout
        return result.stdout

    return run


def test_1_the_working_directory_and_a_package_planted_in_it(attack, plant, tmp_path):
    plant(tmp_path)
    planted = tmp_path / "nvidia_cudnn_cu13-99.0.dist-info"
    planted.mkdir()
    (planted / "METADATA").write_text("Name: nvidia-cudnn-cu13\nVersion: 99.0\n")
    (planted / "RECORD").write_text("libcudnn.so.9,,\nlibcudnn.so.8,,\n")
    attack()
    attack(code="import sys; sys.path.insert(0, '')\n" + LOAD)


def test_2_an_empty_element_of_ld_library_path(attack, plant, tmp_path):
    attack(env={"LD_LIBRARY_PATH": "/nowhere:"}, cwd=plant(tmp_path))


def test_3_the_main_library_in_ld_library_path(attack, plant, tmp_path, parts):
    attack(env={"LD_LIBRARY_PATH": str(plant(tmp_path / "planted", parts[:1]))})


def test_4_the_sub_libraries_in_ld_library_path(attack, plant, tmp_path, parts):
    attack(env={"LD_LIBRARY_PATH": str(plant(tmp_path / "planted", parts[1:]))})


def test_5_a_relative_path_in_the_environment(attack, plant, tmp_path, parts):
    plant(tmp_path / "planted")
    env = {"PYCUDNNRNN_LIBRARY": f"planted/{parts[0]}"}
    attack(env=env, expect="EngineError PYCUDNNRNN_LIBRARY must be an absolute path")


@pytest.mark.parametrize("name", ["libcudnn.so.7", "libcudnn.so.10", "libcudnn.so.99.1", "libcudnn.so"])
def test_6_a_fake_of_another_major_version(attack, plant, tmp_path, name):
    folder = plant(tmp_path / "planted", [name])
    expect = "EngineError .*name does not end" if name == "libcudnn.so" else "EngineError .*major version is"
    attack(env={"PYCUDNNRNN_LIBRARY": str(folder / name)}, expect=expect)


def test_the_trap_works_for_a_bare_name(child, plant, tmp_path, parts):
    folder, marker = plant(tmp_path / "planted", parts[:1]), tmp_path / "marker"
    env = {"LD_LIBRARY_PATH": str(folder), "MARKER": str(marker)}
    child(f"import ctypes; ctypes.CDLL({parts[0]!r})", env=env)
    assert marker.exists()


def test_the_trap_works_for_a_sub_library_that_is_opened_first(child, plant, tmp_path, lib, parts):
    """Its own needs are then looked for in LD_LIBRARY_PATH, although it was opened by an absolute path."""
    folder = plant(tmp_path / "planted", parts[1:])
    result = child(f"import ctypes; ctypes.CDLL({lib.parts[-1]!r})", env={"LD_LIBRARY_PATH": str(folder)})
    assert f"{folder}/" in result.stderr or "undefined symbol" in result.stderr
    assert result.returncode == 1
