"""TensorFlow's checkpoints, without TensorFlow: tensor bundles of format V2.

A bundle has an index, `<prefix>.index`, with the type, shape and place of each tensor, and shards such as
`<prefix>.data-00000-of-00001` with the bytes of the tensors. Nothing in them is trusted: the index is checked before
anything of a tensor's size is allocated, and each tensor's checksum is always compared.

Source: tensorflow/core/util/tensor_bundle/tensor_bundle.cc.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from pycudnnrnn._atomic import locked, write_together
from pycudnnrnn._source import Source
from pycudnnrnn.checkpoint._bundle import table
from pycudnnrnn.checkpoint._bundle.crc32c import checksum, masked
from pycudnnrnn.checkpoint._bundle.entries import ALL, DTYPES, Entry, Extents, Header, slice_key
from pycudnnrnn.checkpoint._bundle.paths import BOOK, INDEX, prefix_of, shard_paths, with_suffix
from pycudnnrnn.checkpoint._file import TensorSpec
from pycudnnrnn.checkpoint._refusal import Refusal, refused
from pycudnnrnn.checkpoint._similar_names import nearest
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError

Array = npt.NDArray[Any]

INDEX_MAX: Final = 1 << 22
"""Most bytes of an index: a tensor takes 50 to 100, most of them its name, so about 50,000 tensors."""

SLICES_MAX: Final = 256
"""Most parts of one partitioned variable: a part is one parameter server's."""

PIECE_NBYTES: Final = 1 << 22
"""Bytes that are read at a time."""

