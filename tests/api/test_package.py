"""Promises of the package as a whole: what importing it loads, its names, its version."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pycudnnrnn
from tests.helpers.oracles import need

ROOT = Path(__file__).parents[2]


def test_importing_the_package_loads_numpy_at_most_and_opens_no_library():
    code = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(args) if event == "ctypes.dlopen" else None)
import pycudnnrnn
heavy = {"torch", "jax", "cupy", "matplotlib", "hypothesis", "rich", "click", "safetensors", "ctypes", "numba"}
print(sorted(heavy & sys.modules.keys()), opened)
from pycudnnrnn import ops, layers, saveable, cells, layout, spec, errors
print(sorted((heavy - {"ctypes"}) & sys.modules.keys()), opened[1:])  # numpy itself opens the process once
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("[] []\n[] []\n", "")


def test_every_public_name_is_there():
    for name in pycudnnrnn.__all__:
        assert getattr(pycudnnrnn, name) is not None
        assert name in dir(pycudnnrnn)
    with pytest.raises(AttributeError, match="CudnnLTSM"):
        _ = pycudnnrnn.CudnnLTSM


@pytest.mark.parametrize("module", ["pycudnnrnn", "pycudnnrnn.ops"])
def test_a_class_of_torchs_or_kerass_is_named_as_it_is_here(module):
    with pytest.raises(ImportError, match=f"cannot import name 'LSTM' from '{module}': it is CudnnLSTM here"):
        exec(f"from {module} import LSTM")
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'LTSM'"):
        importlib.import_module(module).LTSM  # noqa: B018  an attribute that is not there


def test_pictures_are_reached_by_name_and_load_matplotlib_only_then():
    """`dir` and `import *` do not need the extra; asking for `plot` without it says what to install."""
    code = """
import sys
import pycudnnrnn
from pycudnnrnn import *
print("matplotlib" in sys.modules, callable(pycudnnrnn.plot.draw_layout), "matplotlib" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("False True True\n", "")
    code = """
import sys
sys.modules["matplotlib"] = None
import pycudnnrnn
from pycudnnrnn import *
print([name for name in dir(pycudnnrnn) if getattr(pycudnnrnn, name) is None])
try:
    pycudnnrnn.plot
except ImportError as error:
    print(type(error).__name__, error.extra)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("[]\nMissingDependencyError plot\n", "")


@pytest.mark.long
def test_the_modules_for_frameworks_are_reached_by_name_and_load_theirs_only_then():
    code = """
import sys
import pycudnnrnn
from pycudnnrnn import interop
print(sorted({"torch", "jax"} & sys.modules.keys()), dir(interop))
print(pycudnnrnn.interop.torch.LSTM.__name__, sorted({"torch", "jax"} & sys.modules.keys()))
sys.modules["jax"] = None
try:
    pycudnnrnn.interop.jax
except ImportError as error:
    print(type(error).__name__, error.extra)
try:
    pycudnnrnn.interop.keras
except AttributeError as error:
    print(error)
"""
    need("torch")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout.splitlines() == [
        "[] ['jax', 'torch']",
        "LSTM ['torch']",
        "MissingDependencyError jax",
        "module 'pycudnnrnn.interop' has no attribute 'keras'",
    ]
    assert done.stderr == ""


def test_the_changelog_has_the_version():
    heading = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading.group(1) == pycudnnrnn.__version__
