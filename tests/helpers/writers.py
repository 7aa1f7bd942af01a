"""Every function that writes a file, called in one way, and what there has to be when it was called."""

import numpy as np

from benchmarks import results_files
from pycudnnrnn import Saver, checkpoint, convert, ops, plot
from pycudnnrnn.cli import _files

OP = ops.CudnnGRU(1, 16, 5)


def _convert(path, version):
    c = convert.Canonical(OP.spec, *OP.params_to_canonical(OP.init_params(version)))
    arrays = convert.pytorch.from_canonical(c)
    _files.write(path, _files.FILE_FORMATS[".pt"].image(arrays, "pytorch", c, {}), arrays)


WRITERS = {
    "m.safetensors": lambda path, version: Saver({"a": np.arange(2000.0) + version}).save(path),
    "m": lambda path, version: checkpoint.save(path, OP, OP.init_params(version)),
    "m.weights.h5": lambda path, version: convert.keras.write_h5(
        path, {"gru/gru_cell/kernel": np.full(9, version, "f4")}
    ),
    "m.pt": _convert,
    "m.svg": lambda path, version: plot.draw_layout(OP.layout(), path, f"version {version}"),
    "m.jsonl": lambda path, version: results_files.write(path, {"version": version}, []),
}
"""By the name that the file may have: a function of a path and a version."""


def names(folder):
    """Return what is in a folder, except the list of checkpoints and locks."""
    return sorted(p.name for p in folder.iterdir() if p.name != "checkpoint" and p.suffix != ".lock")
