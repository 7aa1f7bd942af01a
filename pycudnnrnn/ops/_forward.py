"""What a forward returns: its results, and the way back through it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Generic, NamedTuple

from pycudnnrnn import _arrays
from pycudnnrnn._arrays import ArrayKind, ArrayT
from pycudnnrnn._checks import check_bool
from pycudnnrnn.engines import Engine, Reserve
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, StateError
from pycudnnrnn.ops._take import Taker, take_params
from pycudnnrnn.passes import UPSTREAM, Arrays, Name, Slot
from pycudnnrnn.spec import RNNSpec


def shapes(owner: Any, names: tuple[str, ...]) -> str:
    """Write the shapes of an object's arrays, or tuples of arrays; None is left out."""

    def text(value: Any) -> str:
        return f"({', '.join(map(text, value))})" if isinstance(value, tuple) else str(list(value.shape))

    values = ((name, getattr(owner, name)) for name in names)
    return ", ".join(f"{name} {text(value)}" for name, value in values if value is not None)


@dataclasses.dataclass(frozen=True, repr=False)
class Gradients(Generic[ArrayT]):
    """Gradients of a forward's arguments, each shaped as its argument.

    `input_c` is None but for LSTM; `params` is None unless `Forward.backward` made it.
    """

    input: ArrayT
    input_h: ArrayT
    input_c: ArrayT | Any
    params: Any | None = None

    _shown: ClassVar[tuple[str, ...]] = ("input", "input_h", "input_c", "params")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {shapes(self, self._shown)}>"


class Names(NamedTuple):
    """What a caller calls the arguments of a forward and of its backward, for error texts."""

    x: str = "input_data"
    hx: str = "input_h"
    cx: str = "input_c"
    training: str = "is_training"
    dy: str = "d_output"
    dhy: str = "d_output_h"
    dcy: str = "d_output_c"


OP_NAMES: Final = Names()


class Call(NamedTuple):
    """One checked call: who runs it, on what, and how its arrays are laid out."""

    engine: Engine
    spec: RNNSpec
    slots: Mapping[Name, Slot]
    kind: ArrayKind
    libraries: frozenset[str]
    inputs: Arrays
    """What a backward reads again."""

    def streams(self, *arrays: Any) -> contextlib.AbstractContextManager[Any]:
        """Put the engine's work on the caller's current stream; `arrays` are what came since the call was made."""
        return _arrays.streams(self.engine, self.kind.library, self.libraries | _arrays.libraries_of(*arrays))

    def to_caller(self, array: Any | None) -> Any:
        return None if array is None else _arrays.to_caller(array, self.kind)


