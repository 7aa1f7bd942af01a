"""What a forward returns: its results, and the way back through it."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, ClassVar, Final, Generic, NamedTuple

from pycudnnrnn import _arrays
from pycudnnrnn._arrays import ArrayT, Kind
from pycudnnrnn._checks import check_bool
from pycudnnrnn.engines import Engine, Reserve
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, LayoutError, StateError
from pycudnnrnn.layout import arithmetic_layout
from pycudnnrnn.schedule import Schedule
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

    input: str = "input_data"
    input_h: str = "input_h"
    input_c: str = "input_c"
    training: str = "is_training"
    d_output: str = "d_output"
    d_output_h: str = "d_output_h"
    d_output_c: str = "d_output_c"


OP_NAMES: Final = Names()


class Call(NamedTuple):
    """One checked call: who runs it, on what, and how its arrays are laid out."""

    engine: Engine
    spec: RNNSpec
    schedule: Schedule
    kind: Kind
    libraries: frozenset[str]
    params: Any
    inputs: tuple[Any, Any | None, Any | None] = (None, None, None)
    """input_data, input_h and input_c, which a backward reads again."""

    @property
    def data_axes(self) -> str:
        return "[T, B, {}]" if self.schedule.time_major else "[B, T, {}]"

    def streams(self, *arrays: Any) -> contextlib.AbstractContextManager[Any]:
        """Put the engine's work on the caller's current stream; `arrays` are what came since the call was made."""
        return _arrays.streams(self.engine, self.kind, self.libraries | _arrays.libraries_of(self.kind, *arrays))

    def data(self, name: str, data: Any, width: int, *, writable: bool = False) -> Any:
        """Check an array over time and batch, and return the engine's over it."""
        data = _arrays.to_engine(name, data, self.kind, self.spec.dtype, self.engine.xp, writable=writable)
        _arrays.check_shape(name, data, self.schedule.data_shape(width), self.data_axes.format(width))
        return data

    def states(
        self, name_h: str, h: Any | None, name_c: str, c: Any | None, *, writable: bool = False
    ) -> tuple[Any | None, Any | None]:
        """Check a pair of state-shaped arrays, either of which may be None."""
        spec = self.spec
        if c is not None and not spec.has_cell_state:
            raise ArgumentError(name_c, f"None: rnn_mode {str(spec.mode)!r} has no c", "an array")
        h = self.array(name_h, h, spec.state_size, "num_proj" if spec.num_proj else "num_units", writable=writable)
        return h, self.array(name_c, c, spec.num_units, "num_units", writable=writable)

    def array(self, name: str, state: Any | None, width: int, axis: str, *, writable: bool) -> Any | None:
        if state is None:
            return None
        state = _arrays.to_engine(name, state, self.kind, self.spec.dtype, self.engine.xp, writable=writable)
        shape = (self.spec.num_pseudo_layers, self.schedule.B, width)
        _arrays.check_shape(name, state, shape, f"[L * D, B, {axis}]")
        return state

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
        self.output: ArrayT = call.to_caller(output)
        self.output_h: ArrayT = call.to_caller(output_h)
        self.output_c: ArrayT | Any = call.to_caller(output_c)  # Any: an LSTM's caller need not ask whether it is None
        self._call = call
        self._reserve = reserve
        self._kept = reserve is not None
        self._read_again = (call.params, *call.inputs, output) if self._kept else ()
        self._worked: Reserve | None = None

    def backward_data(
        self, d_output: Any = None, d_output_h: Any = None, d_output_c: Any = None, *, retain: bool = False
    ) -> Gradients[ArrayT]:
        """Return the gradients of input and initial states, given those of the results; None stands for zeros.

        Shapes:
            as the results; the gradients as the forward's arguments, 0 in padding.

        Raises:
            StateError: the forward kept no reserve, or an earlier backward used it up.
            ArgumentError: a gradient whose shape, dtype or device is not its result's.
        """
        return self._backward_data(d_output, d_output_h, d_output_c, retain=retain, names=OP_NAMES)

    def _backward_data(
        self, d_output: Any, d_output_h: Any, d_output_c: Any, *, retain: bool, names: Names
    ) -> Gradients[ArrayT]:
        call = self._call
        check_bool("retain", retain)
        with call.streams(d_output, d_output_h, d_output_c):
            if d_output is not None:
                d_output = call.data(names.d_output, d_output, call.spec.output_size)
            dh, dc = call.states(names.d_output_h, d_output_h, names.d_output_c, d_output_c)
            if self._reserve is None:
                raise StateError(
                    "the reserve was used up by an earlier backward: give that one retain=True"
                    if self._kept
                    else f"this forward kept no reserve: run it with {names.training}=True or keep_reserve=True"
                )
            worked = self._reserve.copy() if retain else self._reserve
            try:
                dx, dhx, dcx = call.engine.backward_data(worked, d_output, dh, dc)
            finally:  # a failure before the reserve was touched (no memory, say) leaves everything as it was
                if worked.touched and not retain:
                    self._reserve = None
            self._worked = worked
            return Gradients(call.to_caller(dx), call.to_caller(dhx), call.to_caller(dcx))

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
        call = self._call
        if self._worked is None:
            raise StateError("backward_weights before backward_data: it reads what that leaves, as in cuDNN")
        with call.streams(out):
            native = self._native_out(out, accumulate)
            if native is None:
                native = _arrays.new(call.params.shape, call.params.dtype, call.engine.xp)
            call.engine.backward_weights(self._worked, native, accumulate=accumulate)
            return call.to_caller(native) if out is None else out

    def _native_out(self, out: Any, accumulate: Any) -> Any | None:
        """Return the engine's array over the caller's `out`, checked; None where there is none."""
        call = self._call
        if check_bool("accumulate", accumulate) and out is None:
            raise ArgumentError("accumulate", "False without out: there is nothing to add to", accumulate)
        if out is None:
            return None
        native = check_params("out", out, call.kind, call.spec, call.engine, writable=True)
        call.engine.check_gradient(native)
        for name, array in zip(
            ("params", "input_data", "input_h", "input_c", "output"), self._read_again, strict=False
        ):
            if array is not None and call.engine.xp.may_share_memory(native, array):
                raise ArgumentError("out", "a buffer of its own", f"memory that overlaps {name}")
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
        self._native_out(out, accumulate)
        data = self._backward_data(*upstream, retain=retain, names=names)
        return dataclasses.replace(data, params=self.backward_weights(out, accumulate))

    def __repr__(self) -> str:
        backward = "can follow" if self._reserve is not None else "has run" if self._kept else "is not possible"
        where = f"{self._call.spec.dtype}, {self._call.kind.library} on {self._call.kind.device}"
        return f"<{type(self).__name__}: {shapes(self, self._shown)}; {where}; a backward {backward}>"

    def __reduce__(self) -> Any:
        raise ArgumentTypeError(
            "object to pickle", "only its results: a forward with its reserve stays where it ran", "Forward"
        )


def check_params(name: str, params: Any, kind: Kind, spec: RNNSpec, engine: Engine, *, writable: bool = False) -> Any:
    """Return the engine's array over a params buffer: flat, contiguous, of its layout's size.

    Raises:
        ArgumentError: not such a buffer.
        LayoutError: a buffer laid out by arithmetic, where the engine's layout differs in size.
    """
    params = _arrays.to_engine(name, params, kind, spec.dtype, engine.xp, writable=writable)
    size = engine.layout(spec).size
    predicted = arithmetic_layout(spec).size if tuple(params.shape) != (size,) else size
    if predicted != size and tuple(params.shape) == (predicted,):
        raise LayoutError(
            f"{name} has the {predicted} elements of the arithmetic layout, and {engine.name}'s layout has {size}: "
            "move_params brings a buffer from one to the other"
        )
    _arrays.check_shape(name, params, (size,), "one flat buffer of params_size() elements")
    if not params.flags.c_contiguous:
        raise ArgumentError(name, "a contiguous buffer", f"strides {params.strides}")
    return params
