"""A checkpoint that goes from one machine to another, with what the layer in it computed where it was written."""

from pathlib import Path

import numpy as np

from pycudnnrnn import CudnnLSTM, Saver

FIXTURE = Path(__file__).parent / "fixtures/from_cpu.safetensors"


def layer_and_data(device):
    """A layer, and arrays to restore beside it: an input, and what the layer made of it where it was saved."""
    layer = CudnnLSTM(2, 6, direction="bidirectional", device=device)
    layer.build((None, None, 5))
    return layer, {"x": np.zeros((7, 4, 5), "f4"), "outputs": np.zeros((7, 4, 12), "f4")}


def write(path, device, put, get):
    layer, data = layer_and_data(device)
    layer.params += put(0.1 * np.random.default_rng(1).normal(size=layer.params.shape).astype("f4"))
    data["x"][:] = np.random.default_rng(2).normal(size=data["x"].shape)
    data["outputs"][:] = get(layer(put(data["x"]), training=False)[0])
    return Saver({"layer": layer, **data}).save(path)


def largest_difference(path, device, put, get):
    """Restore a file and run it: how far its outputs are from those of where it was written."""
    layer, data = layer_and_data(device)
    Saver({"layer": layer, **data}).restore(path)
    assert data["outputs"].any()
    return float(np.abs(get(layer(put(data["x"]), training=False)[0]) - data["outputs"]).max())