class Forward(Generic[ArrayT]):
    """The results of a forward, and its backward.

    `output`, `output_h` and `output_c` (None but for LSTM) are the caller's kind of array. The arrays passed to the
    forward, params among them, and `output` must keep their values until the backward is done: cuDNN reads them again.

    A backward uses up what the forward kept, unless `retain=True` made it work on a copy.
    """

    _shown: ClassVar[tuple[str, ...]] = ("output", "output_h", "output_c")

    def __init__(self, call: Call, output: Any, output_h: Any, output_c: Any | None, reserve: Reserve | None) -> None:
        results = output, output_h, output_c
        if call.kind.library not in _arrays.NATIVE:
            results = tuple(map(call.to_caller, results))
        self.output: ArrayT = results[0]
        self.output_h: ArrayT = results[1]
        self.output_c: ArrayT | Any = results[2]  # Any: an LSTM's caller need not ask whether it is None
        self._call = call
        self._reserve = reserve
        self._kept = reserve is not None
        self._read_again = call.inputs | {"y": output} if self._kept else {}
        self._worked: Reserve | None = None

    def backward_data(
        self, d_output: Any = None, d_output_h: Any = None, d_output_c: Any = None, *, retain: bool = False
    ) -> Gradients[ArrayT]:
        """Return the gradients of input and initial states, given those of the results; None stands for zeros.

        Shapes:
            as the results; the gradients as the forward's arguments, 0 in padding.

        Raises:
            StateError: the forward kept no reserve, or an earlier backward used it up.
            ArgumentError: a gradient whose shape, dtype or device is not its result's, or none at all: there is no
                loss here to begin from, as torch has, and from zeros come zeros.
        """
        return self._backward_data(d_output, d_output_h, d_output_c, retain=retain, names=OP_NAMES)

    def _backward_data(
        self, d_output: Any, d_output_h: Any, d_output_c: Any, *, retain: bool, names: Names
    ) -> Gradients[ArrayT]:
        call = self._call
        check_bool("retain", retain)
        given = dict(zip(UPSTREAM, (d_output, d_output_h, d_output_c), strict=True))
        words = {name: getattr(names, name) for name, array in given.items() if array is not None}
        with call.streams(*given.values()):
            found, _ = Taker(call.engine, call.spec, call.slots, words)(*map(given.get, words))
            upstream = dict.fromkeys(UPSTREAM) | found
            if self._reserve is None:
                raise StateError(
                    "the reserve was used up by an earlier backward: give that one retain=True"
                    if self._kept
                    else f"this forward kept no reserve: run it with {names.training}=True or keep_reserve=True"
                )
            if not words:
                some = f"{names.dy}, {names.dhy} or {names.dcy} (LSTM)"
                raise ArgumentError(names.dy, f"the loss's gradient of at least one result: {some}", "none of them")
            worked = self._reserve.copy() if retain else self._reserve
            try:
                gradients = worked.backward_data(*upstream.values())
            finally:  # a failure before the reserve was touched (no memory, say) leaves everything as it was
                if worked.touched and not retain:
                    self._reserve = None
            self._worked = worked
            return Gradients(*map(call.to_caller, gradients))

    def backward_weights(self, out: Any = None, accumulate: bool = False) -> Any:
        """Return the gradient of params, after the latest `backward_data`.

        It is written into `out`, or with `accumulate` added there; without `out` it is a new buffer. Elements that are
        padding of the layout get 0, or stay as they are with `accumulate`. Where memory runs out, nothing was added.

        Shapes:
            [params_size].

        Raises:
            StateError: no `backward_data` came before.
            ArgumentError: an `out` that cannot hold the gradient, one that overlaps what a backward reads again (the
                forward's arguments and `output`), or `accumulate` without it.
        """
        if self._worked is None:
            raise StateError("backward_weights before backward_data: it reads what that leaves, as in cuDNN")
        return self._backward_weights(self._native_out(out, accumulate), out, accumulate)

    def _backward_weights(self, native: Any | None, out: Any, accumulate: bool) -> Any:
        """Write the gradient of params into `native`, which is the engine's array over `out`."""
        call, worked = self._call, self._worked
        with call.streams(out):
            if native is None:
                params = call.inputs["params"]
                native = _arrays.new(params.shape, params.dtype, call.engine.xp)
            worked.backward_weights(native, accumulate=accumulate)  # type: ignore[union-attr]  # there is one by now
            return call.to_caller(native) if out is None else out

    def _native_out(self, out: Any, accumulate: Any) -> Any | None:
        """Return the engine's array over the caller's `out`, checked; None where there is none."""
        call = self._call
        if check_bool("accumulate", accumulate) and out is None:
            raise ArgumentError("accumulate", "False without out: there is nothing to add to", accumulate)
        if out is None:
            return None
        with call.streams(out):  # an array of another library is brought to the engine's
            native = take_params(call.engine, call.spec, "out", out, written=True)
        for name, array in self._read_again.items():
            if array is not None and _arrays.overlap(native, array):
                word = "output" if name == "y" else getattr(OP_NAMES, name, name)
                raise ArgumentError("out", "a buffer of its own", f"memory that overlaps {word}")
        return native

    def backward(
        self,
        d_output: Any = None,
        d_output_h: Any = None,
        d_output_c: Any = None,
        *,
        out: Any = None,
        accumulate: bool = False,
        retain: bool = False,
    ) -> Gradients[ArrayT]:
        """Return all gradients: `backward_data`, then `backward_weights`. `out` is checked before either."""
        upstream = d_output, d_output_h, d_output_c
        return self._backward(upstream, out=out, accumulate=accumulate, retain=retain, names=OP_NAMES)

    def _backward(
        self, upstream: tuple[Any, Any, Any], *, out: Any, accumulate: bool, retain: bool, names: Names
    ) -> Gradients[ArrayT]:
        native = self._native_out(out, accumulate)
        data = self._backward_data(*upstream, retain=retain, names=names)
        return dataclasses.replace(data, params=self._backward_weights(native, out, accumulate))

    def __repr__(self) -> str:
        backward = "can follow" if self._reserve is not None else "has run" if self._kept else "is not possible"
        where = f"{self._call.spec.dtype}, {self._call.kind.library} on {self._call.kind.device}"
        return f"<{type(self).__name__}: {shapes(self, self._shown)}; {where}; a backward {backward}>"

    def __reduce__(self) -> Any:
        raise ArgumentTypeError(
            "object to pickle", "only its results: a forward with its reserve stays where it ran", "Forward"
        )
