"""Keras's files as dicts of arrays, and back: `.keras`, `.weights.h5`, and the older `.h5` of whole models.

A `.keras` file is a zip with a model's configuration, as text, and its weights, as HDF5. Nothing is unpacked to a disk.
No model is built, since building one from a file's configuration can run code. The configuration is read as text, for
the few values that decide the computation of a recurrent layer.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import secrets
import traceback
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pycudnnrnn._checks import needs, shorten
from pycudnnrnn._files import Source, write_atomically
from pycudnnrnn._forms import Array
from pycudnnrnn.convert.keras.config import FileArrays, Layer, model_of, parsed
from pycudnnrnn.convert.named import Named
from pycudnnrnn.errors import ArgumentError, ConvertError
from pycudnnrnn.spec import DType

_MOST_EXPANSION: Final = 100
"""Most bytes of memory per byte of a file. An array that was never written takes no space in one."""

_BFLOAT16: Final = str(DType.BFLOAT16)

VARIABLES: Final = ("kernel", "recurrent_kernel", "bias")
"""The variables of a cell, in the order of their numbers in a file."""

_CONFIG: Final = "config.json"
_WEIGHTS: Final = "model.weights.h5"
_WORDS: Final = re.compile(r"(?<=.)(?=[A-Z][a-z])|(?<=[a-z])(?=[A-Z])")

_PATH: Final = re.compile(
    r"((?:lstm|gru|simple_rnn|bidirectional)(?:_[0-9]+)?)/"
    r"(?:(forward|backward)_[^/]+/)?[^/]+_cell/(kernel|recurrent_kernel|bias)"
)


def read(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read the weights of a file of Keras: `.keras`, `.weights.h5`, or `.h5` of any age. Keras is not needed.

    The content of the file decides its kind, not its name. Optimizer state is left out. An array that has several names
    (hard links) is read once.

    Args:
        path: the file to read.

    Returns:
        A dict of every floating-point array: of a `.keras` file under the names of the layers, of any other file under
        its path in the file. A file of a whole model also gives the model's configuration, with which `to_canonical`
        finds the layers and their arguments. A copy (`dict(arrays)`) does not have it.

    Raises:
        ConvertError: another kind of file, a damaged one, one with links to elsewhere, or one that unpacks to more than
            a hundred times its own bytes.
        MissingDependencyError: h5py is not installed.

    Example:
        >>> import tempfile
        >>> from pycudnnrnn import convert, ops
        >>> op = ops.CudnnLSTM(num_layers=1, num_units=4, input_size=3)
        >>> c = convert.Canonical(op.spec, *op.params_to_canonical(op.init_params(seed=0)))
        >>> path = tempfile.mkdtemp() + "/model.weights.h5"
        >>> convert.keras.write_h5(path, convert.keras.from_canonical(c))
        >>> sorted(convert.keras.read(path))[0]
        'layers/lstm/cell/vars/0'
    """
    h5py = _h5py()
    with _reading(path), Source(path) as source:
        if zipfile.is_zipfile(source):
            return _read_zip(path, source)
        with h5py.File(source, "r") as file:
            text, version = file.attrs.get("model_config"), file.attrs.get("keras_version", "")
            config = None if text is None else parsed(path, text)
            return FileArrays(_arrays_in(file, source.size), config, version)


def _read_zip(path: str | os.PathLike[str], source: Source) -> FileArrays:
    with zipfile.ZipFile(source) as archive:
        if sum(archive.getinfo(name).file_size for name in (_CONFIG, _WEIGHTS)) > _MOST_EXPANSION * source.size:
            why = f"it unpacks to more than {_MOST_EXPANSION} times its own size"
            raise ConvertError("keras", str(path), f"cannot be read as a .keras file: {why}")
        config, weights = archive.read(_CONFIG), io.BytesIO(archive.read(_WEIGHTS))
    model = parsed(path, config)
    names = _layer_names(model_of(model))
    with _h5py().File(weights, "r") as file:
        arrays = _arrays_in(file, source.size)
    return FileArrays({_renamed(key, names): array for key, array in arrays.items()}, model)


def write_h5(path: str | os.PathLike[str], arrays: dict[str, Array]) -> None:
    """Write arrays of `keras.from_canonical` as a `.weights.h5` file, for `model.load_weights` of Keras 3.

    The model must have these recurrent layers, and no other layer with variables. The file is written atomically.

    Args:
        path: the file to write, which ends in ".weights.h5".
        arrays: the dict that `keras.from_canonical` returned.

    Raises:
        ConvertError: a name that `keras.from_canonical` does not write without `layers` (Keras looks for the classes,
            "lstm", "lstm_1" ...), or a value that is not an array.
        ArgumentError: `path` does not end in ".weights.h5", or exists and is not a regular file.
        OSError: it cannot be written.
        MissingDependencyError: h5py is not installed.

    Example:
        >>> import tempfile
        >>> from pycudnnrnn import convert, ops
        >>> op = ops.CudnnLSTM(num_layers=1, num_units=4, input_size=3)
        >>> c = convert.Canonical(op.spec, *op.params_to_canonical(op.init_params(seed=0)))
        >>> path = tempfile.mkdtemp() + "/model.weights.h5"
        >>> convert.keras.write_h5(path, convert.keras.from_canonical(c))
    """
    check_name(path)
    write_atomically(Path(path), h5_image(arrays))


