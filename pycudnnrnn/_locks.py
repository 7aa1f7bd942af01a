"""Locks that are free in a forked child. The parent's thread that held one does not exist there to release it."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_all: weakref.WeakSet[Any] = weakref.WeakSet()


def lock() -> threading.Lock:
    """Return a new lock."""
    return _known(threading.Lock())


def rlock() -> threading.RLock:
    """Return a new reentrant lock."""
    return _known(threading.RLock())


def cached_property(function: Callable[[Any], T]) -> functools.cached_property[T]:
    """`functools.cached_property`: its lock, up to Python 3.11 one for all objects of a class, is free in a child."""
    descriptor = functools.cached_property(function)
    if hasattr(descriptor, "lock"):
        vars(descriptor)["lock"] = rlock()
    return descriptor


def _known(new: T) -> T:
    _all.add(new)
    return new


def _free_all() -> None:
    for one in list(_all):
        one._at_fork_reinit()  # noqa: SLF001  what logging and concurrent.futures call for their locks


if hasattr(os, "register_at_fork"):  # other systems have no fork
    os.register_at_fork(after_in_child=_free_all)
