"""macOS and Windows, played on Linux (`play.py`): the CPU part runs, and libcudnn is searched as on these systems."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pycudnnrnn import _discovery
from pycudnnrnn._discovery import Candidate, Context, NotFoundError, find
from tests.helpers.installed import empty_places, install_wheel, put
from tests.systems import play

ROOT = Path(__file__).parents[2]


def played(system, kernels, *cases):
    environment = os.environ | {"PYCUDNNRNN_CPU_KERNELS": kernels, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-X", "warn_default_encoding", "-m", "tests.systems.play", system, *cases]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout.splitlines()[-1])


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_everything_on_the_cpu_runs_on(system):
    cases = ["run", "train_and_save", "save_over_an_open_file", "commands", "find_libcudnn"]
    assert played(system, "numpy", *cases) == dict.fromkeys(cases, "")


@pytest.mark.compiled
@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_the_compiled_kernels_run_on(system):
    assert played(system, "numba", "run", "train_and_save") == {"run": "", "train_and_save": ""}


@pytest.fixture
def windows(monkeypatch, tmp_path):
    """No step finds anything, until a test puts something there."""
    empty_places(monkeypatch, tmp_path)
    monkeypatch.setenv("PROGRAMFILES", str(tmp_path / "programs"))
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(_discovery.ctypes, "WinDLL", lambda name: play.kernel({}), raising=False)
    return tmp_path


def test_windows_libraries_are_found_where_installers_put_them(windows, monkeypatch):
    """Each place that is filled, from the last resort to the first, wins over those filled before."""
    with pytest.raises(NotFoundError, match=r"(?s)CUDA_PATH: not set.*no cudnn64_9.dll or cudnn64_8.dll in '.*CUDNN'"):
        find(Context(allow_system=True))

    def wins(via, path):
        assert find(Context(allow_system=True))[0] == Candidate(path, via)

    installed = windows / "programs" / "NVIDIA" / "CUDNN"
    wins("system", put(installed / "v8.9" / "bin" / "cudnn64_8.dll"))
    wins("system", put(installed / "v9.8" / "bin" / "12.8" / "cudnn64_9.dll"))
    wins("system", put(installed / "v9.8" / "bin" / "13.0" / "cudnn64_9.dll"))
    monkeypatch.setenv("CUDA_PATH", str(windows / "cuda"))
    wins("CUDA_PATH", put(windows / "cuda" / "bin" / "x64" / "cudnn64_9.dll"))
    monkeypatch.setenv("CUDNN_PATH", str(windows / "cudnn"))
    wins("CUDNN_PATH", put(windows / "cudnn" / "bin" / "13.0" / "x64" / "cudnn64_9.dll"))
    wins("CUDNN_PATH", put(windows / "cudnn" / "bin" / "cudnn64_9.dll"))
    (windows / "prefix" / "conda-meta").mkdir(parents=True)
    wins("conda", put(windows / "prefix" / "Library" / "bin" / "cudnn64_9.dll"))
    wheel = install_wheel(windows / "site", "nvidia-cudnn-cu13", "nvidia/cudnn/bin/cudnn64_9.dll")
    wins("wheel nvidia-cudnn-cu13", wheel)
    loaded = windows / "torch" / "lib" / "cudnn64_9.dll"
    monkeypatch.setattr(_discovery.ctypes, "WinDLL", lambda name: play.kernel({"cudnn64_9.dll": str(loaded)}))
    wins("already loaded", loaded)


@pytest.mark.parametrize(("major", "version"), [(9, 92800), (8, 8907)])
def test_windows_sub_libraries_are_opened_first_and_their_folder_stays_known(windows, monkeypatch, major, version):
    opened, folders = [], []

    class Dll:
        def __init__(self, path):
            opened.append(Path(path).name)

        def __getitem__(self, name):
            return lambda: version if name == "cudnnGetVersion" else 0

    parts = {9: ["graph", "ops", "adv"], 8: ["ops_infer", "ops_train", "adv_infer", "adv_train"]}[major]
    names = [*(f"cudnn_{part}64_{major}.dll" for part in parts), f"cudnn64_{major}.dll"]
    files = [put(windows / "bin" / name) for name in names]
    monkeypatch.setattr(_discovery.ctypes, "CDLL", Dll)
    monkeypatch.setattr(os, "add_dll_directory", folders.append, raising=False)
    dll = _discovery.open_library(Candidate(files[-1], "argument"))
    assert (dll.version, dll.parts, opened, folders) == (version, tuple(files[:-1]), names, [str(windows / "bin")])
    mixed = play.kernel({files[0].name: "C:/other/" + files[0].name})
    monkeypatch.setattr(_discovery.ctypes, "WinDLL", lambda name: mixed)
    with pytest.raises(_discovery.EngineError, match="is already loaded in this process, and two of them would mix"):
        _discovery.open_library(Candidate(files[-1], "argument"))


def test_arm_servers_have_a_folder_of_their_own(monkeypatch, tmp_path):
    monkeypatch.setattr(_discovery.platform, "machine", lambda: "aarch64")
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    library = put(tmp_path / "targets" / "sbsa-linux" / "lib" / "libcudnn.so.9")
    assert _discovery.variable("CUDA_PATH")(Context()) == Candidate(library, "CUDA_PATH")
