"""Read and write files of weights. Each format has one safe reader; if that fails, no other is tried."""

from __future__ import annotations

import dataclasses
import io
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import numpy as np

from pycudnnrnn import _files, checkpoint, convert
from pycudnnrnn._arrays import ArrayKind, to_caller
from pycudnnrnn._checks import needs
from pycudnnrnn._files import Source
from pycudnnrnn.checkpoint import bundle, folder, items, safetensors_file
from pycudnnrnn.checkpoint.folder import INDEX
from pycudnnrnn.convert.keras import files as keras_files
from pycudnnrnn.convert.onnx.model import onnx_package, read_nodes
from pycudnnrnn.convert.stacks import STACKS
from pycudnnrnn.errors import ConvertError, PycudnnrnnError

_FRAMEWORK: Final = "framework"
"""The key in a safetensors file's metadata under which `write` records the framework."""

_TORCH_AT_LEAST: Final = (2, 10)
"""weights_only could be bypassed in earlier versions: CVE-2025-32434 (to 2.5.1), CVE-2026-24747 (to 2.9)."""

FORMAT_OF_A_CHECKPOINT: Final = {INDEX: folder.TENSORFLOW, ".safetensors": folder.SAFETENSORS}
"""The formats of a `Saver` by suffix: their names are checked, so that one name is one checkpoint."""

ONNX_MAX: Final = 2**31 - 1
"""Most bytes of an ONNX model: protobuf's own limit."""


@dataclasses.dataclass(frozen=True)
class FileWeights:
    """The contents of a file: arrays by name, and keywords for the converter.

    `framework` is the framework that a safetensors file records, or "". `models` are the models of a file from a Saver
    or `checkpoint.save`, otherwise None.
    """

    arrays: dict[str, Any]
    keywords: dict[str, Any] = dataclasses.field(default_factory=dict)
    framework: str = ""
    models: dict[str, items.Model | None] | None = None


class FileFormat(NamedTuple):
    """A file format by its suffix: its framework ("" for any), its reader and its writer."""

    framework: str
    read: Callable[[Path, list[str] | None], FileWeights]
    """Reads a file; of an ONNX model the nodes that are named, or all."""

    image: Callable[[dict[str, Any], str, Any, dict[str, Any]], bytes] | None = None
    """Returns the bytes of a file of arrays, their framework, their `Canonical` and the options of a .onnx file.

    None: the format is only read, or is that of TensorFlow's checkpoints.
    """

    parts: str = ""
    """The key of -s that selects a part of the file, if it is not a keyword of the converter."""


class FileOrCheckpoint(click.Path):
    """A file that exists, or a TensorFlow checkpoint: its prefix, its .index file or its folder.

    A folder without a checkpoint is wrong usage, as is a path where there is nothing.
    """

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(value)
        if path.is_dir() and not (path / checkpoint.LIST).exists():
            what = f"{str(path)!r} is a folder without TensorFlow's file 'checkpoint'"
            self.fail(f"{what}: name a file in it, of a SavedModel variables/variables.index", param, ctx)
        return path if path.is_dir() or folder.is_tensorflow(path) else super().convert(value, param, ctx)


def suffix_of(path: Path) -> str:
    """Return the suffix that stands for a file's format: the file's own, or for any other one that of its content."""
    if path.suffix in FILE_FORMATS or not path.is_file():
        return path.suffix
    with Source(path) as source:
        head = source.read(9)
        source.seek(0)
        names = zipfile.ZipFile(source).namelist() if zipfile.is_zipfile(source) else []
    contents = {
        ".keras": "config.json" in names,
        ".npz": bool(names) and all(name.endswith(".npy") for name in names),
        ".pt": any(name.endswith("/data.pkl") for name in names) or head[:2] == b"\x80\x02",
        ".h5": head[:8] == b"\x89HDF\r\n\x1a\n",
        ".safetensors": head[8:] == b"{",
    }
    return next((suffix for suffix, is_it in contents.items() if is_it), path.suffix)


def rnns_in(arrays: Any, framework: str) -> list[tuple[str, str, int]]:
    """Return the RNNs among the arrays of a framework ("": of any), or in a model of ONNX.

    Each has the options of `convert` that choose it, what its reader reads, and the number of its arrays.
    """
    rnns = []
    for name in {"": ["pytorch", "keras"], "tensorflow": ["tensorflow", "keras"]}.get(framework, [framework]):
        module = getattr(convert, name)
        read = module.from_model if name == "onnx" else module.to_canonical
        for stack in STACKS[name](arrays) if name in STACKS else ():
            with warnings.catch_warnings(action="ignore"):
                try:
                    text = repr(read(arrays, **stack.keywords).spec)
                except ConvertError as error:
                    text = f"not read: {error}"
            options = stack.option() if name == framework else f"--from {name} {stack.option()}"
            doubt = "" if stack.certain else ", a cell by its shapes alone"
            rnns.append((options, text + doubt, stack.num_arrays))
    return rnns


