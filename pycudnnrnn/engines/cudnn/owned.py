"""Owners of native objects: each is freed once, by `close()` or when its owner is collected, and never used after."""

from __future__ import annotations

import atexit
import ctypes
import os
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pycudnnrnn.errors import ArgumentTypeError, PycudnnrnnError, StateError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from pycudnnrnn._libcudnn import Library

_LIVE: Final[set[_Resource]] = set()
"""What is to be freed, or never will be; its operations are atomic, with and without a GIL, so that finalisers need no
lock."""

RELEASE_FAILURES: Final[list[PycudnnrnnError]] = []
"""What went wrong in releases, which never raise: a finaliser has nobody to raise to. Tests hold it empty."""


class _Leaving:
    """Whether native objects are left as they are: the interpreter is ending, or a device is lost."""

    begun = False


def leave_everything() -> None:
    """Destroy no native object from now on; the end of the process gives everything back."""
    _Leaving.begun = True


atexit.register(leave_everything)


def live() -> Counter[str]:
    """Count the native objects that are owned now, by class name."""
    return Counter(resource.name for resource in _LIVE.copy())


class _Resource:
    """A native object: freed once, when its owner says so or is collected, and never at the interpreter's exit.

    Not `weakref.finalize`: that keeps one registry for all threads, which the interpreter walks through at its exit
    while a daemon thread may still change it.
    """

    __slots__ = ("_destroy", "_pid", "_pointer", "_watch", "name")

    def __init__(self, owner: object, destroy: Callable[[Any], object], pointer: Any) -> None:
        self.name = type(owner).__name__
        self._destroy, self._pointer, self._pid = destroy, pointer, os.getpid()
        self._watch: weakref.ref[object] | None = weakref.ref(owner, lambda _: self.free())
        _LIVE.add(self)

    def free(self, live: set[_Resource] = _LIVE, leaving: type[_Leaving] = _Leaving) -> None:
        # Defaults outlive this module, and so do the main thread's own descriptors, when the interpreter ends.
        if leaving.begun or os.getpid() != self._pid:  # a forked child has a copy of the memory; the parent frees it
            return
        try:
            live.remove(self)  # whoever comes first
        except KeyError:
            return
        self._watch = None
        try:
            self._destroy(self._pointer)
        except PycudnnrnnError as error:
            RELEASE_FAILURES.append(error)


def keep(owner: object, thing: object, end: Callable[[Any], object] | None = None) -> None:
    """Keep what ends by a CUDA call, as long as its owner; for good where nothing is to be destroyed.

    `end` makes that call, given the thing; None stands for its own: an object of CuPy's calls CUDA when it is freed,
    which on a lost device, or in a forked child, is an error that Python can only print.
    """
    _Resource(owner, end or _nothing, thing)


def _nothing(_: Any) -> None:
    """Destroy nothing: who was kept ends with its last reference."""


class Owned:
    """Own one native object, and keep what it is built on alive.

    Nothing is destroyed at interpreter exit, nor once a device is lost: the end of the process gives everything back.
    An owner cannot be copied or pickled.

    Raises:
        StateError: on use after `close()`, or after `close()` of something it is built on.
    """

    _kind: ClassVar[str]

    def __init_subclass__(cls, kind: str) -> None:
        cls._kind = kind

    def __init__(self, library: Library, *parents: Owned) -> None:
        create, destroy = (getattr(library, f"cudnn{verb}{self._kind}") for verb in ("Create", "Destroy"))
        (out,) = create.prototype.parameters.values()
        pointer = out.ctype._type_()
        create(ctypes.byref(pointer))
        self.library = library
        self._pointer = pointer
        self._parents = parents
        self._closed = False
        self._resource = _Resource(self, destroy, pointer)

    @property
    def closed(self) -> bool:
        """Whether this owner, or one that it is built on, has been closed."""
        return self._closed or any(parent.closed for parent in self._parents)

    @property
    def _as_parameter_(self) -> Any:
        if self.closed:
            raise StateError(f"{type(self).__name__} was used after it, or what it is built on, had been closed")
        return self._pointer

    def close(self) -> None:
        """Free the native object; a second call does nothing."""
        self._closed = True
        self._resource.free()

    def _configure(self, setter: Callable[..., object], *arguments: Any) -> None:
        """Call a setter of the new object, which is freed at once if that fails."""
        try:
            setter(*arguments)
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
