"""A C function with most of its arguments given once, for calls that are made often."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pycudnnrnn._libcudnn.prototypes import RESULTS, Prototype
from pycudnnrnn._libcudnn.types import Address, Opaque
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError

if TYPE_CHECKING:
    from pycudnnrnn._libcudnn import Library


class Bound:
    """Call a C function with the pointers that were left open, in their order; the rest was converted when it was made.

    What is given when it is made passes through the prototype's own conversion and is kept alive by whoever made it.
    `argtypes` are ctypes' own for the same C types, which cost a fraction of ours: a pointer of another opaque type is
    refused as ever, and addresses are to come from arrays that were checked.

    Raises:
        ArgumentTypeError: an argument left open that is no pointer.
        ArgumentError: NULL for a pointer that must not be; nothing was called.
        CudnnError: the function returned a status other than success.
    """

    __slots__ = ("_arguments", "_foreign", "_kinds", "_library", "_name", "_names", "_open", "_required")

    def __init__(self, library: Library, prototype: Prototype, foreign: Any, given: Mapping[str, Any]) -> None:
        kinds = prototype.parameters
        unknown = given.keys() - kinds.keys()
        left = [name for name in kinds if name not in given]
        if unknown or not all(isinstance(kinds[name], (Opaque, Address)) for name in left):
            raise ArgumentTypeError(f"arguments of {prototype.name}", "all but pointers, by name", sorted(given))
        self._library, self._name = library, prototype.name
        self._arguments = [kind.convert(name, given[name]) if name in given else None for name, kind in kinds.items()]
        self._names, self._kinds = list(kinds), list(kinds.values())
        self._open = tuple(self._names.index(name) for name in left)
        self._required = tuple((i, name) for i, name in enumerate(left) if not getattr(kinds[name], "null", False))
        types = [kind.native for kind in self._kinds]
        address = ctypes.cast(foreign, ctypes.c_void_p).value or 0
        self._foreign: Any = ctypes.CFUNCTYPE(RESULTS[prototype.result], *types)(address)

    def __call__(self, *pointers: Any) -> None:
        for place, name in self._required:
            if not pointers[place]:
                raise ArgumentError(name, "an address", "NULL")
        arguments = self._arguments.copy()
        for place, pointer in zip(self._open, pointers, strict=True):
            arguments[place] = pointer
        try:
            status = self._foreign(*arguments)
        except ctypes.ArgumentError:
            for place, pointer in zip(self._open, pointers, strict=True):
                self._kinds[place].convert(self._names[place], pointer)  # names the argument, in our own error
            raise
        if status:
            raise self._library.status_error(self._name, status)
