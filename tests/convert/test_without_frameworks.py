"""Converting needs no framework: none is imported, and what a file format needs is named."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pycudnnrnn import RNNSpec, convert
from tests.helpers.oracles import need, random_canonical, run_ours

ROOT = Path(__file__).parents[2]


def test_the_example_runs_a_keras_file(tmp_path):
    need("h5py")
    c = random_canonical(RNNSpec("gru", 1, 4, 3), 1)
    convert.keras.write_h5(tmp_path / "m.weights.h5", convert.keras.from_canonical(c))
    command = [sys.executable, str(ROOT / "examples/keras_to_op.py"), str(tmp_path / "m.weights.h5")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    x = np.linspace(-1, 1, 30).reshape(5, 2, 3).astype("f4")
    assert "output (5, 2, 4)" in done.stdout
    assert float(done.stdout.split()[-1]) == pytest.approx(run_ours(c, x)[0].mean(), abs=2e-6)


def test_converting_imports_no_framework():
    code = """
import sys
import numpy as np
from pycudnnrnn import convert
arrays = {"weight_ih_l0": np.ones((4, 3)), "weight_hh_l0": np.ones((4, 4))}
c = convert.pytorch.to_canonical(arrays, nonlinearity="tanh")
for name in ("keras", "onnx", "gluon", "chainer", "tensorflow", "flax"):
    getattr(convert, name).from_canonical(c)
heavy = {"torch", "jax", "keras", "flax", "equinox", "onnx", "onnxruntime", "h5py", "tensorflow", "click", "rich"}
print(sorted(heavy & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_missing_extra_is_named(monkeypatch):
    c = random_canonical(RNNSpec("lstm", 1, 4, 3), 1)
    calls = {"h5py": lambda: convert.keras.read("x.h5"), "onnx": lambda: convert.onnx.to_model(c)}
    for package, call in calls.items():
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ImportError, match=r"pip install '\.\[convert\]'"):
            call()
