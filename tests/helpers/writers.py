"""Every function that writes a file, called in one way, and what there has to be when it was called."""

import numpy as np

from benchmarks import results_files
from pycudnnrnn import RNNSpec, Saver, checkpoint, convert, plot
from pycudnnrnn.cli import _files
from tests.helpers.layers import built
from tests.helpers.oracles import random_canonical

LAYER = built()


def _save(path, version):
    Saver({"a": np.arange(2000.0) + version}).save(path)


def _save_layer(path, version):
    LAYER.params[...] = version
    checkpoint.save(path, LAYER)


def _convert(suffix, framework):
    def write(path, version):
        c = random_canonical(RNNSpec("gru", 1, 16, 5), version)
        arrays = getattr(convert, framework).from_canonical(c)
        _files.write(path, _files.FILE_FORMATS[suffix].image(arrays, framework, c, {}), arrays)

    return write


def _write_h5(path, version):
    convert.keras.write_h5(path, {"gru/gru_cell/kernel": np.full((40, 30), float(version))})


class _Figure:
    """A picture that is not drawn: matplotlib takes long, and reads files of its own."""

    def __init__(self, version):
        self.version = version

    def savefig(self, to, **_):
        to.write(b"picture %d" % self.version * 99)


def _draw(path, version):
    plot._save(_Figure(version), path)


def _results(path, version):
    results_files.write(path, {"version": version}, [])


WRITERS = {
    "Saver.save": (_save, "m.safetensors"),
    "checkpoint.save": (_save_layer, "m"),
    "write_h5": (_write_h5, "m.weights.h5"),
    "convert to .pt": (_convert(".pt", "pytorch"), "m.pt"),
    "convert to .safetensors": (_convert(".safetensors", "flax"), "m.safetensors"),
    "convert to .h5": (_convert(".h5", "keras"), "m.weights.h5"),
    "convert to .onnx": (_convert(".onnx", "onnx"), "m.onnx"),
    "plot": (_draw, "m.svg"),
    "benchmark results": (_results, "m.jsonl"),
}
"""By name: a function of a path and a version, and the name that the file may have."""


def names(folder):
    """Return what is in a folder, except the list of checkpoints and locks."""
    return sorted(p.name for p in folder.iterdir() if p.name != "checkpoint" and p.suffix != ".lock")
