"""TensorFlow's checkpoints, without TensorFlow: tensor bundles of format V2.

A bundle has an index, `<prefix>.index`, with the type, shape and place of each tensor, and shards such as
`<prefix>.data-00000-of-00001` with the bytes of the tensors. Nothing in them is trusted: the index is checked before
anything of a tensor's size is allocated, and each tensor's checksum is always compared.

Source: tensorflow/core/util/tensor_bundle/tensor_bundle.cc.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from filelock import FileLock

from pycudnnrnn._arrays import Array
from pycudnnrnn._checks import check_text, shorten, some, warn
from pycudnnrnn._files import PREFIX, Source, check_target, naming, write_together
from pycudnnrnn.checkpoint.bundle import table
from pycudnnrnn.checkpoint.bundle.table import Entry, Extents
from pycudnnrnn.checkpoint.folder import INDEX, LIST, latest_in, prefix_of, shard_paths, with_suffix
from pycudnnrnn.checkpoint.safetensors_file import Refusal, TensorSpec, is_utf8, parsing, refused
from pycudnnrnn.errors import ArgumentError

INDEX_MAX: Final = 1 << 22
"""Most bytes of an index: a tensor takes 50 to 100, most of them its name, so about 50,000 tensors."""

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
        MissingDependencyError: `google-crc32c` is not installed, or bfloat16 without `ml_dtypes`.

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
    selection = [names] if isinstance(names, str) else names
    with opened(Path(path)) as bundle:
        arrays = {check_text("names", n): bundle.read(n) for n in (bundle.numbers if selection is None else selection)}
        left = [name for name in bundle.others if name != OBJECT_GRAPH] if selection is None else []
    if left:
        warn(f"{path}: left out, as they hold no numbers: {some(left, shorten)}")
    return arrays


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Bundle]:
    """Open a checkpoint: its prefix as TensorFlow gives it ("model.ckpt-1000"), its `.index`, or its folder.

    Raises:
        CheckpointError: no such checkpoint, or one that is damaged, or the block raised a `Refusal`.
    """
    with refused(path), contextlib.ExitStack() as stack:
        prefix = prefix_of(latest_in(path))
        num_shards, entries = _index(prefix)
        shards = [stack.enter_context(Source(shard)) for shard in shard_paths(prefix, num_shards)]
        _check_places(entries.values(), shards)
        yield Bundle(entries, shards)


def specs_without_data(path: Path) -> dict[str, TensorSpec]:
    """Return the shapes and dtypes in the index of a checkpoint whose data are lost; {} if the data are there.

    Raises:
        CheckpointError: the index is damaged.
    """
    with refused(path):
        prefix = prefix_of(latest_in(path))
        num_shards, entries = _index(prefix)
        if any(shard.exists() for shard in shard_paths(prefix, num_shards)):
            return {}
        return Bundle(entries, []).numbers


class Bundle:
    """An open checkpoint: its index, and access to the elements of its tensors.

    Raises:
        Refusal: the index does not fit the shards.
    """

    def __init__(self, entries: Mapping[bytes, Entry], shards: Sequence[Source]) -> None:
        self._shards = shards
        self._parts = {key: entry for key, entry in entries.items() if key.startswith(b"\0")}
        with parsing("a name in the index"):
            self.entries = {key.decode(): entry for key, entry in entries.items() if key not in self._parts}

    @property
    def numbers(self) -> dict[str, TensorSpec]:
        """The shape and dtype of each array of numbers, by name."""
        return {name: entry.spec() for name, entry in self.entries.items() if entry.kind in table.DTYPES}

    @property
    def others(self) -> list[str]:
        """The names of the tensors without numbers: strings, variants."""
        return sorted(name for name, entry in self.entries.items() if entry.kind not in table.DTYPES)

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
            raise Refusal("mismatch", f"{shorten(name)} is not there; the file has {self.named()}")
        entry = self.entries[name]
        with _about(name), parsing("it"):
            return self._together(name, entry) if entry.slices else self._array(entry)

    def named(self) -> str:
        """Name the first tensors, for an error."""
        return some(sorted(self.entries), shorten) or "no tensors"

    def _array(self, entry: Entry) -> Array:
        spec = entry.spec()
        array = np.empty(spec.shape, spec.dtype)
        raw = array.reshape(-1).view(np.uint8)
        self._shards[entry.shard].seek(entry.offset)
        self._shards[entry.shard].readinto(raw.data)
        if table.checksum(raw) != entry.crc:
            raise Refusal("hash", "the contents are not those that were written (CRC-32C differs)")
        if spec.dtype == np.bool_ and raw.size and raw.max() > 1:
            raise Refusal("format", "a truth value other than 0 and 1")
        return array

    def _together(self, name: str, entry: Entry) -> Array:
        """Join the parts of a partitioned variable. They must fill it and must not overlap."""
        spec = entry.spec()
        parts = {extents: self._part(name, entry, extents) for extents in entry.slices}
        # The parts are in the files, so if they have as many elements as the whole, the whole is no larger than those.
        if sum(math.prod(part.shape) for part in parts.values()) != math.prod(spec.shape):
            raise Refusal("format", "its parts overlap, or leave a hole")
        array, filled = np.empty(spec.shape, spec.dtype), np.zeros(spec.shape, bool)
        for extents, part in parts.items():
            place = _place(extents, spec.shape)
            array[place], filled[place] = self._array(part), True
        if not filled.all():
            raise Refusal("format", "its parts overlap, or leave a hole")
        return array

    def _part(self, name: str, whole: Entry, extents: Extents) -> Entry:
        part = self._parts.get(table.slice_key(name, extents))
        shape = tuple(place.stop - place.start for place in _place(extents, whole.shape))
        if part is None or part.slices or (part.kind, part.shape) != (whole.kind, shape):
            raise Refusal("format", f"the part at {list(extents)} is not there, or is of another shape or dtype")
        part.spec()
        return part


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
    entries, data = encoded(tensors)
    folder_list = prefix.with_name(LIST)
    for path in (*files(prefix), folder_list):  # what cannot be written is refused before the lock's file is made
        check_target(path)
    lock = FileLock(prefix.with_name(f"{PREFIX}{LIST}.lock"))  # of a list that is replaced: a file beside it
    try:  # so that no interrupt comes between; to release a lock that was not acquired does nothing
        with naming(folder_list):
            lock.acquire()
        old = list[Path]()
        with contextlib.suppress(OSError, Refusal):  # there is no bundle, or none that can be read
            old = shard_paths(prefix, _index(prefix)[0])
        new = images(prefix, entries, data, 2 if len(old) == 1 else 1)
        write_together([*new, *beside])
        for shard in {*old, *files(prefix)[:-1]} - {path for path, _ in new}:
            with contextlib.suppress(OSError):
                shard.unlink()
    finally:
        lock.release()


def files(prefix: Path) -> tuple[Path, ...]:
    """Return the names that `write` gives to the files of a bundle. The index, which every bundle has, is last."""
    return *shard_paths(prefix, 1), *shard_paths(prefix, 2), with_suffix(prefix, INDEX)


def encoded(tensors: Mapping[str, Array]) -> tuple[dict[bytes, bytes], bytes]:
    """Return the entries of tensors in an index, and the bytes of their shard.

    Raises:
        ArgumentError: a dtype that TensorFlow has no number for, or a name that a bundle cannot have.
    """
    kinds = {name: kind for kind, name in table.DTYPES.items()}
    entries, data, offset = dict[bytes, bytes](), list[bytes](), 0
    for name, array in tensors.items():
        if array.dtype.name not in kinds or not array.dtype.isnative:
            raise ArgumentError(name, f"one of {', '.join(kinds)}", array.dtype, aspect="dtype")
        data.append(array.tobytes())
        crc = table.checksum(data[-1])
        entries[_key(name)] = Entry(kinds[array.dtype.name], array.shape, 0, offset, array.nbytes, crc).written()
        offset += array.nbytes
    return entries, b"".join(data)


def images(prefix: Path, entries: Mapping[bytes, bytes], data: bytes, num_shards: int) -> list[tuple[Path, bytes]]:
    """Return the files of a bundle, in the order in which they must be renamed. All tensors are in the first shard."""
    shards = zip(shard_paths(prefix, num_shards), [data, *[b""] * (num_shards - 1)], strict=True)
    return [*shards, (with_suffix(prefix, INDEX), table.written({b"": table.header(num_shards), **entries}))]


def _index(prefix: Path) -> tuple[int, dict[bytes, Entry]]:
    """Read a bundle's index: the number of shards, and the entry of each tensor."""
    with Source(with_suffix(prefix, INDEX)) as source, parsing("the index"):
        raw = dict(table.read(source.whole(INDEX_MAX)))
        num_shards = table.read_header(raw.pop(b""))
        return num_shards, {key: Entry.read(value) for key, value in raw.items()}


