"""Arrays that may cross to cuDNN as they are, recognised at once: the short way round the checks that give reasons."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np


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
    looked_for, sizes = [], []
    for shape, dtype, alignment, optional in wanted.values():
        sizes.append(math.prod(shape or ()) * dtype.itemsize)
        strides = tuple(dtype.itemsize * math.prod((shape or ())[i + 1 :]) for i in range(len(shape or ())))
        looked_for.append((shape, strides, dtype, alignment, optional or shape is None))
    overlap = functools.partial(_overlap, sizes) if apart else _may_overlap
    recognise: Recogniser = _writer(tuple(wanted))(ndarray, device, overlap, weakref.ref, _nobody, *looked_for)
    return recognise


@functools.lru_cache(maxsize=16)
def _writer(names: tuple[str, ...]) -> Callable[..., Recogniser]:
    """Write the checks of one array after those of another: a loop over them takes half as long again."""
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
    source = f"""
def write(ndarray, device, overlap, ref, nobody, {wanted}):{unpacked}
    last = (None,) * {len(names)}, (nobody,) * {len(names)}
    def recognise({", ".join(names)}):
        nonlocal last
        before, ({known},) = last
        {at}, = before{checks}
        at = {at},
        if at != before:
            if overlap(at):
                return None
            last = at, ({known},)
        return at
    return recognise
"""
    namespace: dict[str, Any] = {}
    exec(source, namespace)  # noqa: S102  of names in `Passes`
    write: Callable[..., Recogniser] = namespace["write"]
    return write


def _overlap(sizes: list[int], at: tuple[int | None, ...]) -> bool:
    """Whether any two share memory; if none do, each ends before the next begins."""
    starts = [*filter(None, at)]
    ends = sorted(map(operator.add, starts, itertools.compress(sizes, at)))
    starts.sort()
    del starts[0]
    return any(map(operator.gt, ends, starts))


def _nobody() -> None:
    """Stand for a reference to an array that nobody can give."""


def _may_overlap(_: tuple[int | None, ...]) -> bool:
    return False
