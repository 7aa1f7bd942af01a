"""A small cache: a dict with a limit, for objects that are expensive to make."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from pycudnnrnn import _locks

T = TypeVar("T")


class Recent(Generic[T]):
    """A dict of at most `limit` values; the one used least recently is dropped first. A call never waits in `get`."""

    __slots__ = ("_limit", "_lock", "_values")

    def __init__(self, limit: int) -> None:
        self._limit, self._lock = limit, _locks.lock()
        self._values: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable) -> T | None:
        value = self._values.get(key)
        if value is not None:
            try:  # noqa: SIM105  `suppress` takes longer than all of this
                self._values.move_to_end(key)
            except KeyError:  # another thread has dropped it
                pass
        return value

    def keep(self, key: Hashable, value: T) -> T:
        """Store a value, replace an older one with the same key, and return it."""
        with self._lock:
            self._values.pop(key, None)
            self._values[key] = value
            while len(self._values) > self._limit:
                self._values.popitem(last=False)
        return value

    def values(self) -> list[T]:
        with self._lock:
            return list(self._values.values())

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
