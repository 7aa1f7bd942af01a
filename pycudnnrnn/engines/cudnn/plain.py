"""Arrays that may cross to cuDNN as they are, recognised at once: the short way round the checks that give reasons."""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Iterable, Mapping
from operator import add, gt, itemgetter
from typing import Any, Final, NamedTuple

import numpy as np

APART_NBYTES: Final = 2**48
"""Between the places below all addresses where absent arrays are taken to be; each stands apart from all."""


class Wanted(NamedTuple):
    """What an array has to be: contiguous, of a shape. Without one it has to be None; `optional` allows None, too."""

    shape: tuple[int, ...] | None
    dtype: np.dtype[Any]
    alignment: int = 1
    optional: bool = False


Recogniser = Callable[..., tuple[int | None, ...] | None]
"""Call it with the arrays of a call: it returns their addresses, or None if one of them is not plainly right.

It accepts only what the slower checks accept, and gives no reasons: whoever is turned away goes through those, which
do. An array that came last in the same place is known by its identity, and looked at again only for what can change in
place, its shape; weak references tell it from a later one with the same `id`.
"""


def recogniser(ndarray: type, device: int, wanted: Mapping[str, Wanted], *, apart: bool) -> Recogniser:
    """Return what recognises arrays on a device, in the order of `wanted`; `apart` refuses two that share memory."""
    looked_for, nbytes = [], []
    for shape, dtype, alignment, optional in wanted.values():
        sizes = shape or ()
        strides = tuple(dtype.itemsize * math.prod(sizes[i + 1 :]) for i in range(len(sizes)))
        looked_for.append((shape, strides, dtype, alignment, optional or shape is None))
        nbytes.append(dtype.itemsize * math.prod(sizes))
    overlap = _Overlap(nbytes) if apart and len(nbytes) > 1 else _not_asked
    recognise: Recogniser = _writer(tuple(wanted))(ndarray, device, overlap, weakref.ref, _nobody, *looked_for)
    return recognise


@functools.lru_cache(maxsize=16)
def _writer(names: tuple[str, ...]) -> Callable[..., Recogniser]:
    """Write the checks of one array after those of another: a loop over them takes half as long again.

    `last` has what the arrays of the latest call are known by: their addresses, and weak references to them.
    """
    wanted = ", ".join(f"{a}_wanted" for a in names)
    unpacked = "".join(f"\n    {a}_shape, {a}_strides, {a}_dtype, {a}_alignment, {a}_null = {a}_wanted" for a in names)
    checks = "".join(
        f"""
        if {a} is None:
            if not {a}_null:
                return None
            {a}_at, {a}_known = None, nobody
        elif {a}_known() is {a}:
            if {a}.shape != {a}_shape:
                return None
        elif (
            type({a}) is not ndarray or {a}.dtype is not {a}_dtype
            or {a}.shape != {a}_shape or {a}.strides != {a}_strides
            or {a}.data.device_id != device or ({a}_at := {a}.data.ptr) % {a}_alignment
        ):
            return None
        else:
            {a}_known = ref({a})"""
        for a in names
    )
    at, known = (", ".join(f"{a}_{what}" for a in names) for what in ("at", "known"))
    starts = ", ".join(f"{a}_at or {-place * APART_NBYTES}" for place, a in enumerate(names, 1))
    source = f"""
def write(ndarray, device, overlap, ref, nobody, {wanted}):{unpacked}
    last = (None,) * {len(names)}, (nobody,) * {len(names)}
    def recognise({", ".join(names)}):
        nonlocal last
        before, ({known},) = last
        {at}, = before{checks}
        at = {at},
        if at != before:
            if overlap(({starts},)):
                return None
            last = at, ({known},)
        return at
    return recognise
"""
    namespace: dict[str, Any] = {}
    exec(source, namespace)  # noqa: S102  of names in `Passes`
    write: Callable[..., Recogniser] = namespace["write"]
    return write


class _Overlap:
    """Say whether any two of some arrays share memory: not where each ends before the next begins.

    They are tried in the order in which those before lay; it is as good as sorting where it is still right.
    """

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes
        self._last = self._in_order(range(len(sizes)))

    def _in_order(self, order: Iterable[int]) -> tuple[Any, Any]:
        pick = itemgetter(*order)
        return pick, pick(self._sizes)

    def __call__(self, starts: tuple[int, ...]) -> bool:
        pick, sizes = self._last
        ordered = pick(starts)
        if not any(map(gt, map(add, ordered, sizes), ordered[1:])):
            return False
        pick, sizes = self._last = self._in_order(sorted(range(len(starts)), key=starts.__getitem__))
        ordered = pick(starts)
        return any(map(gt, map(add, ordered, sizes), ordered[1:]))


def _nobody() -> None:
    """Stand for a reference to an array that nobody can give."""


def _not_asked(_: tuple[int, ...]) -> bool:
    return False
