"""Promises of the package as a whole: what importing it loads, its names, its version."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pycudnnrnn
from pycudnnrnn.errors import MissingDependencyError

ROOT = Path(__file__).parents[2]


def printed(code):
    """Run code in a child, and return what it prints; it writes nothing to standard error."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert not done.stderr
    return done.stdout


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
    assert printed(code) == "[] []\n[] []\n"


@pytest.mark.parametrize("module", ["pycudnnrnn", "pycudnnrnn.ops"])
def test_a_class_of_torchs_or_kerass_is_named_as_it_is_here(module):
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'LSTM': it is CudnnLSTM here"):
        importlib.import_module(module).LSTM  # noqa: B018  an attribute that is not there
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'LTSM'$"):
        importlib.import_module(module).LTSM  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'LSTM'"):
        exec(f"from {module} import LSTM")


def test_libcudnn_is_imported_by_its_public_name():
    code = "import pycudnnrnn.libcudnn as one; from pycudnnrnn import libcudnn; print(one is libcudnn, one.load)"
    assert printed(code).startswith("True <function load")


def test_what_needs_an_extra_is_reached_by_name_and_loads_it_only_then():
    code = """
import sys
import pycudnnrnn
from pycudnnrnn import *
from pycudnnrnn import interop, testing
from pycudnnrnn.testing import *
print(sorted({"torch", "jax", "matplotlib", "hypothesis"} & sys.modules.keys()), dir(interop))
print(callable(pycudnnrnn.plot.draw_layout), callable(interop.jax.rnn), "torch" in sys.modules)
print(callable(testing.strategies.specs), callable(testing.ConverterTests))
"""
    assert printed(code) == "[] ['jax', 'torch']\nTrue True False\nTrue True\n"
    with pytest.raises(AttributeError, match=r"module 'pycudnnrnn\.testing' has no attribute 'strategy'"):
        pycudnnrnn.testing.strategy  # noqa: B018
    with pytest.raises(AttributeError, match=r"module 'pycudnnrnn\.interop' has no attribute 'keras'"):
        pycudnnrnn.interop.keras  # noqa: B018


@pytest.mark.parametrize(
    ("name", "module", "text"),
    [
        ("torch", "interop.torch", "pip install torch, or,"),
        ("jax", "interop.jax", r"pip install 'jax>=0.10', .* pip install '\.\[jax\]'"),
        ("matplotlib", "plot", r"pip install '\.\[plot\]'"),
    ],
)
def test_a_missing_framework_is_named_when_its_module_is_asked_for(monkeypatch, name, module, text):
    monkeypatch.setitem(sys.modules, name, None)
    for loaded in [loaded for loaded in sys.modules if loaded.startswith(f"pycudnnrnn.{module}")]:
        monkeypatch.delitem(sys.modules, loaded)
    assert all(getattr(pycudnnrnn, public) is not None for public in pycudnnrnn.__all__)
    with pytest.raises(MissingDependencyError, match=text):
        importlib.import_module(f"pycudnnrnn.{module}")


def test_the_changelog_has_the_version():
    heading = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading.group(1) == pycudnnrnn.__version__
