"""The same state saved twice is the same file, byte for byte: at any time, in any process."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.oracles import need

need("torch", "onnx", "h5py", "matplotlib")

ROOT = Path(__file__).parents[2]

WRITE = """
import sys
from pathlib import Path
import numpy as np
from pycudnnrnn import CudnnLSTM, Saver, checkpoint, convert, plot
from pycudnnrnn.cli._files import FILE_FORMATS, image, write

folder = Path(sys.argv[1])
layer = CudnnLSTM(2, 4, seed=1, bias_mode="single_input", direction="bidirectional")
layer.build((None, None, 3))
layer.call(np.ones((2, 1, 3), "f4"))
saver = Saver({"layer": layer, "step": np.ones(3), "a": np.zeros(2)})
saver.save(folder / "saved", 7)
saver.save(folder / "saved.ckpt", 7, format="tensorflow")
checkpoint.save(folder / "one", layer)
c = convert.Canonical(layer.spec, *layer.op.params_to_canonical(layer.params))
for suffix, form in FILE_FORMATS.items():
    if form.image is not None:
        framework = form.framework or "flax"
        arrays = getattr(convert, framework).from_canonical(c)
        write(folder / f"c{suffix}", image(suffix, framework, arrays, c), arrays)
for suffix in plot.SUFFIXES:
    plot.draw_layout(layer.op.layout(), folder / f"picture{suffix}")
"""


def written(folder, seed):
    folder.mkdir()
    command = [sys.executable, "-W", "ignore", "-c", WRITE, folder]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": str(seed)})
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.long
def test_the_same_state_saved_at_another_time_in_another_process_is_the_same_bytes(tmp_path):
    first = written(tmp_path / "first", 1)
    assert {"saved-7", "saved.ckpt-7.index", "checkpoint", "one", "c.pt", "c.h5", "c.onnx", "picture.pdf"} <= set(first)
    time.sleep(2)  # a zip file's times are even seconds
    second = written(tmp_path / "second", 2)
    assert [name for name in first if first[name] != second[name]] == []
    assert first.keys() == second.keys()
