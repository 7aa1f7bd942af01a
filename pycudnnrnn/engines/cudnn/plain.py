"""Arrays that may cross to cuDNN as they are, recognised at once: the short way round the checks that give reasons."""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import add, gt, itemgetter
from typing import Any, Final

from pycudnnrnn.passes import Name, Slot

APART_NBYTES: Final = 2**48
"""Between the places below all addresses where absent arrays are taken to be; each stands apart from all."""


Recogniser = Callable[[tuple[Any, ...]], tuple[int | None, ...] | None]
"""Call it with the arrays of a call: it returns their addresses, or None if one of them is not plainly right.

It accepts only what the slower checks accept, and gives no reasons: whoever is turned away goes through those, which
do. An array that came last in the same place is known by its identity, and looked at again only for what can change in
place, its shape; weak references tell it from a later one with the same `id`.
"""


def recogniser(ndarray: type, device: int, wanted: Mapping[Name, Slot], alignment: int, *, apart: bool) -> Recogniser:
    """Return what recognises arrays on a device, in the order of `wanted`; `apart` refuses two that share memory."""
    looked_for = []
    for slot in wanted.values():
        sizes, itemsize = slot.shape or (), slot.dtype.itemsize
        strides = tuple(itemsize * math.prod(sizes[i + 1 :]) for i in range(len(sizes)))
        looked_for.append((slot.shape, strides, slot.dtype, alignment, slot.optional or slot.shape is None))
    places = _Places([slot.nbytes for slot in wanted.values()]) if apart and len(wanted) > 1 else None
    write = _writer(tuple(wanted), places is not None)
    recognise: Recogniser = write(ndarray, device, places, weakref.ref, _nobody, *looked_for)
    return recognise


@functools.lru_cache(maxsize=16)
def _writer(names: tuple[str, ...], apart: bool) -> Callable[..., Recogniser]:
    """Write the checks of one array after those of another: a loop over them takes half as long again.

    `last` has what the arrays of the latest call are known by: their addresses, and weak references to them. `order` is
    that in which they lay then, and their sizes in it.
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
    source = f"""
def write(ndarray, device, places, ref, nobody, {wanted}):{unpacked}
    last = (None,) * {len(names)}, (nobody,) * {len(names)}
    order = places and places.order
    def recognise(arrays):
        nonlocal last, order
        {", ".join(names)}, = arrays
        before, ({known},) = last
        {at}, = before{checks}
        at = {at},
        if at != before:{_apart(names) if apart else ""}
            last = at, ({known},)
        return at
    return recognise
"""
    namespace: dict[str, Any] = {}
    exec(source, namespace)  # noqa: S102  of names in `Passes`
    write: Callable[..., Recogniser] = namespace["write"]
    return write


def _apart(names: tuple[str, ...]) -> str:
    """Write the check that no two arrays share memory: each ends before the next begins.

    They are tried in the order in which those before lay, and sorted where it is not right any more.
    """
    count = range(len(names))
    starts = ", ".join(f"{a}_at or {-place * APART_NBYTES}" for place, a in enumerate(names, 1))
    ordered, sizes = (", ".join(f"{what}{i}" for i in count) for what in ("start", "size"))
    in_order = " and ".join(f"start{i} + size{i} <= start{i + 1}" for i in count[:-1])
    return f"""
            starts = {starts},
            pick, ({sizes},) = order
            {ordered}, = pick(starts)
            if not ({in_order}):
                found = places.sort(starts)
                if found is None:
                    return None
                order = found"""


class _Places:
    """Arrays by where they lie: in which order to take them, and their sizes in that order."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self.order = self._taken(range(len(sizes)))

    def _taken(self, order: Iterable[int]) -> tuple[Callable[[Sequence[int]], tuple[int, ...]], tuple[int, ...]]:
        pick = itemgetter(*order)
        return pick, pick(self._sizes)

    def sort(self, starts: Sequence[int]) -> Any:
        """Return the order in which arrays lie that begin there; None if two of them share memory."""
        pick, sizes = found = self._taken(sorted(range(len(starts)), key=starts.__getitem__))
        ordered = pick(starts)
        return None if any(map(gt, map(add, ordered, sizes), ordered[1:])) else found


def _nobody() -> None:
    """Stand for a reference to an array that nobody can give."""