def check_name(path: str | os.PathLike[str]) -> None:
    """Check that Keras's `load_weights` would read a file of this name as weights.

    Raises:
        ArgumentError: it does not end in ".weights.h5".
    """
    name = Path(path).name
    if not name.endswith(".weights.h5"):
        expected = "a name that ends in '.weights.h5': Keras loads no weights from others"
        raise ArgumentError("path", expected, shorten(name))


def h5_image(arrays: dict[str, Array]) -> bytes:
    """Return the bytes of the file that `write_h5` writes."""
    places: dict[str, Array] = {}
    named = Named("keras", arrays)
    for name in named:
        match = _PATH.fullmatch(name)
        if not match:
            why = "has no place in a .weights.h5 file, where Keras looks for lstm, lstm_1 ..."
            raise ConvertError("keras", shorten(name), why)
        way = f"{match[2]}_layer/" if match[2] else ""
        place = f"layers/{match[1]}/{way}cell/vars/{VARIABLES.index(match[3])}"
        if place in places:
            named.refuse(name, "has the place of another array in a .weights.h5 file")
        places[place] = named.array(name)
    # In memory: HDF5 writes a file in many pieces, and h5py does not report a full disk at the last one. Two files in
    # memory with the same name at the same time would be one file.
    with _h5py().File(secrets.token_hex(16), "w", driver="core", backing_store=False) as file:
        file.create_group("vars")
        for place, array in places.items():
            dataset = file.create_dataset(place, data=array)
            if array.dtype.name == _BFLOAT16:  # HDF5 stores its bytes, and Keras stores the dtype in an attribute
                dataset.attrs["dtype"] = _BFLOAT16
        for layer in file["layers"].values():  # Keras looks for the layer's own variables, too, of which there are none
            layer.create_group("vars")
        file.flush()
        image: bytes = file.id.get_file_image()
    return image


def _h5py() -> Any:
    with needs("h5py", "convert", "reading or writing Keras files"):
        import h5py  # noqa: PLC0415  optional
    return h5py


@contextlib.contextmanager
def _reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise a `ConvertError` with the file's name for the errors of h5py and zipfile."""
    try:
        yield
    except Exception as error:  # those of h5py, zipfile and the unpackers have no common base class
        # The frames hold h5py's objects, with which HDF5 calls the file when the process ends: a segmentation fault if
        # the error outlives the interpreter (`gc.freeze`, a daemon thread; h5py 3.14).
        traceback.clear_frames(error.__traceback__)
        if isinstance(error, ConvertError):
            raise
        why = getattr(error, "strerror", None) or error
        raise ConvertError("keras", str(path), f"cannot be read as a file of Keras, HDF5 or .keras: {why}") from error


def _arrays_in(file: Any, nbytes: int) -> dict[str, Array]:
    """Return the floating-point arrays of an open file. `nbytes` is the size of the file that contains it.

    Raises:
        ConvertError: an array in another file, or more bytes than the file accounts for.
    """
    h5py = _h5py()
    link = file.id.links.visit(lambda name, link: None if link.type == h5py.h5l.TYPE_HARD else name, info=True)
    if link is not None:
        link = shorten(link.decode(errors="replace"))
        raise ConvertError("keras", link, "is a link to elsewhere, which is not followed")
    items: list[tuple[str, Any]] = []
    file.visititems(lambda name, item: items.append((name, item)))
    arrays: dict[str, Array] = {}
    room = _MOST_EXPANSION * nbytes
    for name, item in items:
        if isinstance(item, h5py.Dataset) and item.shape is not None and not name.startswith("optimizer"):
            if item.external or item.is_virtual:
                raise ConvertError("keras", shorten(name), "keeps its data in another file, which is not opened")
            dtype = item.dtype
            if dtype.kind == "f" or (dtype.kind == "V" and dtype.names is None and dtype.itemsize == 2):  # bfloat16
                room -= item.nbytes
                if room < 0:
                    why = f"declares more than {_MOST_EXPANSION} times the bytes of the file, with the arrays before it"
                    raise ConvertError("keras", shorten(name), why)
                array = item[()]
                arrays[name] = array if array.dtype.kind == "f" else array.view(DType.BFLOAT16.numpy)
    return arrays


def _layer_names(model: Layer, path: str = "") -> dict[str, str]:
    """Return the path of names of each layer, by its group in the weights: its class and its number.

    Source: keras.saving (3.15), `_save_container_state`.
    """
    groups: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for layer in model.layers:
        word = _WORDS.sub("_", str(layer.entry.get("class_name"))).lower()
        group = f"{path}layers/{word}" + (f"_{counts[word]}" if counts[word] else "")
        counts[word] += 1
        groups |= {group: layer.path} | _layer_names(layer, f"{group}/")
    return groups


def _renamed(key: str, names: dict[str, str]) -> str:
    parts = key.split("/")
    for cut in range(len(parts), 0, -1):
        group = "/".join(parts[:cut])
        if group in names:
            return "/".join([names[group], *parts[cut:]])
    return key
