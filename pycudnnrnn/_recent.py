"""A small cache: a dict with a limit, for objects that are expensive to make."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from pycudnnrnn import _locks

T = TypeVar("T")


class Recent(Generic[T]):
    """A dict of at most `limit` values; the oldest is dropped first. `get` takes no lock, so that calls never wait."""

    __slots__ = ("_limit", "_lock", "_values", "get")

    def __init__(self, limit: int) -> None:
        self._limit, self._lock = limit, _locks.lock()
        self._values: dict[Hashable, T] = {}
        self.get: Callable[[Hashable], T | None] = self._values.get

    def keep(self, key: Hashable, value: T) -> T:
        """Store a value, replace an older one with the same key, and return it."""
        with self._lock:
            self._values.pop(key, None)
            self._values[key] = value
            while len(self._values) > self._limit:
                del self._values[next(iter(self._values))]
        return value

    def values(self) -> list[T]:
        with self._lock:
            return list(self._values.values())

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
