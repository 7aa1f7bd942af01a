"""Keras's `.keras` files: a zip with a model's configuration, as text, and its weights, as HDF5.

No model is built, as with HDF5. Nothing is unpacked to a disk, so no name in the zip can lead to another file.
"""

from __future__ import annotations

import io
import os
import re
import zipfile
import zlib
from collections import Counter
from typing import Any, Final

from pycudnnrnn._checks import shorten
from pycudnnrnn._forms import Array
from pycudnnrnn._source import Source
from pycudnnrnn.convert.keras.config import FileArrays, Layer, model_of, parsed
from pycudnnrnn.convert.keras.h5 import read_stream
from pycudnnrnn.convert.keras.h5_walk import MOST_EXPANSION
from pycudnnrnn.errors import ConvertError

_CONFIG: Final = "config.json"
_WEIGHTS: Final = "model.weights.h5"

_CONFIG_MAX: Final = 8 << 20
"""Most bytes of a configuration. A layer takes two thousand."""

_PIECE: Final = 1 << 20
"""Most bytes that are read at once. This limits the zip's table of contents, too."""

_WORDS: Final = re.compile(r"(?<=.)(?=[A-Z][a-z])|(?<=[a-z])(?=[A-Z])")


def read_keras(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read the weights of a model's `.keras` file. Keras is not needed.

    Optimizer state is left out.

    Args:
        path: the file to read.

    Returns:
        A dict of every floating-point array, under the names of the layers. It also has the model's configuration, so
        that `to_canonical` reads only a stack as one. A copy (`dict(arrays)`) does not have it.
        `list(read_settings(path))` lists the recurrent layers in the model's order, for `layers`.

    Raises:
        ConvertError: another kind of file, a damaged one, or one that unpacks to more than its size allows.
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
    config, weights, nbytes = _members(path)
    model = parsed(path, config)
    names = _own_names(model_of(model))
    found: dict[str, Array] = {}
    for key, array in read_stream(io.BytesIO(weights), path, nbytes).items():
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
    return parsed(path, _members(path, weights=False)[0])


class _InPieces(Source):
    """A file that cannot be read in large pieces: `zipfile` reads the whole table of contents before any check."""

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(_PIECE + 1 if size is None or size < 0 else min(size, _PIECE + 1))
        if len(data) > _PIECE:
            raise zipfile.BadZipFile(f"a table of contents of more than {_PIECE} bytes")
        return data


def _members(path: str | os.PathLike[str], *, weights: bool = True) -> tuple[bytes, bytes, int]:
    """Return configuration, weights, and the size of their file."""
    try:
        with _InPieces(path) as file, zipfile.ZipFile(file) as archive:
            config = _unpacked(archive, _CONFIG, _CONFIG_MAX)
            data = _unpacked(archive, _WEIGHTS, MOST_EXPANSION * file.size) if weights else b""
            return config, data, file.size
    except (OSError, ValueError, RuntimeError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise ConvertError("keras", str(path), f"cannot be read as a .keras file: {error}") from error


def _unpacked(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    found = [info for info in archive.infolist() if info.filename == name]
    if len(found) != 1:
        raise zipfile.BadZipFile(f"{name} is in it {len(found)} times, and not once")
    info = found[0]
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise zipfile.BadZipFile(f"{name} is compressed in a way that Keras does not use")
    if info.file_size > most:
        raise zipfile.BadZipFile(f"{name} declares {info.file_size} bytes, where at most {most} are believed")
    data = bytearray()
    with archive.open(info) as member:  # which ends at the declared size, and checks the sum there
        while piece := member.read(_PIECE):
            data += piece
    return bytes(data)


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
