"""One checkpoint file: its bytes, and reading it without trusting it.

The expected tensors decide, not the file. A reader knows every name, shape and dtype before it opens the file. It
stops at the first difference, before it allocates anything. The header is checked here first. Then the safetensors
library gets the same bytes, which are read once from one open file.

Source: the safetensors format: 8 bytes little-endian header length, JSON header, tensors without holes or overlap.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import safetensors

from pycudnnrnn._checks import shorten
from pycudnnrnn._source import Source
from pycudnnrnn.checkpoint._file_formats import what_it_is
from pycudnnrnn.checkpoint._refusal import Refusal, refused
from pycudnnrnn.checkpoint._safetensors import image_of
from pycudnnrnn.errors import ArgumentError, MissingDependencyError
from pycudnnrnn.spec import DType

Array = npt.NDArray[Any]

HEADER_MAX: Final = 1 << 20
"""Most bytes of header. 4096 tensors with TF's names take about two thirds of it; the library itself allows 100 MB."""

FOREIGN_HEADER_MAX: Final = 1 << 24
"""The same for files of other programs, which may hold much more than an RNN."""

TENSORS_MAX: Final = 4096
"""Most tensors in a file: a bidirectional GRU of 256 layers has 4096."""

AXES_MAX: Final = 64
"""Most axes of a tensor: NumPy's own limit. Their product is computed before anything else is known of them."""

SIZE_MAX: Final = 2**128
"""Largest size and offset that are computed with: JSON's numbers may have thousands of digits; no file has those."""

PIECE_NBYTES: Final = 1 << 22
"""Most bytes of a tensor that `scan` holds at once."""

METADATA: Final = "__metadata__"
"""The entry of the header that is not a tensor."""

FORMAT: Final = "pycudnnrnn-1"
"""The value of "format" in the metadata."""

REASONS: Final = (
    "unreadable",  # an error of the operating system, or not a regular file
    "size",  # more bytes than the expected tensors and a header can have
    "header length",  # longer than the file, or than the limit
    "header text",  # not strict JSON
    "duplicate key",
    "header form",  # JSON, without the structure of safetensors' headers
    "too many tensors",
    "metadata",  # of another program, or incomplete, or malformed
    "spec",  # another model than the one to restore
    "missing tensor",
    "unknown tensor",
    "dtype",
    "shape",
    "offsets",  # overlap, hole, or not the number of bytes that the shape has
    "hash",  # the contents are not those that were written
    "library",  # an error of the safetensors library, after all of the above
    "not finite",  # asked for with require_finite=True
)
"""All values of `CheckpointError.reason`."""

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
        size = self.dtype.itemsize
        for n in self.shape:
            size *= n
        return size


class Contents(NamedTuple):
    """The tensors and metadata of a file."""

    tensors: dict[str, Array]
    metadata: dict[str, str]


Expectation = Callable[[Mapping[str, str]], Mapping[str, TensorSpec]]
"""Maps the metadata to the tensors that the file must have. It may raise `Refusal`."""


