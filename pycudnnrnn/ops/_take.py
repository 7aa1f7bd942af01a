"""The arrays of a call: checks each one against its slot and converts it to the engine's kind of array."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pycudnnrnn import _arrays
from pycudnnrnn.engines import Engine, check_size
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.passes import Arrays, Name, Slot, slots
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec

OP_WORDS: Final[Mapping[Name, str]] = {
    "x": "input_data", "hx": "input_h", "cx": "input_c", "y": "output", "dy": "d_output", "dhy": "d_output_h",
    "dcy": "d_output_c",
}  # fmt: skip
"""The arguments and results of an op's forward and backward, where they have other names."""

_FLAT: Final = frozenset({"params", "d_params"})

_PRODUCTS: Final = frozenset({"reserve", "dx"})
"""The arrays of a plan that products are written to: on the CPU they must begin at a multiple of an element's size."""


def slots_on(engine: Engine, spec: RNNSpec, schedule: Schedule, reserve_nbytes: int | None = None) -> dict[Name, Slot]:
    """Return the slots of a call on an engine, whose layout has the size of params; see `passes.slots`."""
    return slots(spec, schedule, engine.layout(spec).size, reserve_nbytes)


class Taker:
    """Checks the arrays of one kind of call, in a fixed order, and returns the engine's arrays over the same memory.

    `words` are the caller's names of the arrays. `written` are the arrays that the call writes to. With `in_place` the
    native call gets the arrays unchanged, as it always gets params: they must be contiguous and aligned, and written
    arrays must not overlap others. Otherwise arrays that are not aligned are copied.
    """

    def __init__(
        self, engine: Engine, spec: RNNSpec, of_call: Mapping[Name, Slot], words: Mapping[Name, str], *,
        written: frozenset[Name] = frozenset(), in_place: bool = False,
    ) -> None:  # fmt: skip
        """Check the arrays in `words`, in that order."""
        self._engine, self._spec, self._words, self._written = engine, spec, words, written
        self.slots, self._in_place = of_call, in_place
        self._of_engine = engine.arrays.holds, engine.arrays.address
        self._checks = [(name, *self._check_of(name)) for name in words]
        self.known: tuple[Iterable[Any], Sequence[int | None]] = self._checks, [None] * len(words)
        """Arrays that need no check, each in its place, and their addresses. A plan sets those of its last call."""

    def _check_of(self, name: Name) -> tuple[Any, ...]:
        """Return what an array is compared with, its alignment (0: its address is not looked at), and its bytes."""
        slot, alignment = self.slots[name], self._engine.alignment
        step = alignment if alignment > 1 else 1 if self._in_place else 0  # on the CPU, an address takes a microsecond
        if self._in_place and name in _PRODUCTS:
            step = max(step, (self._spec.compute_dtype if name == "reserve" else self._spec.dtype).itemsize)
        return None if slot.shape is None else (slot.dtype, slot.shape, slot.strides), step, slot.nbytes

    def __call__(self, *arrays: Any) -> tuple[Arrays, list[int | None]]:
        """Return the engine's arrays over these, by name, and the addresses that were checked.

        Raises:
            ArgumentError: an array whose device, dtype, shape or memory does not fit its slot or the engine.
            ArgumentTypeError: None for an array that the call needs.
            LayoutError: a params buffer in the arithmetic layout, if the engine's layout has another size.
        """
        apart, (holds, address) = self._in_place, self._of_engine
        natives: Arrays = {}
        at: list[int | None] = []
        spans: list[tuple[int, int]] = []
        for array, (name, expected, step, nbytes), known, where in zip(arrays, self._checks, *self.known, strict=True):
            if array is known:
                native, place = array, where
            elif array is None or expected is None:
                self._check_absence(name, array)
                native = place = None
            else:
                native, place = array if holds(array) else self._brought(name, array), None
                if (native.dtype, native.shape, native.strides) != expected:
                    self._look_closer(name, native)
                if step:
                    place = address(native)
                    if place % step:
                        native = self._aligned(name, native, place, step)
                        place = address(native)
            if apart and place is not None:
                spans.append((place, place + nbytes))
            natives[name] = native
            at.append(place)
        if apart:
            self._check_apart(spans, at)
        return natives, at

    def _check_absence(self, name: Name, array: Any) -> None:
        """Raise an error for an array that is missing, or that the cell does not have."""
        slot, word = self.slots[name], self._words[name]
        if array is not None:
            raise ArgumentError(word, f"None: rnn_mode {str(self._spec.mode)!r} has no c", "an array")
        if slot.shape is not None and not slot.optional:
            raise ArgumentTypeError(word, f"an array, {slot.shape}, which is {slot.axes}", None)

    def _look_closer(self, name: Name, native: Any) -> None:
        """Raise the error for an array of another dtype or shape, or with strides that the call cannot take."""
        word, slot = self._words[name], self.slots[name]
        if native.dtype != slot.dtype:
            whose = "" if name == "reserve" else ", the model's"
            raise ArgumentError(word, f"{slot.dtype}{whose}", native.dtype, aspect="dtype")
        if native.shape != slot.shape:
            if name in _FLAT:
                check_size(word, native, self._spec, self._engine)
            _arrays.check_shape(word, native, slot.shape or (), slot.axes)
        exact = self._in_place or name in _FLAT or self._engine.alignment > 1
        if exact and not native.flags.c_contiguous:
            raise ArgumentError(word, "a contiguous array", f"strides {native.strides}")

    def _aligned(self, name: Name, native: Any, place: int, step: int) -> Any:
        """Return an aligned copy of an array, or raise an error where the call needs this memory."""
        exact = self._in_place or name in _FLAT
        least = step if exact else self.slots[name].dtype.itemsize
        if place % least:
            raise ArgumentError(self._words[name], f"memory aligned to {least} bytes", hex(place))
        return self._engine.arrays.copy(native)

    def _brought(self, name: Name, array: Any) -> Any:
        """Return the engine's array over an array of another library, or over one that may be read-only."""
        native = _arrays.to_engine(self._words[name], array, self._engine.device, self._engine.xp)
        if name in self._written:
            _arrays.check_writable(self._words[name], array, native)
        return native

    def _check_apart(self, spans: list[tuple[int, int]], at: list[int | None]) -> None:
        """Raise an error if a written array overlaps another one."""
        spans.sort()
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


def take_params(engine: Engine, spec: RNNSpec, name: str, params: Any, *, written: bool = False) -> Any:
    """Return the engine's array over a params buffer; see `Taker`."""
    of_call, written_to = slots_on(engine, spec, Schedule(1, 1)), _FLAT if written else frozenset[Name]()
    natives, _ = Taker(engine, spec, of_call, {"params": name}, written=written_to)(params)
    return natives["params"]