def _check_places(entries: Iterable[Entry], shards: Sequence[Source]) -> None:
    """Refuse tensors outside their shard or over each other, so that no more than the files is ever read."""
    ends = dict.fromkeys(range(len(shards)), 0)
    for entry in sorted((e for e in entries if not e.slices), key=lambda e: (e.shard, e.offset, e.size)):
        end = entry.offset + entry.size
        if entry.shard not in ends or end > shards[entry.shard].size:
            raise Refusal("format", f"a tensor ends at byte {end} of shard {entry.shard}, which is cut short")
        if entry.offset < ends[entry.shard] and entry.size:
            raise Refusal("format", f"a tensor at byte {entry.offset} of shard {entry.shard} lies over another one")
        ends[entry.shard] = max(ends[entry.shard], end)


def _key(name: str) -> bytes:
    key = name.encode() if is_utf8(name) else b""
    if not 0 < len(key) <= table.KEY_MAX or b"\0" in key:
        raise ArgumentError("name", f"1 to {table.KEY_MAX} bytes of UTF-8 without a zero", shorten(name))
    return key


@contextlib.contextmanager
def _about(name: str) -> Iterator[None]:
    try:
        yield
    except Refusal as refusal:
        raise Refusal(refusal.reason, f"{shorten(name)}: {refusal.detail}") from refusal


def _place(extents: Extents, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Return where a part lies in its variable."""
    pairs = zip(extents, shape, strict=False)
    place = tuple(slice(0, n) if length == table.ALL else slice(start, start + length) for (start, length), n in pairs)
    if len(extents) != len(shape) or not all(0 <= p.start <= p.stop <= n for p, n in zip(place, shape, strict=True)):
        raise Refusal("format", f"a part at {list(extents)} of a tensor of {list(shape)}")
    return place
