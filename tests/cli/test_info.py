"""`pycudnnrnn info`: what it says with and without libcudnn, and that it starts no CUDA."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from pycudnnrnn import libcudnn
from pycudnnrnn.cli import info

ROOT = Path(__file__).parents[2]


def report(after="", **environment):
    """Return what a process prints that has only libcudnn's usual places, or those that `environment` names."""
    code = "import atexit, sys; from pycudnnrnn.cli import main; sys.argv[1:] = ['info', '--json']\n"
    code += f"atexit.register(exec, {after!r}, {{}}); main()"
    environ = {name: value for name, value in os.environ.items() if name not in {"PYCUDNNRNN_LIBRARY", "CUDNN_PATH"}}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environ | environment, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_it_names_the_library_and_how_it_was_found(lib):
    information = json.loads(report())
    library = information["library"]
    assert library["found"] is True
    assert (library["path"], library["version"]) == (lib.path, libcudnn.version_text(lib.version))
    assert library["found_via"].startswith("wheel nvidia-cudnn")
    assert library["tried"] == ["PYCUDNNRNN_LIBRARY: not set", "already loaded: no libcudnn in this process"]
    assert [Path(part).name for part in library["sub_libraries"]] == [
        f"libcudnn_{part}.so.9" for part in ("graph", "ops", "adv")
    ]
    assert information["engines"]["CUDA arrays"]["engine"] == "cudnn"
    assert "devices" not in information


def test_it_maps_libcudnn_and_neither_a_driver_nor_cupy(lib):
    after = r"""
import sys
maps = open("/proc/self/maps").read()
print("####", "libcudnn_adv" in maps, [n for n in ("libcuda.so", "libcudart", "libnvrtc", "nvidiactl") if n in maps],
      "cupy" in sys.modules)
"""
    assert report(after).splitlines()[-1] == "#### True [] False"


def test_a_wrong_path_is_the_problem_that_is_reported():
    information = json.loads(report(PYCUDNNRNN_LIBRARY="/nowhere/libcudnn.so.9"))
    assert information["library"]["problem"] == "PYCUDNNRNN_LIBRARY names no file: '/nowhere/libcudnn.so.9'"


def test_tf32_is_off_unless_a_spec_asks_for_it(run, monkeypatch):
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    math = json.loads(run("info", "--json")[1])["math"]
    assert math["usual math_type"] == {
        "float16": "tensor_op", "bfloat16": "tensor_op", "float32": "fma", "float64": "fma"
    }  # fmt: skip
    assert (math["TF32"]["permitted"], math["NVIDIA_TF32_OVERRIDE"]) == (False, "0")


def test_as_text_the_first_three_lines_answer_whether_it_works(run, monkeypatch):
    code, out, err = run("info")
    assert (code, err) == (0, "")
    version, cpu, cuda, *rest = out.splitlines()
    assert version.startswith("pycudnnrnn ")
    assert cpu.startswith("arrays on the CPU: yes, with ")
    assert cuda in {"CUDA arrays: yes, if there is a GPU", "CUDA arrays: no"}
    assert all(text in "\n".join(rest) for text in ("usual math_type", "TF32", "cupy-cuda13x"))
    monkeypatch.setattr(info, "library", lambda: {"found": False, "problem": "there is none", "tried": ["here: no"]})
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    out = run("info")[1]
    assert out.splitlines()[2:4] == ["CUDA arrays: no", "  no libcudnn can be used (there is none)"]
    assert out.splitlines()[4].startswith("  CuPy is not installed: ")
    assert (out.count("there is none"), out.count("here: no")) == (1, 1)
