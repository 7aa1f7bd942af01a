"""Owners of native objects: each is freed once, by `close()` or when its owner is collected, and never used after.

After some CUDA errors the device is unusable in this process: the call that gets one raises `DeviceLostError`, and
native objects are no longer destroyed. Later calls fail by themselves: nothing is recorded. Only a new process can use
the device again.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import traceback
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, Final, Self

from pycudnnrnn._libcudnn import Library
from pycudnnrnn.errors import ArgumentTypeError, CudnnError, DeviceLostError, PycudnnrnnError, StateError

_LIVE: Final[set[_Resource]] = set()
"""The objects that are not freed yet. Operations on the set are atomic, with and without a GIL, so finalisers need no
lock."""

RELEASE_FAILURES: Final[list[PycudnnrnnError]] = []
"""Errors of releases. A release never raises, because a finaliser has no caller. Tests check that the list is empty."""


STICKY: Final = frozenset({214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911})
"""CUDA's errors after which a device is lost, by number. The driver's CUDA_ERROR_... have the same numbers.

Source: cudaError in driver_types.h (CUDA 13.5): those after which "the process must be terminated and relaunched", and
214 (cudaErrorECCUncorrectable), 220 (cudaErrorNvlinkUncorrectable) and 709 (cudaErrorContextIsDestroyed), which leave
memory that cannot be trusted, or no context.
"""


class _Leaving:
    """Whether native objects are no longer destroyed: the interpreter is exiting, or a device is lost."""

    begun = False


def leave_everything() -> None:
    """Destroy no native object from now on: the end of the process frees them all."""
    _Leaving.begun = True


atexit.register(leave_everything)


def lost(device: str, error: BaseException, cuda: BaseException | None) -> DeviceLostError | None:
    """Return the error to raise instead of `error` if CUDA's error `cuda` means that the device is lost.

    Native objects are no longer destroyed then.
    """
    code = getattr(cuda, "status", None)  # CuPy's CUDARuntimeError and CUDADriverError have it
    if code not in STICKY:
        return None
    if isinstance(error.__context__, DeviceLostError):
        return error.__context__  # the first error; this one came from leaving the device
    function = error.function if isinstance(error, CudnnError) else _function(error)
    leave_everything()
    name, _, text = str(cuda).partition(": ")
    return DeviceLostError(device, code, name, function, text)


def _function(error: BaseException) -> str:
    """Name the function that CuPy's error came from."""
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    return next((name for name in reversed(names) if not name.endswith("check_status")), "CuPy")


def live() -> Counter[str]:
    """Count the native objects that are owned now, by class name."""
    return Counter(resource.name for resource in _LIVE.copy())


class _Resource:
    """A native object. It is freed once, by `free()` or when its owner is collected, and never at interpreter exit.

    `weakref.finalize` is not used: at exit the interpreter iterates over its registry, which a daemon thread may be
    changing at that time.
    """

    __slots__ = ("_destroy", "_pid", "_pointer", "_watch", "name")

    def __init__(self, owner: object, destroy: Callable[[Any], object], pointer: Any) -> None:
        self.name = type(owner).__name__
        self._destroy, self._pointer, self._pid = destroy, pointer, os.getpid()
        self._watch: weakref.ref[object] | None = weakref.ref(owner, lambda _: self.free())
        _LIVE.add(self)

    def free(self, live: set[_Resource] = _LIVE, leaving: type[_Leaving] = _Leaving) -> None:
        # Default arguments: when the interpreter exits, the module's globals may be gone before the last owner is
        # collected.
        if leaving.begun or os.getpid() != self._pid:  # a forked child has a copy of the memory; the parent frees it
            return
        try:
            live.remove(self)  # only the first caller frees it
        except KeyError:
            return
        self._watch = None
        try:
            self._destroy(self._pointer)
        except PycudnnrnnError as error:
            RELEASE_FAILURES.append(error)


def keep(owner: object, thing: object, end: Callable[[Any], object] | None = None) -> None:
    """Keep a thing, which is freed by a CUDA call, alive as long as its owner; then call `end(thing)`.

    Without `end` the thing frees itself, as CuPy's objects do when they are collected. At interpreter exit, on a lost
    device and in a forked child it is never freed: there the CUDA call would fail in a destructor, and Python could
    only print the error.
    """
    _Resource(owner, end or (lambda _: None), thing)


class Owned:
    """Own one native object, and keep its parents alive: the objects that it refers to.

    Nothing is destroyed at interpreter exit, nor after a device is lost: the end of the process frees everything. An
    owner cannot be copied or pickled.

    Raises:
        StateError: on use after `close()` of it or of one of its parents.
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
        """Whether this owner or one of its parents has been closed."""
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

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ArgumentTypeError("object", "something that can be copied and pickled", f"{self!r}: a native object")
