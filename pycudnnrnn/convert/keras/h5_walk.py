"""A walk over an untrusted HDF5 file: to every array once, and to none that costs far more than the file's size."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from typing import Any, Final

from pycudnnrnn._checks import shorten
from pycudnnrnn.convert._named import Array
from pycudnnrnn.errors import ConvertError

_DEEPEST: Final = 32
"""Most levels of groups. The deepest model of Keras has a few."""

_MOST_LINKS: Final = 1 << 16
"""Most names in all groups together. A layer has about ten. Looking one up takes about ten microseconds."""

MOST_EXPANSION: Final = 100
"""Most bytes of memory per byte of the file. An array of 10**13 elements that were never written takes no space."""

_CHUNK_COST: Final = 4096
"""Bytes that HDF5 takes to read a chunk, in addition to its contents: 3.8 KB were measured with HDF5 2.0."""

_DEFLATE, _SHUFFLE, _FLETCHER32, _LZF = 1, 2, 3, 32000
"""Numbers of HDF5's filters. Source: H5Zpublic.h, and h5py's own."""


class Walk:
    """The arrays of an open file with this many bytes.

    A group or an array with several names (hard links) is visited once, under the first of them in alphabetical order.
    A few groups could otherwise form an endless maze.
    """

    def __init__(self, h5py: Any, file: Any, nbytes: int) -> None:
        self._h5py = h5py
        self._file = file
        self._room = MOST_EXPANSION * nbytes
        self._links = 0
        self._seen: set[Any] = set()

    def datasets(self) -> Iterator[tuple[str, Any]]:
        """Yield every dataset, with its path.

        Raises:
            ConvertError: a link to elsewhere, data in another file, groups too deep, or too many names.
        """
        yield from self._under(self._file, "", ())

    def read(self, name: str, dataset: Any) -> Array:
        """Return the elements of a dataset.

        Raises:
            ConvertError: it takes too many bytes for the size of the file, or has filters that are not read.
        """
        chunk = math.prod(dataset.chunks or ())
        size = int(dataset.dtype.itemsize)
        self._room -= max(math.prod(dataset.shape), chunk) * size
        if dataset.chunks:  # HDF5 reads whole chunks, which may be larger than the array
            self._room -= _CHUNK_COST * math.prod(map(_pieces, dataset.shape, dataset.chunks))
        if self._room < 0:
            raise ConvertError("keras", shorten(name), "declares more bytes than the file can hold")
        self._check_filters(name, dataset, chunk * size)
        found: Array = dataset[()]
        return found

    def _under(self, group: Any, path: str, above: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
        own = self._h5py.h5o.get_info(group.id).addr
        if len(above) > _DEEPEST or own in above:
            raise ConvertError("keras", shorten(path), f"is nested deeper than {_DEEPEST} groups, or inside itself")
        if own in self._seen:
            return
        self._seen.add(own)
        self._links += len(group)
        if self._links > _MOST_LINKS:
            raise ConvertError("keras", shorten(path), f"brings the file to more than {_MOST_LINKS} names")
        for name in sorted(group):
            full = f"{path}{name}"
            if not isinstance(group.get(name, getlink=True), self._h5py.HardLink):
                raise ConvertError("keras", shorten(full), "is a link to elsewhere, which is not followed")
            item = group[name]
            if isinstance(item, self._h5py.Group):
                yield from self._under(item, f"{full}/", (*above, own))
            elif isinstance(item, self._h5py.Dataset) and self._is_new(item):
                if item.external or item.is_virtual:
                    raise ConvertError("keras", shorten(full), "keeps its data in another file, which is not opened")
                yield full, item

    def _is_new(self, dataset: Any) -> bool:
        address = self._h5py.h5o.get_info(dataset.id).addr
        known = address in self._seen
        self._seen.add(address)
        return not known

    def _check_filters(self, name: str, dataset: Any, chunk_nbytes: int) -> None:
        """Check that a chunk does not unpack to more than it should hold. HDF5 would unpack a gigabyte first."""
        made = dataset.id.get_create_plist()
        filters = [made.get_filter(i)[0] for i in range(made.get_nfilters())]
        if filters not in _READ:
            raise ConvertError("keras", shorten(name), f"has filters that are not read: {filters}")
        if _DEFLATE not in filters:
            return
        skipped = 1 << filters.index(_DEFLATE)
        stored: list[Any] = []
        dataset.id.chunk_iter(stored.append)
        for chunk in stored:
            if chunk.size > 2 * chunk_nbytes + _CHUNK_COST:
                raise ConvertError("keras", shorten(name), "has a chunk of more bytes than it unpacks to")
            if not chunk.filter_mask & skipped:
                _, data = dataset.id.read_direct_chunk(chunk.chunk_offset)
                try:
                    unpacked = zlib.decompressobj().decompress(data, chunk_nbytes + 1)
                except zlib.error as error:
                    raise ConvertError("keras", shorten(name), f"has a damaged chunk: {error}") from error
                if len(unpacked) > chunk_nbytes:
                    raise ConvertError("keras", shorten(name), "has a chunk that unpacks to more than it holds")


_READ: Final = [
    [*before, *packed, *after]
    for before in ([], [_SHUFFLE])
    for packed in ([], [_DEFLATE], [_LZF])
    for after in ([], [_FLETCHER32])
]
"""The filters that a dataset may have, in the order of their application: those that h5py itself offers."""


def _pieces(size: int, chunk: int) -> int:
    return -(-size // chunk)
