"""The result of a forward, with its backward pass."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, NamedTuple

from pycudnnrnn import _arrays
from pycudnnrnn._arrays import ArrayKind, ArrayT
from pycudnnrnn._checks import check_bool, with_hints
from pycudnnrnn.engines import Engine, Reserve, on_callers_stream
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, StateError
from pycudnnrnn.ops._take import OP_WORDS, Taker, take_params
from pycudnnrnn.passes import UPSTREAM, Arrays, Name, Slot
from pycudnnrnn.spec import RNNSpec


def shapes(owner: Any, names: tuple[str, ...]) -> str:
    """Return the shapes of an object's arrays, or tuples of arrays, as text. None is left out."""

    def text(value: Any) -> str:
        if isinstance(value, tuple):
            return f"({', '.join(map(text, value))})"
        return "zeros" if value is None else str(list(value.shape))

    values = ((name, getattr(owner, name)) for name in names)
    return ", ".join(f"{name} {text(value)}" for name, value in values if value is not None)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)  # arrays have no one truth value to compare by
class Gradients(Generic[ArrayT]):
    """The gradients of a forward's arguments. Each has the shape of its argument.

    - `input`: of `input_data`; 0 after the end of a sequence.
    - `input_h`: of `input_h`.
    - `input_c`: of `input_c` (LSTM only, otherwise None).
    - `params`: of `params`, from `Forward.backward`; None from `backward_data`.
    """

    input: ArrayT
    input_h: ArrayT
    input_c: ArrayT | Any
    params: Any = None

    _shown: ClassVar[tuple[str, ...]] = ("input", "input_h", "input_c", "params")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {shapes(self, self._shown)}>"


class Call(NamedTuple):
    """One checked call: its engine, its RNN, and its arrays."""

    engine: Engine
    spec: RNNSpec
    slots: Mapping[Name, Slot]
    kind: ArrayKind
    libraries: frozenset[str]
    read_again: Arrays
    """The arrays that a backward reads again: the inputs and y."""
    reserve: Reserve | None

    def streams(self, *arrays: Any) -> contextlib.AbstractContextManager[Any]:
        """Put the engine's work on the caller's current stream. `arrays`: more arrays, such as upstream gradients."""
        return on_callers_stream(self.engine, self.kind.library, self.libraries | _arrays.libraries_of(*arrays))

    def to_caller(self, array: Any | None) -> Any:
        return None if array is None else _arrays.to_caller(array, self.kind)


