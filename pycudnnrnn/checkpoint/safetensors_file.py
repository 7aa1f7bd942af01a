"""One checkpoint file: safetensors, with a SHA-256 of its contents in the metadata.

The safetensors library reads the file and checks its structure. Checked here: that the file has the expected tensors,
before one of them is read, and the hash. A file that fails a check is refused: a `Refusal`, which becomes a
`CheckpointError` with the file's name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from pycudnnrnn._arrays import Array
from pycudnnrnn._checks import shorten
from pycudnnrnn._files import Source
from pycudnnrnn.errors import ArgumentError, CheckpointError
from pycudnnrnn.spec import DType

REASONS: Final = (
    "unreadable",  # an error of the operating system, or not a regular file
    "format",  # not a checkpoint, or one whose structure is damaged
    "mismatch",  # other items, models, tensors, shapes or dtypes than those to restore
    "hash",  # the contents are not those that were written
    "not finite",  # asked for with require_finite=True
)
"""All values of `CheckpointError.reason`."""


class Refusal(Exception):  # noqa: N818  never leaves this package: CheckpointError does
    """A reason to refuse a file, before its path is known."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


@contextlib.contextmanager
def refused(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn a `Refusal`, or an error of the operating system, into an error that names the checkpoint's path.

    Raises:
        CheckpointError: the block raised one of the two.
    """
    try:
        yield
    except Refusal as refusal:
        raise CheckpointError(path, refusal.reason, refusal.detail) from refusal.__cause__
    except OSError as error:
        about_path = error.filename in (None, os.fspath(path))
        detail = (error.strerror or str(error)) if about_path else f"{error.filename}: {error.strerror}"
        raise CheckpointError(path, "unreadable", detail) from error


@contextlib.contextmanager
def parsing(what: str) -> Iterator[None]:
    """Turn any error that damaged contents lead to into a `Refusal`. `what` names the part that is read."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise Refusal("format", f"{what} is damaged: {error}") from error


_Result = TypeVar("_Result")

FORMAT: Final = "pycudnnrnn-1"
"""The value of "format" in the metadata of this package's files."""

_HASH: Final = "sha256"
"""The key of the hash in the metadata."""

_METADATA: Final = "__metadata__"
"""The entry of a header that is not a tensor. Source: the safetensors format."""

_DTYPES: Final = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
}  # fmt: skip
"""safetensors' names of NumPy's dtypes."""


class TensorSpec(NamedTuple):
    """The shape and dtype that a tensor has, or must have."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def check(self, name: str, spec: TensorSpec) -> None:
        """Refuse a tensor of another shape or dtype."""
        if spec != self:
            expected, got = (f"{one.dtype} {list(one.shape)}" for one in (self, spec))
            raise Refusal("mismatch", f"{shorten(name)} is {got}, expecting {expected}")


def image(tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of a file, with a hash of its contents.

    Raises:
        ArgumentError: a name or a dtype that the format does not have.
    """
    _check(tensors)
    full = {"format": FORMAT, **metadata}
    return foreign_image(tensors, full | {_HASH: _digest(full, sorted(tensors.items()))})


