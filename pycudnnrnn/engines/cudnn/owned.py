"""Owners of native objects: each is freed once, by `close()` or when its owner is collected, and never used after."""

from __future__ import annotations

import atexit
import ctypes
import os
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from pycudnnrnn.errors import ArgumentTypeError, ClosedError, PycudnnrnnError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from pycudnnrnn._libcudnn import Function, Library

_LIVE: Final[set[tuple[str, int]]] = set()
"""Class name and address of each native object; set operations are atomic, so finalisers need no lock."""

RELEASE_FAILURES: Final[list[PycudnnrnnError]] = []
"""What went wrong in releases, which never raise: a finaliser has nobody to raise to. Tests hold it empty."""


class _Leaving:
    """Whether native objects are left as they are: the interpreter is ending, or a device is lost."""

    begun = False


def leave_everything() -> None:
    """Destroy no native object from now on; the end of the process gives everything back."""
    _Leaving.begun = True


# A finalizer runs at exit until it is told not to, which takes a moment in which another thread may reach the end.
# Exit handlers run last registered first, and finalizers register theirs when the first one is made: here, before ours.
weakref.finalize(_Leaving, leave_everything).atexit = False
atexit.register(leave_everything)


def live() -> Counter[str]:
    """Count the native objects that are owned now, by class name."""
    return Counter(name for name, _ in tuple(_LIVE))


def _release(destroy: Function, pointer: Any, entry: tuple[str, int], pid: int) -> None:
    _LIVE.discard(entry)
    if _Leaving.begun or os.getpid() != pid:  # a forked child has a copy of the memory; the parent frees the original
        return
    try:
        destroy(pointer)
    except PycudnnrnnError as error:
        RELEASE_FAILURES.append(error)


class Owned:
    """Own one native object, and keep what it is built on alive.

    Nothing is destroyed at interpreter exit, nor once a device is lost: the end of the process gives everything back.
    An owner cannot be copied or pickled.

    Raises:
        ClosedError: on use after `close()`, or after `close()` of something it is built on.
    """

    def __init__(self, library: Library, pointer: Any, create: str, destroy: str, *parents: Owned) -> None:
        getattr(library, create)(ctypes.byref(pointer))
        entry = (type(self).__name__, ctypes.cast(pointer, ctypes.c_void_p).value or 0)
        _LIVE.add(entry)
        self.library = library
        self._pointer = pointer
        self._parents = parents
        self._closed = False
        self._finalizer = weakref.finalize(self, _release, getattr(library, destroy), pointer, entry, os.getpid())
        self._finalizer.atexit = False

    @property
    def closed(self) -> bool:
        """Whether this owner, or one that it is built on, has been closed."""
        return self._closed or any(parent.closed for parent in self._parents)

    @property
    def _as_parameter_(self) -> Any:
        if self.closed:
            raise ClosedError(f"{type(self).__name__} was used after it, or what it is built on, had been closed")
        return self._pointer

    def close(self) -> None:
        """Free the native object; a second call does nothing."""
        self._closed = True
        self._finalizer()

    def _configure(self, function: Function, *arguments: Any) -> None:
        """Call a setter on the new object, and free it at once if that fails."""
        try:
            function(self, *arguments)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ArgumentTypeError("object", "something that can be copied and pickled", f"{self!r}: a native object")
