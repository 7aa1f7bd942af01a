"""Keras's `.keras` files: a zip with a model's configuration, as text, and its weights, as HDF5.

No model is built, as with HDF5. Nothing is unpacked to a disk, so no name in the zip can lead to another file.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections import Counter
from typing import Any, Final

from pycudnnrnn._checks import shorten
from pycudnnrnn._forms import Array
from pycudnnrnn._source import Source
from pycudnnrnn.convert.keras.config import FileArrays, Layer, model_of, parsed
from pycudnnrnn.convert.keras.h5 import MOST_EXPANSION, read_weights, reading
from pycudnnrnn.errors import ConvertError

_CONFIG: Final = "config.json"
_WEIGHTS: Final = "model.weights.h5"

_WORDS: Final = re.compile(r"(?<=.)(?=[A-Z][a-z])|(?<=[a-z])(?=[A-Z])")


def read_keras(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read the weights of a model's `.keras` file. Keras is not needed.

    Optimizer state is left out.

    Args:
        path: the file to read.

    Returns:
        A dict of every floating-point array, under the names of the layers. It also has the model's configuration, with
        which `to_canonical` finds the layers and their arguments. A copy (`dict(arrays)`) does not have it.
        `list(read_settings(path))` lists the recurrent layers in the model's order, for `layers`.

    Raises:
        ConvertError: another kind of file, a damaged one, or one that unpacks to more than a hundred times its size.
        MissingDependencyError: h5py is not installed.

    Example:
        >>> import json, tempfile, zipfile
        >>> from pycudnnrnn import convert, ops
        >>> op = ops.CudnnLSTM(num_layers=1, num_units=4, input_size=3)
        >>> c = convert.Canonical(op.spec, *op.params_to_canonical(op.init_params(seed=0)))
        >>> folder = tempfile.mkdtemp()
        >>> weights, path = folder + "/model.weights.h5", folder + "/model.keras"
        >>> convert.keras.write_h5(weights, convert.keras.from_canonical(c))
        >>> lstm = {"name": "lstm", "recurrent_initializer": "zeros", "activation": "tanh"}
        >>> layers = [{"module": "keras.layers", "class_name": "LSTM", "config": lstm}]
        >>> config = json.dumps({"class_name": "Sequential", "config": {"layers": layers}})
        >>> with zipfile.ZipFile(path, "w") as file:  # as model.save(path) does
        ...     file.writestr("config.json", config)
        ...     file.write(weights, "model.weights.h5")
        >>> arrays = convert.keras.read_keras(path)
        >>> convert.keras.to_canonical(arrays).spec
        RNNSpec('lstm', 1, 4, 3, bias_mode='single_input')
    """
    (config, weights), nbytes = _members(path, _CONFIG, _WEIGHTS)
    model = parsed(path, config)
    names = _own_names(model_of(model))
    found: dict[str, Array] = {}
    for key, array in read_weights(path, weights, nbytes).items():
        own = _renamed(key, names)
        if own in found:
            raise ConvertError("keras", shorten(own), "is the name of two layers in this file")
        found[own] = array
    return FileArrays(found, model)


def read_config(path: str | os.PathLike[str]) -> Any:
    """Read a model's configuration, as JSON.

    Raises:
        ConvertError: another kind of file, or a damaged one.
    """
    return parsed(path, _members(path, _CONFIG)[0][0])


def _members(path: str | os.PathLike[str], *names: str) -> tuple[list[bytes], int]:
    """Return files of the zip, and the size of the zip itself."""
    with reading(path, "a .keras file"), Source(path) as file, zipfile.ZipFile(file) as archive:
        members = [archive.getinfo(name) for name in names]
        if sum(member.file_size for member in members) > MOST_EXPANSION * file.size:
            why = f"it unpacks to more than {MOST_EXPANSION} times its own size"
            raise ConvertError("keras", str(path), f"cannot be read as a .keras file: {why}")
        return [archive.read(member) for member in members], file.size


def _own_names(model: Layer, path: str = "") -> dict[str, str]:
    """Return the path of names of each layer, by its group in the weights: its class and its number.

    Source: keras.saving (3.15), `_save_container_state`.
    """
    found: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for layer in model.layers:
        word = _WORDS.sub("_", str(layer.entry.get("class_name"))).lower()
        group = f"{path}layers/{word}" + (f"_{counts[word]}" if counts[word] else "")
        counts[word] += 1
        found |= {group: layer.path} | _own_names(layer, f"{group}/")
    return found


def _renamed(key: str, names: dict[str, str]) -> str:
    parts = key.split("/")
    for cut in range(len(parts), 0, -1):
        group = "/".join(parts[:cut])
        if group in names:
            return "/".join([names[group], *parts[cut:]])
    return key