def image(tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of a file, with a hash of its contents.

    Raises:
        ArgumentError: a name or a dtype that the format does not have, or more tensors or header than a reader
            accepts.
    """
    arrays = _writable(tensors)
    if len(arrays) > TENSORS_MAX:
        raise ArgumentError("tensors", f"at most {TENSORS_MAX}", len(arrays))
    full = {"format": FORMAT, **metadata}
    full["sha256"] = _digest(_whole(arrays), full)
    data = image_of(arrays, full)
    length = int.from_bytes(data[:8], "little")
    if length > HEADER_MAX:
        raise ArgumentError("tensors", f"names and metadata of at most {HEADER_MAX} bytes", length)
    return data


def foreign_image(tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of a safetensors file for any program to read.

    Raises:
        ArgumentError: a name or a dtype that the format does not have.
    """
    return image_of(_writable(tensors), metadata)


def _writable(tensors: Mapping[str, Array]) -> dict[str, Array]:
    if METADATA in tensors:  # the library would write two entries of that name, which no reader accepts
        raise ArgumentError("name", "another than the format's own", repr(METADATA))
    for name, array in tensors.items():
        if not is_utf8(name):
            raise ArgumentError("name", "text that UTF-8 has", shorten(name))
        if array.dtype.name not in _DTYPES or not array.dtype.isnative:
            raise ArgumentError(name, f"one of {', '.join(_DTYPES)}", array.dtype, aspect="dtype")
    # The library copies the bytes in memory order and ignores strides.
    return {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in tensors.items()}


def read(path: Path, expect: Expectation, *, data_max: int | None, require_finite: bool = False) -> Contents:
    """Read a file, and check it against the expected tensors.

    `expect` maps the metadata to the tensors that the file must have. `data_max` caps their bytes before anything is
    read; with None, `expect` has to do that.

    Raises:
        CheckpointError: the file is damaged or does not have the expected tensors.
    """
    with refused(path), Source(path) as source:
        return _read(source, expect, data_max, require_finite=require_finite)


def scan(
    path: Path, visit: Callable[[str, Array], None], *, foreign: bool
) -> tuple[dict[str, TensorSpec], dict[str, str]]:
    """Walk through a file with little of it in memory. `visit` gets each tensor's name with its elements, in pieces.

    Returns the tensors' specs and the metadata, after checking the hash. With `foreign` the file may be one of any
    program: without a hash, and without our "format" in its metadata.

    Raises:
        CheckpointError: the file is damaged, or not written by this package.
    """
    with refused(path), Source(path) as source:
        limits = (FOREIGN_HEADER_MAX, None) if foreign else (HEADER_MAX, TENSORS_MAX)
        entries, metadata, data_start = _header(source, *limits)
        ours = _is_ours(metadata, foreign=foreign)
        specs = _specs(entries)
        _check_end(source, entries, specs, data_start)

        def pieces(name: str) -> Iterator[bytes]:
            first, last = entries[name]["data_offsets"]
            for at in range(first, last, PIECE_NBYTES):
                data = source.read_at(data_start + at, min(PIECE_NBYTES, last - at))
                visit(name, np.frombuffer(data, specs[name].dtype))
                yield data

        digest = _digest(((name, specs[name], pieces(name)) for name in specs), metadata)
        if ours and digest != metadata["sha256"]:
            raise _damaged()
    return specs, metadata


def read_foreign(path: Path) -> Contents:
    """Read any program's safetensors file. It must be complete, and the hash of one of ours must be right.

    Raises:
        CheckpointError: a damaged safetensors file, or a dtype that NumPy does not have.
    """
    with refused(path), Source(path) as source:
        entries, metadata, data_start = _header(source, FOREIGN_HEADER_MAX, tensors_max=None)
        specs = _specs(entries)
        _check_end(source, entries, specs, data_start)
        tensors = _parsed(source.read_at(0, source.size), specs)
        if _is_ours(metadata, foreign=True):
            _check_digest(tensors, metadata)
        return Contents(tensors, metadata)


def _read(source: Source, expect: Expectation, data_max: int | None, *, require_finite: bool) -> Contents:
    if data_max is not None and source.size > 8 + HEADER_MAX + data_max:
        found = what_it_is(source)
        other = f"not a safetensors file: {found}; " if found else ""
        raise Refusal("size", f"{other}{source.size} bytes where the expected tensors have {data_max}")
    entries, metadata, data_start = _header(source)
    _is_ours(metadata, foreign=False)
    expected = expect(metadata)
    _compare(entries, expected)
    _check_end(source, entries, expected, data_start)
    tensors = _parsed(source.read_at(0, source.size), expected)
    _check_digest(tensors, metadata)
    if require_finite:
        check_finite(tensors)
    return Contents(tensors, metadata)


def check_finite(tensors: Mapping[str, Array]) -> None:
    """Refuse tensors with elements that are not finite."""
    for name, array in tensors.items():
        if array.dtype.kind not in "biu" and not np.isfinite(array).all():
            raise Refusal("not finite", f"{name} has a NaN or an infinity")


def _header(
    source: Source, header_max: int = HEADER_MAX, tensors_max: int | None = TENSORS_MAX
) -> tuple[dict[str, dict[str, Any]], dict[str, str], int]:
    """Return the header's entries and metadata, after checking their form, and the offset of the tensors."""
    if source.size < 8:
        raise _other_file(source, f"{source.size} bytes have no room for a header")
    length = int.from_bytes(source.read_at(0, 8), "little")
    if not 2 <= length <= min(header_max, source.size - 8):
        detail = f"{length} bytes of header in a file of {source.size}; the cap is {header_max}"
        raise Refusal("header length", detail) if 2 <= length <= source.size - 8 else _other_file(source, detail)
    try:
        header = json.loads(
            source.read_at(8, length).decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise Refusal("header text", f"not strict JSON: {error}") from error
    if not isinstance(header, dict):
        raise Refusal("header form", "not a JSON object")
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise Refusal("header form", "metadata is more than strings by name")
    if tensors_max is not None and len(header) > tensors_max:
        raise Refusal("too many tensors", f"{len(header)}; the cap is {tensors_max}")
    for name, entry in header.items():
        if not _well_formed(entry):
            raise Refusal(
                "header form",
                f"the entry of {shorten(name)} is not a dtype, a shape and two offsets, or has sizes that no file has",
            )
    return header, metadata, 8 + length


def _other_file(source: Source, detail: str) -> Refusal:
    """Return the error for a file that is too short for its header."""
    found = what_it_is(source)
    other = f"not a safetensors file: {found}" if found else "not a safetensors file, or cut short"
    return Refusal("header length", f"{other} ({detail})")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Refusal("duplicate key", "a name appears twice in one object of the header")
    return found


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _well_formed(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        return False
    numbers = (entry["shape"], entry["data_offsets"])
    return (
        isinstance(entry["dtype"], str)
        and all(isinstance(sizes, list) and len(sizes) <= AXES_MAX for sizes in numbers)
        and all(type(n) is int and 0 <= n <= SIZE_MAX for sizes in numbers for n in sizes)
        and len(entry["data_offsets"]) == 2
    )


def _compare(entries: Mapping[str, dict[str, Any]], expected: Mapping[str, TensorSpec]) -> None:
    for name in expected:
        if name not in entries:
            near = next((f", {shorten(n)} is" for n in entries if f"/{n}".endswith(f"/{name}")), "")
            raise Refusal("missing tensor", f"{name!r} is not there{near}")
    for name, entry in entries.items():
        if name not in expected:
            raise Refusal("unknown tensor", f"{shorten(name)} belongs to nothing here")
        dtype, shape = _DTYPES[expected[name].dtype.name], list(expected[name].shape)
        if entry["dtype"] != dtype:
            raise Refusal("dtype", f"{name!r} is {shorten(entry['dtype'])}, expecting {dtype!r}")
        if entry["shape"] != shape:
            raise Refusal("shape", f"{name!r} is {shorten(entry['shape'])}, expecting {shape}")


def _check_end(
    source: Source, entries: Mapping[str, dict[str, Any]], expected: Mapping[str, TensorSpec], data_start: int
) -> None:
    """Refuse tensors that do not fill the file from the header's end, without holes or overlap."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = entry["data_offsets"]
        if first != end or last - first != expected[name].nbytes:
            wanted = (end, end + expected[name].nbytes)
            raise Refusal("offsets", f"{shorten(name)} lies at {shorten([first, last])}, expecting {shorten(wanted)}")
        end = last
    if source.size != data_start + end:
        raise Refusal("offsets", f"{source.size - data_start} bytes of tensors where the header has {end}")


def _specs(entries: Mapping[str, dict[str, Any]]) -> dict[str, TensorSpec]:
    return {name: TensorSpec(tuple(e["shape"]), _numpy_dtype(e["dtype"])) for name, e in entries.items()}


def _parsed(data: bytes, expected: Mapping[str, TensorSpec]) -> dict[str, Array]:
    try:
        found = dict(safetensors.deserialize(data))  # type: ignore[no-untyped-call]
        return {
            name: np.frombuffer(found[name]["data"], spec.dtype).reshape(spec.shape) for name, spec in expected.items()
        }
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise Refusal("library", str(error)) from error


def _is_ours(metadata: Mapping[str, str], *, foreign: bool) -> bool:
    if metadata.get("format") == FORMAT and "sha256" in metadata:
        return True
    if foreign and metadata.get("format") != FORMAT:
        return False
    raise Refusal("metadata", f"not written by this package: format is {shorten(metadata.get('format'))}")


def is_utf8(text: str) -> bool:
    """Return True if UTF-8 can encode a name. It cannot encode half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_digest(tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    if _digest(_whole(tensors), metadata) != metadata["sha256"]:
        raise _damaged()


def _damaged() -> Refusal:
    return Refusal("hash", "the contents are not those that were written (SHA-256 differs)")


def _whole(tensors: Mapping[str, Array]) -> Iterator[tuple[str, TensorSpec, list[memoryview]]]:
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array).reshape(-1)
        yield name, TensorSpec(array.shape, array.dtype), [raw.view(np.uint8).data] if raw.size else []


def _digest(
    tensors: Iterable[tuple[str, TensorSpec, Iterable[bytes | memoryview]]], metadata: Mapping[str, str]
) -> str:
    """Hash metadata and tensors in the order of names. This proves integrity, not origin: anybody can compute it."""
    found = hashlib.sha256()

    def add(*texts: str) -> None:
        for text in texts:
            part = text.encode("utf-8", "surrogatepass")
            found.update(len(part).to_bytes(8, "little"))
            found.update(part)

    for key in sorted(metadata.keys() - {"sha256"}):
        add(key, metadata[key])
    for name, spec, pieces in sorted(tensors, key=lambda tensor: tensor[0]):
        add(name, spec.dtype.name, str(spec.shape))
        found.update(spec.nbytes.to_bytes(8, "little"))
        for piece in pieces:
            found.update(piece)
    return found.hexdigest()


def _numpy_dtype(theirs: str) -> np.dtype[Any]:
    names = {theirs: ours for ours, theirs in _DTYPES.items()}
    if theirs not in names:
        raise Refusal("dtype", f"{shorten(theirs)} is not one of {', '.join(names)}")
    try:
        return DType.BFLOAT16.numpy if theirs == "BF16" else np.dtype(names[theirs])
    except MissingDependencyError as error:
        raise Refusal("dtype", str(error)) from error
