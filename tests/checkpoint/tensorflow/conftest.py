"""TensorFlow in a child process: it reads ours and writes its own, once for all workers of a run."""

import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from pycudnnrnn import Saver
from pycudnnrnn.checkpoint.bundle import write as write_bundle
from tests.checkpoint.tensorflow.arrays import arrays
from tests.checkpoint.tensorflow.models import INPUT_SIZE, NUM_UNITS, WRITTEN, B, T
from tests.helpers.layers import OF_MODE
from tests.helpers.oracles import missing

ROOT = Path(__file__).parents[3]


def once(tmp_path_factory, kind, write_ours):
    """Return the folder of a kind: `write_ours` writes what TensorFlow will read, then it has its one process."""
    for name in ("tensorflow", "tf_keras"):
        if importlib.util.find_spec(name) is None:
            missing(name)
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder, done = shared / kind, shared / f"{kind}.done"
    with FileLock(shared / f"{kind}.lock"):
        if not done.exists():
            (folder / "ours").mkdir(parents=True)
            write_ours(folder)
            command = [sys.executable, "-m", "tests.checkpoint.tensorflow.child", kind, str(folder)]
            child = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
            assert child.returncode == 0, child.stderr[-4000:]
            done.touch()
    return folder


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """The folder of the checkpoints that TensorFlow wrote, with what `tests.checkpoint.tensorflow.arrays` has."""
    return once(tmp_path_factory, "files", write_our_files)


def write_our_files(folder):
    """All arrays in one checkpoint: written once, and over one and over two others."""
    contents = arrays()
    tensors = {f"{name}/{key}": a for name in ("dtypes", "many", "large") for key, a in contents[name].items()}
    for over in range(3):
        for _ in range(over):
            write_bundle(folder / f"ours/over-{over}", {"before": np.zeros(3)})
        write_bundle(folder / f"ours/over-{over}", tensors if over == 1 else contents["shards"])


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """The folder of the checkpoints of `tests.checkpoint.tensorflow.models`, with TensorFlow's outputs."""
    return once(tmp_path_factory, "models", write_our_models)


def layer_for(model):
    layer = OF_MODE[model.kind](
        model.num_layers, NUM_UNITS, direction=("unidirectional", "bidirectional")[model.bidirectional],
        **({"num_proj": model.num_proj} if model.num_proj else {}),
    )  # fmt: skip
    layer.build((None, None, INPUT_SIZE))
    return layer


def layer_written(model):
    """Return a layer with random weights, and an input."""
    layer, rng = layer_for(model), np.random.default_rng(WRITTEN.index(model))
    layer.params[...] = rng.normal(scale=0.3, size=layer.params.shape)
    return layer, rng.normal(size=(T, B, INPUT_SIZE)).astype("f4")


def write_our_models(folder):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "TensorFlow's cells have one bias per gate")
        for model in WRITTEN:
            layer, x = layer_written(model)
            np.save(folder / f"ours/{model.name}-x.npy", x)
            saver = Saver({model.scope: layer, "global_step": np.array(model.num_layers)})
            saver.save(folder / "ours" / model.name, format="tensorflow")
