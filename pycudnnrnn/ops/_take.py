"""The arrays of a call: checks each one against its slot and converts it to the engine's kind of array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pycudnnrnn import _arrays
from pycudnnrnn.engines import Engine
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, LayoutError
from pycudnnrnn.layout import arithmetic_layout
from pycudnnrnn.passes import Arrays, Name, Slot, slots
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec

OP_WORDS: Final[Mapping[Name, str]] = {
    "x": "input_data", "hx": "input_h", "cx": "input_c", "y": "output", "dy": "d_output", "dhy": "d_output_h",
    "dcy": "d_output_c",
}  # fmt: skip
"""The arguments and results of an op's forward and backward, where they have other names."""

_FLAT: Final = frozenset({"params", "d_params"})


class Taker:
    """Checks the arrays of one kind of call, in a fixed order, and returns the engine's arrays over the same memory.

    `words` are the caller's names of the arrays. `written` are the arrays that the call writes to. With `in_place` the
    native call gets the arrays unchanged, as it always gets params: they must be contiguous and aligned, and written
    arrays must not overlap others. Otherwise arrays that are not aligned are copied.
    """

    def __init__(
        self, engine: Engine, spec: RNNSpec, wanted: Mapping[Name, Slot], words: Mapping[Name, str], *,
        written: frozenset[Name] = frozenset(), in_place: bool = False,
    ) -> None:  # fmt: skip
        """Check the arrays in `words`, in that order."""
        self._engine, self._spec, self._words, self._written = engine, spec, words, written
        self.slots, self._in_place = wanted, in_place
        alignment = engine.alignment
        self._of_engine = engine.arrays.holds, engine.arrays.address, alignment
        self._sizes = [wanted[name].nbytes for name in words]
        least = {"reserve": spec.compute_dtype.itemsize, "dx": spec.dtype.itemsize} if in_place else {}
        self._wanted = [
            (name, wanted[name], wanted[name].strides, in_place or name in _FLAT, max(least.get(name, 1), alignment))
            for name in words
        ]

    def __call__(self, *given: Any) -> tuple[Arrays, list[int | None]]:
        """Return the engine's arrays over those given, by name, and the addresses that were checked.

        Raises:
            ArgumentError: an array whose device, dtype, shape or memory does not fit its slot or the engine.
            ArgumentTypeError: None for an array that the call needs.
            LayoutError: a params buffer in the arithmetic layout, if the engine's layout has another size.
        """
        words, (holds, address, alignment) = self._words, self._of_engine
        addressed = self._in_place or alignment > 1  # an address takes a microsecond on the CPU
        found: Arrays = {}
        at: list[int | None] = []
        for array, (name, slot, strides, exact, step) in zip(given, self._wanted, strict=True):
            shape, dtype, axes, optional = slot
            if array is None:
                if not optional and shape is not None:
                    raise ArgumentTypeError(words[name], f"an array, {shape}, which is {axes}", None)
                found[name] = None
                at.append(None)
                continue
            if shape is None:
                raise ArgumentError(words[name], f"None: rnn_mode {str(self._spec.mode)!r} has no c", "an array")
            native = array if holds(array) else self._brought(name, array)
            if native.dtype != dtype:
                whose = "" if name == "reserve" else ", the model's"
                raise ArgumentError(words[name], f"{dtype}{whose}", native.dtype, aspect="dtype")
            if native.shape != shape:
                if name in _FLAT:
                    check_size(words[name], native, self._spec, self._engine)
                _arrays.check_shape(words[name], native, shape, axes)
            place = None
            if exact or alignment > 1:
                if native.strides != strides and not native.flags.c_contiguous:
                    raise ArgumentError(words[name], "a contiguous array", f"strides {native.strides}")
                place = address(native) if addressed else 0
                if place % step:
                    least = step if exact else dtype.itemsize
                    if place % least:
                        raise ArgumentError(words[name], f"memory aligned to {least} bytes", hex(place))
                    native = self._engine.arrays.copy(native)
                    place = address(native)
            found[name] = native
            at.append(place)
        if self._in_place:
            self._check_apart(at)
        return found, at

    def _brought(self, name: Name, array: Any) -> Any:
        """Return the engine's array over an array of another library, or over one that may be read-only."""
        native = _arrays.to_engine(self._words[name], array, self._engine.device, self._engine.xp)
        if name in self._written:
            _arrays.check_writable(self._words[name], array, native)
        return native

    def _check_apart(self, at: list[int | None]) -> None:
        """Raise an error if a written array overlaps another one."""
        spans = sorted([(start, start + size) for start, size in zip(at, self._sizes, strict=True) if start])
        end = 0
        for start, stop in spans:
            if start < end:
                break
            end = stop
        else:  # no array overlaps its neighbour
            return
        named = zip(at, self._words, strict=True)
        places = [(start, start + self.slots[name].nbytes, name) for start, name in named if start is not None]
        for start, end, name in places:
            for other, stop, another in places:
                if name in self._written and name != another and start < stop and other < end:
                    got = f"memory that {self._words[another]} has, too"
                    raise ArgumentError(self._words[name], "memory of its own", got)


def check_size(name: str, params: Any, spec: RNNSpec, engine: Engine) -> None:
    """Raise an error for params in the arithmetic layout, if the engine's layout has another size.

    Raises:
        LayoutError: params of that size.
    """
    predicted, size = arithmetic_layout(spec).size, engine.layout(spec).size
    if predicted != size and tuple(params.shape) == (predicted,):
        raise LayoutError(
            f"{name} has the {predicted} elements of the arithmetic layout, and {engine.name}'s layout has {size}: "
            "an op's move_params brings a buffer from one to the other"
        )


def take_params(engine: Engine, spec: RNNSpec, name: str, params: Any, *, written: bool = False) -> Any:
    """Return the engine's array over a params buffer; see `Taker`."""
    wanted = slots(spec, Schedule(1, 1), engine.layout(spec).size)
    found, _ = Taker(engine, spec, wanted, {"params": name}, written=_FLAT if written else frozenset())(params)
    return found["params"]