OBJECT_GRAPH: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""A string among the tensors of `tf.train.Checkpoint`: it describes which object each tensor belongs to."""


def read(path: Any, names: Iterable[str] | None = None) -> dict[str, Array]:
    """Read the arrays of a checkpoint that TensorFlow 1.x or 2.x wrote, without TensorFlow.

    Only the tensors that are read are in memory. Checksums are always compared. A partitioned variable becomes one
    array. A bfloat16 tensor has the dtype of `ml_dtypes`. In a file of `tf.train.Checkpoint`, the names of arrays end
    in "/.ATTRIBUTES/VARIABLE_VALUE".

    Args:
        path: the checkpoint's prefix ("model.ckpt-1000"), its `.index` file, or a folder with a `checkpoint` file,
            whose latest checkpoint is read.
        names: names of the tensors to read. Default: None, all tensors of numbers; a warning lists the others, except
            the object graph of `tf.train.Checkpoint`.

    Returns:
        NumPy arrays by name.

    Raises:
        CheckpointError: there is no checkpoint; it is damaged, incomplete or of format V1 (before TensorFlow 0.12); or
            a name is not in it, or is not a tensor of numbers.
        ArgumentTypeError: a name that is not a string.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from pycudnnrnn import Saver, checkpoint
        >>> saver = Saver({"a": np.arange(3), "b": np.zeros(2)})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = saver.save(f"{folder}/model.ckpt", format="tensorflow")
        ...     arrays = checkpoint.read_tensorflow(path, names=["a"])
        >>> arrays
        {'a': array([0, 1, 2])}

    Source: tensorflow/core/util/tensor_bundle/tensor_bundle.cc.
    """
    wanted = None if names is None else _names(names)
    with refused(path), Bundle(Path(path)) as bundle:
        found = {name: bundle.read(name) for name in (bundle.numbers if wanted is None else wanted)}
        left = sorted(bundle.others.keys() - {OBJECT_GRAPH}) if wanted is None else []
    if left:
        named = ", ".join(map(repr, left[:8]))
        warnings.warn(f"{path}: left out, since they hold no numbers: {named}", UserWarning, stacklevel=2)
    return found


class Bundle:
    """An open checkpoint: its index, and access to the elements of its tensors.

    `path` is the prefix as TensorFlow gives it ("model.ckpt-1000"), the `.index`, or a folder with its `checkpoint`.

    Raises:
        Refusal: no such checkpoint, or one that is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.prefix = prefix_of(path)
        num_shards, raw = _index(self.prefix)
        entries = {key: Entry.read(value) for key, value in raw.items()}
        self._parts = {key: entry for key, entry in entries.items() if key.startswith(b"\0")}
        self.entries = {_name(key): entry for key, entry in entries.items() if key not in self._parts}
        with contextlib.ExitStack() as stack:
            self._shards = [stack.enter_context(Source(path)) for path in shard_paths(self.prefix, num_shards)]
            self._check_places(entries.values())
            self._open = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def numbers(self) -> dict[str, TensorSpec]:
        """The shape and dtype of each array of numbers, by name."""
        return {name: entry.spec() for name, entry in self.entries.items() if entry.kind in DTYPES}

    @property
    def others(self) -> dict[str, str]:
        """The data types of the tensors without numbers, by name: strings, variants."""
        return {name: entry.dtype_name for name, entry in self.entries.items() if entry.kind not in DTYPES}

    def spec(self, name: str) -> TensorSpec:
        """Return the shape and dtype of an array.

        Raises:
            Refusal: not an array of numbers.
        """
        with _about(name):
            return self.entries[name].spec()

    def read(self, name: str) -> Array:
        """Return a tensor. The parts of a partitioned one are joined.

        Raises:
            Refusal: no tensor of this name, not an array of numbers, or not the bytes that were written.
        """
        if name not in self.entries:
            near = nearest(name, self.entries, 3)
            more = f"; there are {', '.join(map(repr, near))} and {max(len(self.entries) - len(near), 0)} others"
            raise Refusal("missing tensor", f"{name!r} is not there{more}")
        entry = self.entries[name]
        with _about(name):
            if not entry.slices:
                return self._array(entry)
            return self._together(name, entry)

    def _array(self, entry: Entry) -> Array:
        spec = _checked(entry)
        array = np.empty(spec.shape, spec.dtype)
        raw, crc = array.reshape(-1).view(np.uint8), 0
        for at in range(0, entry.size, PIECE_NBYTES):
            count = min(PIECE_NBYTES, entry.size - at)
            data = self._shards[entry.shard].read_at(entry.offset + at, count)
            crc = checksum(data, crc)
            raw[at : at + count] = np.frombuffer(data, np.uint8)
        if masked(crc) != entry.crc:
            raise Refusal("hash", "the contents are not those that were written (CRC-32C differs)")
        if spec.dtype == np.bool_ and raw.size and raw.max() > 1:
            raise Refusal("dtype", "a truth value other than 0 and 1")
        return array

    def _together(self, name: str, entry: Entry) -> Array:
        """Join the parts of a partitioned variable. They must fill it and must not overlap."""
        spec = entry.spec()
        if len(entry.slices) > SLICES_MAX:
            raise Refusal("offsets", f"{len(entry.slices)} parts; the cap is {SLICES_MAX}")
        places = [_place(extents, spec.shape) for extents in entry.slices]
        if sum(map(_volume, places)) != math.prod(spec.shape) or any(
            _volume(_common(a, b)) for a, b in itertools.combinations(places, 2)
        ):
            raise Refusal("offsets", "its parts overlap, or leave a hole")
        parts = [self._part(name, entry, *own) for own in zip(entry.slices, places, strict=True)]
        array = np.empty(spec.shape, spec.dtype)
        for part, place in zip(parts, places, strict=True):
            array[tuple(slice(r.start, r.stop) for r in place)] = self._array(part)
        return array

    def _part(self, name: str, whole: Entry, extents: Extents, place: list[range]) -> Entry:
        part = self._parts.get(slice_key(name, extents))
        if part is None:
            raise Refusal("missing tensor", f"the part at {_short(place)} is not there")
        if (part.kind, part.shape) != (whole.kind, tuple(map(len, place))):
            raise Refusal("shape", f"the part at {_short(place)} is {part.dtype_name} {list(part.shape)}")
        _checked(part)
        return part

    def _check_places(self, entries: Iterable[Entry]) -> None:
        """Refuse tensors outside their shard or over each other, so that no more than the files is ever read."""
        ends = [0] * len(self._shards)
        for entry in sorted(entries, key=lambda e: (e.shard, e.offset, e.size)):
            if entry.slices:
                continue
            if entry.shard >= len(self._shards):
                raise Refusal("offsets", f"a tensor in shard {entry.shard} of {len(self._shards)}")
            if entry.offset < ends[entry.shard] and entry.size:
                raise Refusal(
                    "offsets", f"a tensor at byte {entry.offset} of shard {entry.shard} lies over another one"
                )
            end = ends[entry.shard] = max(ends[entry.shard], entry.offset + entry.size)
            if end > self._shards[entry.shard].size:
                had = self._shards[entry.shard].size
                raise Refusal("size", f"shard {entry.shard} has {had} bytes where the index has {end}: it is cut short")


def write(prefix: Path, tensors: Mapping[str, Array], beside: Sequence[tuple[Path, bytes]] = ()) -> None:
    """Write a bundle as TensorFlow does, then the files `beside` it. At any moment the old or the new one is complete.

    The index decides which shards belong to a bundle. The new shards get names that the old index does not have, the
    new index replaces the old one in one step, and the old shards are deleted after that. So a bundle of one shard is
    replaced by one of two, whose second is empty, and the other way round. Processes that write in one folder wait for
    each other.

    Raises:
        ArgumentError: a dtype that TensorFlow has no number for, or a name that a bundle cannot have.
        OSError: a file cannot be written.
    """
    with locked(prefix.with_name(BOOK)):
        old = shard_paths(prefix, _num_shards(prefix))
        new = images(prefix, tensors, 2 if len(old) == 1 else 1)
        write_together([*new, *beside])
        for shard in {*old, *files(prefix)[:-1]} - {path for path, _ in new}:
            with contextlib.suppress(OSError):
                shard.unlink()