def foreign_image(tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of a safetensors file for any program to read: the same bytes for the same contents.

    Raises:
        ArgumentError: a name or a dtype that the format does not have.
    """
    _check(tensors)
    # The library copies the bytes in memory order and ignores strides. Its order of metadata is that of a hash.
    arrays = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in tensors.items()}
    data = memoryview(safetensors.numpy.save(arrays, dict(metadata)))
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(bytes(data[8:end]))
    header[_METADATA] = dict(sorted(header[_METADATA].items()))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the header's length is a multiple of 8
    return b"".join((len(text).to_bytes(8, "little"), text, data[end:]))


def _check(tensors: Mapping[str, Array]) -> None:
    for name, array in tensors.items():
        if name == _METADATA or not is_utf8(name):
            raise ArgumentError("name", f"text that UTF-8 has, other than {_METADATA!r}", shorten(name))
        if array.dtype.name not in _DTYPES or not array.dtype.isnative:
            raise ArgumentError(name, f"one of {', '.join(_DTYPES)}", array.dtype, aspect="dtype")


@contextlib.contextmanager
def opened(path: Path, *, foreign: bool = False) -> Iterator[OpenFile]:
    """Open a file of this package, or with `foreign` any safetensors file.

    Raises:
        CheckpointError: the file is damaged or another program's, or the block raised a `Refusal`.
    """
    how = "`pycudnnrnn convert` reads other frameworks' files, but none of TensorFlow before 0.12 (no .index)"
    with refused(path):
        Source(path).close()  # refuses what is not a regular file
        try:
            with safetensors.safe_open(path, "numpy") as file:
                open_file = OpenFile(file)
                if not (open_file.is_ours or foreign):
                    raise Refusal(
                        "format", f"not of this package: format {shorten(open_file.metadata.get('format'))}; {how}"
                    )
                yield open_file
        except safetensors.SafetensorError as error:
            how = "it lists TensorFlow's checkpoints: name its folder" if path.name == "checkpoint" else how
            raise Refusal("format", f"not a safetensors file, or a damaged one ({error}); {how}") from error


class OpenFile:
    """A file that is open: its metadata, and the shape and dtype of each tensor."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.metadata: dict[str, str] = file.metadata() or {}
        self.is_ours = self.metadata.get("format") == FORMAT
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  not a dict
        self.specs = {name: TensorSpec(tuple(s.get_shape()), _dtype(s.get_dtype())) for name, s in slices.items()}

    def check(self, expected: Mapping[str, TensorSpec]) -> None:
        """Refuse a file that has other tensors than these."""
        for name, spec in expected.items():
            if name not in self.specs:
                raise Refusal("mismatch", f"{shorten(name)} is not there")
            spec.check(name, self.specs[name])
        for name in self.specs.keys() - expected.keys():
            raise Refusal("mismatch", f"{shorten(name)} belongs to nothing here")

    def read(self, use: Callable[[Array], _Result]) -> dict[str, _Result]:
        """Return `use(tensor)` of each tensor, with one of them in memory at a time, and compare the hash."""
        results: dict[str, _Result] = {}

        def arrays() -> Iterator[tuple[str, Array]]:
            for name in sorted(self.specs):
                with parsing(shorten(name)):
                    array = self._file.get_tensor(name)
                results[name] = use(array)
                yield name, array

        if _digest(self.metadata, arrays()) != self.metadata.get(_HASH) and self.is_ours:
            raise Refusal("hash", "the contents are not those that were written (SHA-256 differs)")
        return results

    def tensors(self, *, require_finite: bool = False) -> dict[str, Array]:
        """Return all tensors, after comparing the hash; with `require_finite`, refuse a NaN or an infinity."""
        arrays = self.read(lambda array: array)
        if require_finite:
            check_finite(arrays)
        return arrays


def check_finite(tensors: Mapping[str, Array]) -> None:
    """Refuse tensors with elements that are not finite."""
    for name, array in tensors.items():
        if array.dtype.kind not in "biu" and not np.isfinite(array).all():
            raise Refusal("not finite", f"{shorten(name)} has a NaN or an infinity")


def is_utf8(text: str) -> bool:
    """Return True if UTF-8 can encode a name. It cannot encode half of a surrogate pair."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _digest(metadata: Mapping[str, str], tensors: Iterable[tuple[str, Array]]) -> str:
    """Hash metadata and tensors, which come in the order of names. This proves integrity, not origin."""
    sha256 = hashlib.sha256()

    def add(*texts: str) -> None:
        for text in texts:
            part = text.encode("utf-8", "surrogatepass")
            sha256.update(len(part).to_bytes(8, "little") + part)

    for key in sorted(metadata.keys() - {_HASH}):
        add(key, metadata[key])
    for name, array in tensors:
        add(name, array.dtype.name, str(array.shape))
        sha256.update(array.nbytes.to_bytes(8, "little"))
        if array.size:
            sha256.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return sha256.hexdigest()


def _dtype(code: str) -> np.dtype[Any]:
    names = {code: ours for ours, code in _DTYPES.items()}
    if code not in names:
        raise Refusal("format", f"a tensor of {shorten(code)}, which is not one of {', '.join(names)}")
    return DType.BFLOAT16.numpy if code == "BF16" else np.dtype(names[code])


PIECE: Final = 1 << 18
"""Elements that are looked at together, so that their copies in double precision take little memory."""


class Summary(NamedTuple):
    """A summary of a tensor: its size, the range and mean of its finite elements, and the number of the others.

    `least`, `most` and `mean` are None if no element is finite. For complex numbers they describe the absolute values.
    """

    size: int
    least: float | None
    most: float | None
    mean: float | None
    nan: int
    infinite: int


def summary_of(tensor: npt.NDArray[Any]) -> Summary:
    """Summarise a tensor."""
    least, most, total, nan, count = math.inf, -math.inf, 0.0, 0, 0
    for at in range(0, tensor.size, PIECE):
        piece = tensor.reshape(-1)[at : at + PIECE]
        values = np.abs(piece.astype(complex)) if np.iscomplexobj(piece) else piece.astype(float)
        finite = values[np.isfinite(values)]
        nan += int(np.isnan(values).sum())
        count += finite.size
        if finite.size:
            least, most = min(least, float(finite.min())), max(most, float(finite.max()))
            with np.errstate(over="ignore"):
                total += float(finite.sum())
    infinite = tensor.size - count - nan
    if not count:
        return Summary(tensor.size, None, None, None, nan, infinite)
    return Summary(tensor.size, least, most, total / count, nan, infinite)