class Forward(Generic[ArrayT]):
    """The results of a forward, with the methods of its backward pass.

    - `output`: the output of the last layer at each step; 0 after the end of a sequence.
    - `output_h`: the final h of each layer and direction. For a sequence of length 0 it is the initial h.
    - `output_c`: the final c of each layer and direction (LSTM only, otherwise None).

    All are arrays of the same kind as `input_data`. Do not change `output`, `params` or the other arguments before the
    backward pass is done, because it reads them again.

    A backward pass uses up the reserve that the forward kept. With `retain=True` it works on a copy, and another one
    can follow.
    """

    _shown: ClassVar[tuple[str, ...]] = ("output", "output_h", "output_c")

    def __init__(self, call: Call, output: ArrayT, output_h: ArrayT, output_c: ArrayT | Any) -> None:
        self.output, self.output_h = output, output_h
        self.output_c = output_c  # its type has Any, so that an LSTM's caller need not ask if it is None
        self._call = call
        self._worked: Reserve | None = None

    def backward_data(
        self, d_output: Any = None, d_output_h: Any = None, d_output_c: Any = None, *, retain: bool = False
    ) -> Gradients[ArrayT]:
        """Compute the gradients of the input and the initial states. At least one upstream gradient is needed.

        Args:
            d_output: gradient of the loss for `output`, in its shape. None: zeros. Default: None.
            d_output_h: gradient of the loss for `output_h`, in its shape. None: zeros. Default: None.
            d_output_c: gradient of the loss for `output_c`, in its shape (LSTM only). None: zeros. Default: None.
            retain: whether to keep the reserve for another backward pass, by working on a copy. Default: False.

        Returns:
            The `Gradients`, with `params` None. `backward_weights` can follow.

        Raises:
            StateError: the forward kept no reserve, or an earlier backward pass used it up.
            ArgumentError: a gradient of another shape, dtype or device than its result, or no gradient at all.
        """
        call, reserve = self._call, self._call.reserve
        check_bool("retain", retain)
        gradients = dict(zip(UPSTREAM, (d_output, d_output_h, d_output_c), strict=True))
        words = {name: OP_WORDS[name] for name, array in gradients.items() if array is not None}
        with call.streams(*gradients.values()):
            checked, _ = Taker(call.engine, call.spec, call.slots, words)(*map(gradients.get, words))
            upstream = dict.fromkeys(UPSTREAM) | checked
            if reserve is None:
                raise StateError("this forward kept no reserve: run it in training, or with keep_reserve=True")
            if reserve.touched:
                raise StateError("the reserve was used up by an earlier backward: give that one retain=True")
            if not words:
                raise ArgumentError("d_output", "the loss's gradient of at least one result", "none of them")
            worked = reserve.copy() if retain else reserve
            self._worked = None  # if this fails, there is nothing to compute the gradient of params from
            results = worked.backward_data(*upstream.values())
            self._worked = worked
            return Gradients(*map(call.to_caller, results))

    def backward_weights(self, out: Any = None, accumulate: bool = False) -> Any:
        """Compute the gradient of params. Call `backward_data` first, as in cuDNN.

        Args:
            out: the buffer to write the gradient of params to, [params_size()]. None: a new buffer. Default: None.
            accumulate: whether to add the gradient of params to the values in `out`. Default: False.

        Returns:
            `out`, or the new buffer. Padding of the layout gets 0; with `accumulate` it keeps its values. If the call
            fails because memory runs out, it has added nothing.

        Raises:
            StateError: `backward_data` was not called before.
            ArgumentError: an `out` that cannot hold the gradient or shares memory with `output` or an argument of the
                forward, or `accumulate` without `out`.
        """
        if self._worked is None:
            raise StateError("backward_weights before backward_data: it reads what that leaves, as in cuDNN")
        return self._backward_weights(self._native_out(out, accumulate), out, accumulate)

    def _backward_weights(self, native: Any | None, out: Any, accumulate: bool) -> Any:
        """Write the gradient of params into `native`, the engine's array over `out`."""
        call, worked = self._call, self._worked
        with call.streams(out):
            if native is None:
                params = call.read_again["params"]
                native = _arrays.new(params.shape, params.dtype, call.engine.xp)
            worked.backward_weights(native, accumulate=accumulate)  # type: ignore[union-attr]  # set by `backward_data`
            return call.to_caller(native) if out is None else out

    def _native_out(self, out: Any, accumulate: Any) -> Any | None:
        """Return the engine's array over the caller's `out`, checked; None without an `out`."""
        call = self._call
        if check_bool("accumulate", accumulate) and out is None:
            raise ArgumentError("accumulate", "False without out: there is nothing to add to", accumulate)
        if out is None:
            return None
        with call.streams(out):  # an array of another library is brought to the engine's
            native = take_params(call.engine, call.spec, "out", out, written=True)
        for name, array in call.read_again.items() if call.reserve else ():
            if array is not None and _arrays.overlap(native, array):
                raise ArgumentError("out", "a buffer of its own", f"memory that overlaps {OP_WORDS.get(name, name)}")
        return native

    @with_hints
    def backward(
        self, d_output: Any = None, d_output_h: Any = None, d_output_c: Any = None, *, out: Any = None,
        accumulate: bool = False, retain: bool = False,
    ) -> Gradients[ArrayT]:  # fmt: skip
        """Compute all gradients: run `backward_data`, then `backward_weights`.

        Args:
            d_output: gradient of the loss for `output`, in its shape. None: zeros. Default: None.
            d_output_h: gradient of the loss for `output_h`, in its shape. None: zeros. Default: None.
            d_output_c: gradient of the loss for `output_c`, in its shape (LSTM only). None: zeros. Default: None.
            out: the buffer to write the gradient of params to, [params_size()]. None: a new buffer. Default: None.
            accumulate: whether to add the gradient of params to the values in `out`. Default: False.
            retain: whether to keep the reserve for another backward pass, by working on a copy. Default: False.

        Returns:
            The `Gradients`; its `params` is `out`, or the new buffer.

        Raises:
            StateError: the forward kept no reserve, or an earlier backward pass used it up.
            ArgumentError: an upstream gradient of another shape, dtype or device than its result; no upstream gradient;
                an `out` that cannot hold the gradient, or that shares memory with `output` or an argument of the
                forward; or `accumulate` without `out`.
        """
        native = self._native_out(out, accumulate)
        data = self.backward_data(d_output, d_output_h, d_output_c, retain=retain)
        return dataclasses.replace(data, params=self._backward_weights(native, out, accumulate))

    def __repr__(self) -> str:
        reserve = self._call.reserve
        backward = "is not possible" if reserve is None else "has run" if reserve.touched else "can follow"
        where = f"{self._call.spec.dtype}, {self._call.kind.library} on {self._call.kind.device}"
        return f"<{type(self).__name__}: {shapes(self, self._shown)}; {where}; a backward {backward}>"

    def __reduce__(self) -> Any:
        raise ArgumentTypeError("object to pickle", "its results: a forward stays where it ran", "Forward")