def write(path: Path, image: bytes | None, arrays: dict[str, Any]) -> None:
    """Write a file atomically, from its image: the old file is kept until the new one is on the disk.

    Raises:
        PycudnnrnnError: the file cannot be written.
    """
    try:
        if image is None:
            bundle.write(_prefix(path), arrays)
        else:
            _files.write_atomically(path, image)
    except OSError as error:
        raise PycudnnrnnError(_cannot_write(path, error)) from error


def check_target(path: Path, format_of: str, *, force: bool) -> None:
    """Check that `write` can write to this path, and that nothing exists there unless `force` is given.

    Raises:
        click.UsageError: it cannot, or something exists there.
    """
    try:
        if FILE_FORMATS[format_of].framework == "keras":
            keras_files.check_name(path)
        if format_of in FORMAT_OF_A_CHECKPOINT:
            folder.check_name(_prefix(path), FORMAT_OF_A_CHECKPOINT[format_of])
        files = [path] if format_of != INDEX else bundle.files(_prefix(path))
        taken = [file for file in files if _files.check_target(file)]
    except (OSError, PycudnnrnnError) as error:
        raise click.UsageError(_cannot_write(path, error)) from error
    if taken and not force:
        raise click.UsageError(f"{path} exists: --force overwrites it")


def _cannot_write(path: Path, error: Exception) -> str:
    return f"cannot write {path}: {getattr(error, 'strerror', None) or error}"


def _read_torch(path: Path, _: object) -> FileWeights:
    torch = _torch("reading a .pt file")
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < _TORCH_AT_LEAST:
        raise PycudnnrnnError(f"a .pt file can make torch {torch.__version__} run code: torch 2.10 is needed")
    try:
        with Source(path) as source, warnings.catch_warnings(action="ignore"):  # torch warns of unusual files
            contents = torch.load(source, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # unpickling can raise anything
        # Without torch's text, which explains how to load the file anyway and run its code.
        named = re.search(r"GLOBAL ([\w.]{1,200})", str(error))
        what = f"{named[1]} is in it, too" if named else f"torch refuses it ({type(error).__name__})"
        how = "torch.save(model.state_dict(), path) writes one"
        if "TorchScript" in str(error):
            what = "it is a TorchScript archive"
            how = f"torch.save(torch.jit.load({path.name!r}).state_dict(), path) writes one"
        raise PycudnnrnnError(f"{path} is not a file of weights only: {what}; {how}") from error
    return FileWeights(contents)


def _torch_image(arrays: dict[str, Any], *_: object) -> bytes:
    torch = _torch("writing a .pt file")
    image = io.BytesIO()
    torch.save({name: to_caller(array, ArrayKind("torch", "cpu")) for name, array in arrays.items()}, image)
    return image.getvalue()


def _onnx_image(_: object, __: object, model: Any, options: dict[str, Any]) -> bytes:
    return bytes(convert.onnx.to_model(model, **options).SerializeToString())


def _safetensors_image(arrays: dict[str, Any], framework: str, *_: object) -> bytes:
    return safetensors_file.foreign_image(arrays, {_FRAMEWORK: framework})


def _prefix(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == INDEX else path


def _read_npz(path: Path, _: object) -> FileWeights:
    try:
        with Source(path) as source, np.load(source, allow_pickle=False) as archive:
            return FileWeights(dict(archive))
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise PycudnnrnnError(f"{path} is not a readable .npz file of arrays: {error}") from error


def _read_keras(path: Path, _: object) -> FileWeights:
    return FileWeights(keras_files.read(path))


def _read_safetensors(path: Path, _: object) -> FileWeights:
    tensors, metadata, models = items.read(path)
    return FileWeights(tensors, framework=metadata.get(_FRAMEWORK, ""), models=models)


def _read_onnx(path: Path, nodes: list[str] | None) -> FileWeights:
    return FileWeights(*read_nodes(load_onnx(path), nodes))


def load_onnx(path: Path) -> Any:
    """Return the model of a file of ONNX."""
    onnx = onnx_package()
    with Source(path) as source:
        image = source.whole(ONNX_MAX)
    try:
        return onnx.load_model_from_string(image)
    except Exception as error:  # protobuf's exceptions have no common base class
        raise PycudnnrnnError(f"{path} is not a readable ONNX model: {error}") from error


def _torch(purpose: str) -> Any:
    with needs("torch", "torch", purpose):
        import torch  # noqa: PLC0415
    return torch


FILE_FORMATS: Final = {
    **dict.fromkeys((".pt", ".pth"), FileFormat("pytorch", _read_torch, _torch_image)),
    ".h5": FileFormat("keras", _read_keras, lambda arrays, *_: keras_files.h5_image(arrays)),
    **dict.fromkeys((".hdf5", ".keras"), FileFormat("keras", _read_keras)),  # whole models are only read
    ".onnx": FileFormat("onnx", _read_onnx, _onnx_image, "nodes"),
    ".safetensors": FileFormat("", _read_safetensors, _safetensors_image),
    ".npz": FileFormat("", _read_npz),
    INDEX: FileFormat("tensorflow", lambda path, _: FileWeights(checkpoint.read_tensorflow(path))),
}
"""Formats by suffix."""
