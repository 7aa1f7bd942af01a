"""The arrays of a call: each checked against its slot, and brought to the kind that the engine works on."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from pycudnnrnn import _arrays
from pycudnnrnn.engines import Engine
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, LayoutError
from pycudnnrnn.layout import arithmetic_layout
from pycudnnrnn.passes import Arrays, Name, Slot, slots
from pycudnnrnn.spec import RNNSpec

Words = Mapping[Name, str]
"""What a caller calls the arrays of some slots, for error texts; the others have their slots' names."""

_OWN: Final[Words] = MappingProxyType({})
_NONE: Final[frozenset[Name]] = frozenset()
_FLAT: Final = frozenset({"params", "d_params"})


def take(
    engine: Engine, spec: RNNSpec, slots: Mapping[Name, Slot], given: Arrays, words: Words = _OWN, *,
    written: frozenset[Name] = _NONE, in_place: bool = False,
) -> Arrays:  # fmt: skip
    """Return the engine's arrays over a caller's, by name; None where there is none.

    `written` are those that the call writes to. With `in_place` they go to a native call as they are: all contiguous
    and aligned, and what is written has memory of its own.

    Raises:
        ArgumentError: an array whose device, dtype, shape or memory is not what its slot and the engine want.
        ArgumentTypeError: no array where there has to be one.
        LayoutError: a params buffer laid out by arithmetic, where the engine's layout differs in size.
    """
    holds, alignment = engine.holds, engine.alignment
    found: Arrays = {}
    places = []
    for name, array in given.items():
        slot, word = slots[name], words.get(name, name)
        if array is None and (slot.optional or slot.shape is None):
            found[name] = None
            continue
        if array is None:
            raise ArgumentTypeError(word, f"an array, {slot.shape}, which is {slot.axes}", None)
        if slot.shape is None:
            raise ArgumentError(word, f"None: rnn_mode {str(spec.mode)!r} has no c", "an array")
        native = array if holds(array) else _arrays.to_engine(word, array, engine.device, engine.xp)
        found[name] = native
        if native.dtype != slot.dtype:
            raise ArgumentError(word, f"{slot.dtype}, the model's", native.dtype, aspect="dtype")
        if name in written:
            _arrays.check_writable(word, array, native)
        if native.shape != slot.shape:
            if name in _FLAT and native.shape == (arithmetic_layout(spec).size,):
                raise LayoutError(
                    f"{word} has the {native.size} elements of the arithmetic layout, and {engine.name}'s layout has "
                    f"{slot.shape[0]}: move_params brings a buffer from one to the other"
                )
            raise ArgumentError(word, f"{slot.shape}, which is {slot.axes}", tuple(native.shape), aspect="shape")
        as_it_is = in_place or name in _FLAT
        if not (as_it_is or alignment > 1):
            continue
        if not native.flags.c_contiguous:
            raise ArgumentError(word, "a contiguous array", f"strides {native.strides}")
        start, wanted = _arrays.address(native), alignment if as_it_is else native.itemsize
        if start % wanted and native.size:
            raise ArgumentError(word, f"memory aligned to {wanted} bytes", hex(start))
        places.append((start, start + native.nbytes, name))
    if in_place:
        _check_apart(places, written)
    return found


def _check_apart(places: list[tuple[int, int, Name]], written: frozenset[Name]) -> None:
    """Refuse what is written where another array is: go along the memory, and look at those that overlap."""
    end, together = 0, _NONE
    for start, stop, name in sorted(places):
        together = together | {name} if start < end else frozenset({name})
        if start < end and not written.isdisjoint(together):
            raise ArgumentError(min(written & together), "memory of its own", "memory that another argument has too")
        end = max(end, stop)


def take_params(engine: Engine, spec: RNNSpec, name: str, params: Any, *, written: bool = False) -> Any:
    """Return the engine's array over a params buffer; see `take`."""
    wanted = slots(spec, 1, 1, engine.layout(spec).size)
    given, words = {"params": params}, {"params": name}
    return take(engine, spec, wanted, given, words, written=_FLAT if written else _NONE)["params"]
