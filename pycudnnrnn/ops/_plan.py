"""A call prepared once and made often, on the caller's own buffers."""

from __future__ import annotations

from typing import Any

from pycudnnrnn import _arrays
from pycudnnrnn._arrays import ArrayKind
from pycudnnrnn._checks import check_bool
from pycudnnrnn.engines import Engine, EnginePlan
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.ops._forward import Call, check_params
from pycudnnrnn.ops._graph import Graph
from pycudnnrnn.passes import BACKWARD_DATA, BACKWARD_WEIGHTS, FORWARD, PASSES, Arrays, Name, Pass
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import Algorithm, MathType, RNNSpec


class Plan:
    """One (spec, T, B, lengths, training) with its sizes asked and its native objects made.

    Its calls are cuDNN's: they write into the arrays that they are given, and check them. `op.prepare` makes it.
    `reserve` is a uint8 array of `reserve_nbytes`: a training forward fills it, `backward_data` rewrites it,
    `backward_weights` reads it then. A plan refuses to pickle.

    On cuDNN the calls allocate nothing: the workspace is the plan's own, so that a plan is for one thread and one
    stream at a time; on another stream a call waits for the one before. The NumPy engine takes scratch in each call and
    gives it back: `workspace_nbytes` is 0 there, and `op.memory` says how much that is.

    Calls without dropout can be captured by a graph of your own. Keep the plan as long as that, and its runs in order
    with the plan's calls: nothing here knows of them.

    On a GPU every array has to begin at a multiple of 16 bytes, as new ones do and slices may not: no document says
    that cuDNN reads others. An op's own calls copy those.

    Where cuDNN allows NULL, None is allowed: hx and cx (zeros), hy and cy, dhx and dcx (not wanted).

    Source: cudnnRNNForward, cudnnRNNBackwardData_v8, cudnnRNNBackwardWeights_v8 (cudnn_adv.h, 9.28).
    """

    def __init__(self, engine: Engine, spec: RNNSpec, schedule: Schedule, native: EnginePlan, training: bool) -> None:
        self._engine, self._spec, self._schedule, self._native = engine, spec, schedule, native
        self._training = training
        self._held: tuple[Any, ArrayKind, Any] | None = None
        self._forward, self._backward_data, self._backward_weights = map(native.short_way, PASSES)
        self.workspace_nbytes = native.workspace_nbytes
        self.reserve_nbytes = native.reserve_nbytes

    @property
    def algo(self) -> Algorithm:
        """The algorithm that runs."""
        return self._native.spec.untuned_algo

    @property
    def math_type(self) -> MathType:
        return self._native.spec.math_type

    def hold(self, params: Any | None) -> None:
        """Promise that `params` keeps its values: calls with this same object may use what was read from it here.

        After a change hold it again; None ends the promise. Any other object is read afresh, as always. It pays on the
        NumPy engine with 16-bit params, which are widened once and not at each call; what needs no copy is not copied.

        Raises:
            ArgumentError: not a params buffer of this plan.
        """
        self._held = None
        if params is not None:
            kind = _arrays.kind_of("params", params)
            self._held = params, kind, self._params("params", params, kind)
        self._native.hold(self._held and self._held[2])

    def forward(self, params: Any, x: Any, hx: Any, cx: Any, y: Any, hy: Any, cy: Any, reserve: Any = None) -> None:
        """Write the output to `y` and the final states to `hy` and `cy`.

        Shapes:
            as in the op's forward; reserve: [reserve_nbytes], uint8, in training.

        Raises:
            ArgumentError: an array of another shape, dtype or device, an output that shares memory, or no reserve.
        """
        given = (params, x, hx, cx, y, hy, cy, reserve if self._training else None)
        if self._forward is None or not self._forward(given):
            self._run(FORWARD, given)

    def backward_data(
        self,
        params: Any,
        y: Any,
        dy: Any,
        hx: Any,
        dhy: Any,
        dhx: Any,
        cx: Any,
        dcy: Any,
        dcx: Any,
        dx: Any,
        reserve: Any,
    ) -> None:
        """Write the gradients of x, hx and cx to `dx`, `dhx` and `dcx`; `dhy` and, for LSTM, `dcy` must be given.

        Raises:
            ArgumentError: an array that cannot be used, or a plan without training.
        """
        given = (params, y, dy, hx, dhy, dhx, cx, dcy, dcx, dx, reserve)
        if self._backward_data is None or not self._backward_data(given):
            self._run(BACKWARD_DATA, given)

    def backward_weights(self, x: Any, hx: Any, y: Any, d_params: Any, reserve: Any, accumulate: bool = False) -> None:
        """Write the gradient of params to `d_params`, or add it there; after `backward_data`.

        Raises:
            ArgumentError: an array that cannot be used, or a plan without training.
        """
        check_bool("accumulate", accumulate)
        given = (x, hx, y, d_params, reserve)
        if self._backward_weights is None or not self._backward_weights(given, accumulate):
            self._run(BACKWARD_WEIGHTS, given, accumulate=accumulate)

    def _run(self, which: Pass, given: tuple[Any, ...], *, accumulate: bool = False) -> None:
        arrays: Arrays = dict(zip(which.names, given, strict=True))
        kind = self._kind(which.data, arrays[which.data])
        with _arrays.streams(self._engine, kind, _arrays.libraries_of(kind, *given)):
            call = Call(self._engine, self._spec, self._schedule, kind, frozenset())
            native: Arrays = {}
            for name, array in arrays.items():
                written = name in which.written
                if name in {"params", "d_params"}:
                    native[name] = self._params(name, array, kind, writable=written)
                elif name == "reserve":
                    native[name] = self._reserve(kind, array) if self._training or which is not FORWARD else None
                elif array is None and name in {"dhy", "dcy"} and (name == "dhy" or self._spec.has_cell_state):
                    raise ArgumentError(name, "an array: cuDNN is not known to take NULL", None)
                else:
                    native[name] = call.array(name, array, name, writable=written)
            self._check_apart(native, which.written)
            self._native.run(which, native, accumulate=accumulate)

    def capture(self, params: Any, *, carry_state: bool = False) -> Graph:
        """Capture the forward, and in training both backward passes after it, as one CUDA graph on buffers of its own.

        `params` is read where it is at every replay; the graph keeps it alive. With `carry_state` a replay leaves its
        final states in `hx` and `cx` too, so that the next one goes on from there. The work runs once before it is
        captured; dropout does not move by that. What cannot be captured is refused, and nothing is changed then.

        Raises:
            CaptureError: a plan on the CPU, an algorithm that cuDNN cannot capture, or a stream that is being captured.
            ArgumentError: params that cannot be used, JAX's among them, or `carry_state` with both directions.
        """
        if check_bool("carry_state", carry_state) and self._spec.num_dirs == 2:
            raise ArgumentError("carry_state", "False with both directions: one of them starts at the end", carry_state)
        kind = self._kind("params", params)
        if kind.library == "jax" and kind.device != "cpu":
            expected = "a CuPy array or a torch tensor: the graph's arrays are of its kind, and nobody writes to JAX's"
            raise ArgumentError("params", expected, "a JAX array")
        with _arrays.streams(self._engine, kind, frozenset({kind.library})):
            native = check_params("params", params, kind, self._spec, self._engine)
            return Graph(self._native.capture(native, carry_state=carry_state), self._schedule, kind, params)

    def _kind(self, name: str, data: Any) -> ArrayKind:
        kind, device = _arrays.kind_of(name, data), self._engine.device
        if kind.device != device:
            raise ArgumentError(name, f"an array on {device}, which the plan is for", kind.device, "device")
        return kind

    def _params(self, name: str, params: Any, kind: ArrayKind, *, writable: bool = False) -> Any:
        if self._held is not None and params is self._held[0] and kind == self._held[1] and not writable:
            return self._held[2]
        return check_params(name, params, kind, self._spec, self._engine, writable=writable)

    def _reserve(self, kind: ArrayKind, reserve: Any) -> Any:
        if not self._training:
            raise ArgumentError("is_training", "True when the plan was made: it has no reserve", False)
        if reserve is None:
            raise ArgumentError("reserve", f"a uint8 array of {self.reserve_nbytes} elements", None)
        reserve = _arrays.to_engine("reserve", reserve, kind, None, self._engine.xp, writable=True)
        if reserve.dtype != "uint8" or reserve.shape != (self.reserve_nbytes,) or not reserve.flags.c_contiguous:
            got = f"{reserve.dtype} of {tuple(reserve.shape)}"
            raise ArgumentError("reserve", f"a contiguous uint8 array of {self.reserve_nbytes} elements", got)
        return reserve

    def _check_apart(self, arrays: Arrays, written: frozenset[Name]) -> None:
        """Refuse what is not contiguous, and an output that shares memory with anything else."""
        shared = self._engine.xp.may_share_memory
        others: list[Any] = []
        for name, array in sorted(arrays.items(), key=lambda pair: pair[0] in written):
            if array is None:
                continue
            if not array.flags.c_contiguous:
                raise ArgumentError(name, "a contiguous array", f"strides {array.strides}")
            if name in written and any(shared(array, other) for other in others):
                raise ArgumentError(name, "memory of its own", "memory that another argument has too")
            others.append(array)

    def __reduce__(self) -> Any:
        raise ArgumentTypeError("object to pickle", "the op: a plan holds native objects of this process", "Plan")
