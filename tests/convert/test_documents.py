"""The how-to's blocks run, and the example gives what Keras gives."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pycudnnrnn
from pycudnnrnn import RNNSpec, convert
from tests.helpers.oracles import need, random_canonical, run_ours

ROOT = Path(__file__).parents[2]


def run_blocks(name):
    """Run a how-to's blocks one after the other, and return the names they leave, and how many there were."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/how-to" / name).read_text(), re.MULTILINE | re.DOTALL)
    names = {}
    for block in blocks:
        exec(compile(block, name, "exec"), names)
    return names, len(blocks)


def test_the_how_to_runs():
    names, count = run_blocks("convert.md")
    assert count == 3
    assert names["output"].shape == (5, 2, 4)


def test_the_how_to_of_long_sequences_runs(capsys):
    names, count = run_blocks("long-sequences.md")
    assert count == 3
    assert names["grads"].params.any()
    plain, short, middle = (int(line.split()[1]) for line in capsys.readouterr().out.splitlines())
    assert plain > 5 * middle >= 5 * short


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")
def test_the_example_runs_a_keras_file(tmp_path):
    need("keras", "h5py")
    import keras

    model = keras.Sequential(
        [keras.Input((None, 3)), keras.layers.LSTM(4, return_sequences=True), keras.layers.Dense(1)]
    )
    rng = np.random.default_rng(1)
    model.set_weights([rng.normal(size=w.shape) for w in model.get_weights()])
    model.save_weights(tmp_path / "m.weights.h5")
    command = [sys.executable, str(ROOT / "examples/keras_to_op.py"), str(tmp_path / "m.weights.h5"), "lstm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    x = np.linspace(-1, 1, 30).reshape(5, 2, 3).astype("f4")
    lstm = keras.Model(model.inputs, model.layers[0].output)
    expected = keras.ops.convert_to_numpy(lstm(keras.ops.convert_to_tensor(x.swapaxes(0, 1)))).mean()
    assert "output (5, 2, 4)" in done.stdout
    assert float(done.stdout.split()[-1]) == pytest.approx(float(expected), abs=2e-6)
    code = [line for line in (ROOT / "examples/keras_to_op.py").read_text().split('"""')[2].splitlines() if line]
    assert len(code) <= 11


def test_converting_imports_no_framework():
    code = """
import sys
import pycudnnrnn
convert = pycudnnrnn.convert
heavy = {"torch", "jax", "keras", "flax", "equinox", "onnx", "onnxruntime", "h5py", "tensorflow", "click", "rich"}
import numpy as np
arrays = {"weight_ih_l0": np.ones((4, 3)), "weight_hh_l0": np.ones((4, 4))}
c = convert.pytorch.to_canonical(arrays)
for name in ("keras", "onnx", "gluon", "chainer", "tensorflow", "flax"):
    getattr(convert, name).from_canonical(c)
print(sorted(heavy & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("[]\n", "")
    assert pycudnnrnn.convert is convert


def test_double_biases_compute_the_same():
    for mode in ("single_input", "single_recurrent", "none", "double"):
        c = random_canonical(RNNSpec("gru", 2, 4, 3, bias_mode=mode, dtype="float64"), 1)
        both = c.double_biases()
        assert both.spec.bias_mode == "double"
        x = np.random.default_rng(1).normal(size=(3, 2, 3))
        h = np.ones((2, 2, 4))
        for ours, theirs in zip(
            run_ours(both, x, h, None, [3, 2])[:2], run_ours(c, x, h, None, [3, 2])[:2], strict=True
        ):
            np.testing.assert_allclose(ours, theirs, atol=1e-15)


def test_a_missing_extra_is_named():
    for package, call in (("h5py", 'convert.keras.read_h5("x.h5")'), ("onnx", "convert.onnx.to_model(c)")):
        code = f"""
import sys
sys.modules[{package!r}] = None
import numpy as np
from pycudnnrnn import convert
c = convert.pytorch.to_canonical({{"weight_ih_l0": np.ones((4, 3)), "weight_hh_l0": np.ones((4, 4))}})
try:
    {call}
except ImportError as error:
    print(error)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
        assert "pip install 'pycudnnrnn[convert]'" in done.stdout, done.stderr


def test_a_missing_oracle_fails_in_ci_and_skips_elsewhere(monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="CI has to have no_such_framework"):
        need("no_such_framework")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="needs no_such_framework"):
        need("no_such_framework")