def files(prefix: Path) -> tuple[Path, ...]:
    """Return the names that `write` gives to the files of a bundle. The index, which every bundle has, is last."""
    return *shard_paths(prefix, 1), *shard_paths(prefix, 2), with_suffix(prefix, INDEX)


def _num_shards(prefix: Path) -> int:
    """Return how many shards a bundle has; 0 if there is no bundle that can be read."""
    try:
        return _index(prefix)[0]
    except (OSError, Refusal):
        return 0


def images(prefix: Path, tensors: Mapping[str, Array], num_shards: int = 1) -> list[tuple[Path, bytes]]:
    """Return the files of a bundle, in the order in which they must be renamed. All tensors are in the first shard.

    Raises:
        ArgumentError: a dtype that TensorFlow has no number for, or a name that a bundle cannot have.
    """
    kinds = {name: kind for kind, name in DTYPES.items()}
    arrays = {name: np.asarray(array) for name, array in tensors.items()}
    for name, array in arrays.items():
        if array.dtype.name not in kinds or not array.dtype.isnative:
            raise ArgumentError(name, f"one of {', '.join(kinds)}", array.dtype, aspect="dtype")
    keys = {name: _key(name) for name in arrays}
    entries, data, offset = {b"": Header(num_shards).written()}, [], 0
    for name, array in arrays.items():
        data.append(array.tobytes())
        crc = masked(checksum(data[-1]))
        entries[keys[name]] = Entry(kinds[array.dtype.name], array.shape, 0, offset, array.nbytes, crc).written()
        offset += array.nbytes
    shards = zip(shard_paths(prefix, num_shards), [b"".join(data), *[b""] * (num_shards - 1)], strict=True)
    return [*shards, (with_suffix(prefix, INDEX), table.written(entries))]


def _index(prefix: Path) -> tuple[int, dict[bytes, bytes]]:
    """Read a bundle's index: the number of shards, and the entry of each tensor."""
    with Source(with_suffix(prefix, INDEX)) as source:
        if source.size > INDEX_MAX:
            raise Refusal("size", f"an index of {source.size} bytes; the cap is {INDEX_MAX}")
        raw = dict(table.read(source.read_at(0, source.size)))
    if b"" not in raw:
        raise Refusal("metadata", "the index has no header")
    return Header.read(raw.pop(b"")).num_shards, raw


def _checked(entry: Entry) -> TensorSpec:
    """Return the shape and dtype of an unpartitioned tensor, after checking its number of bytes."""
    spec = entry.spec()
    if entry.size != spec.nbytes:
        raise Refusal("offsets", f"{entry.size} bytes where its shape and dtype have {spec.nbytes}")
    return spec


def _names(names: Any) -> list[str]:
    found = [names] if isinstance(names, str) else list(names)
    for name in found:
        if not isinstance(name, str):
            raise ArgumentTypeError("names", "strings, or None for all", type(name))
    return found


def _key(name: str) -> bytes:
    try:
        key = name.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        key = b""
    if not 0 < len(key) <= table.KEY_MAX or b"\0" in key:
        raise ArgumentError("name", f"1 to {table.KEY_MAX} bytes of UTF-8 without a zero", repr(name)[:80])
    return key


def _name(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise Refusal("header form", f"a name that is no UTF-8: {key!r:.80}") from error


@contextlib.contextmanager
def _about(name: str) -> Iterator[None]:
    try:
        yield
    except Refusal as refusal:
        raise Refusal(refusal.reason, f"{name!r}: {refusal.detail}") from refusal


def _place(extents: Extents, shape: tuple[int, ...]) -> list[range]:
    if len(extents) != len(shape):
        raise Refusal("shape", f"a part of {len(extents)} dimensions of a tensor of {len(shape)}")
    place = [
        range(n) if length == ALL else range(start, start + length)
        for (start, length), n in zip(extents, shape, strict=True)
    ]
    if any(r.start < 0 or r.stop > n or r.stop < r.start for r, n in zip(place, shape, strict=True)):
        raise Refusal("shape", f"a part at {_short(place)} of a tensor of {list(shape)}")
    return place


def _common(a: list[range], b: list[range]) -> list[range]:
    return [range(max(r.start, s.start), min(r.stop, s.stop)) for r, s in zip(a, b, strict=True)]


def _volume(place: list[range]) -> int:
    return math.prod(map(len, place))


def _short(place: list[range]) -> str:
    return "[" + ", ".join(f"{r.start}:{r.stop}" for r in place[:8]) + "]"
