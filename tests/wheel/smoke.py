"""What a user does first, with nothing but the installed wheel: this file knows nothing of the repository."""

import importlib.metadata
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import pycudnnrnn
from pycudnnrnn import CudnnGRU, Saver, convert, ops
from pycudnnrnn.errors import EngineError, MissingDependencyError

assert Path(pycudnnrnn.__file__).is_relative_to(sys.prefix), pycudnnrnn.__file__
assert importlib.metadata.version("pycudnnrnn") == pycudnnrnn.__version__
installed = {distribution.name.lower() for distribution in importlib.metadata.distributions()}
needed = {"numpy", "safetensors", "click", "filelock", "rich", "markdown-it-py", "mdurl", "pygments"}
assert installed - {"pip", "setuptools"} == needed | {"pycudnnrnn"}, installed

op = ops.CudnnLSTM(2, 8, 5, direction="bidirectional")
params = op.init_params(seed=1)
x = np.random.default_rng(0).normal(size=(6, 3, 5)).astype("float32")
fwd = op.forward(x, None, None, params, sequence_lengths=[6, 2, 4])
grads = fwd.backward(np.ones_like(fwd.output))
assert fwd.output.shape == (6, 3, 16)
assert grads.params.shape == params.shape
assert np.isfinite(grads.params).all()

layer = CudnnGRU(1, 4, seed=0)
layer(x)
with tempfile.TemporaryDirectory() as folder:
    saver = Saver({"layer": layer})
    saver.restore(saver.save(Path(folder, "model.safetensors")))

state = convert.pytorch.from_canonical(convert.Canonical(op.spec, *op.params_to_canonical(params)))
assert state["weight_ih_l0"].shape == (32, 5)

text = ""
try:
    op.init_params(device="cuda")
except (MissingDependencyError, EngineError) as error:
    text = str(error)
assert "pip install '.[cuda13]'" in text, "there is neither CuPy nor cuDNN here"

command = Path(sys.executable).with_name("pycudnnrnn")
for arguments in ([], ["info"], ["layout", "lstm", "1", "4", "3"]):
    done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout
