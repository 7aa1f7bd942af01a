"""A call prepared once and made often, on the caller's own buffers."""

from __future__ import annotations

from typing import Any

from pycudnnrnn import _arrays
from pycudnnrnn._checks import check_bool
from pycudnnrnn.engines import Engine, EnginePlan
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.ops._graph import Graph
from pycudnnrnn.ops._take import Taker, take_params
from pycudnnrnn.passes import BACKWARD_DATA, BACKWARD_WEIGHTS, FORWARD, PASSES, Pass, slots
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
        self._held: tuple[Any, Any] | None = None
        self.workspace_nbytes = native.workspace_nbytes
        self.reserve_nbytes = native.reserve_nbytes
        reserve_nbytes = native.reserve_nbytes if training else None
        wanted = slots(spec, schedule, engine.layout(spec).size, reserve_nbytes)
        self._take = {
            which: Taker(engine, spec, wanted, {n: n for n in which.names}, written=which.written, in_place=True)
            for which in PASSES
        }

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
            self._held = params, take_params(self._engine, self._spec, "params", params)
        self._native.hold(self._held and self._held[1])

    def forward(self, params: Any, x: Any, hx: Any, cx: Any, y: Any, hy: Any, cy: Any, reserve: Any = None) -> None:
        """Write the output to `y` and the final states to `hy` and `cy`.

        Shapes:
            as in the op's forward; reserve: [reserve_nbytes], uint8, in training.

        Raises:
            ArgumentError: an array of another shape, dtype or device, an output that shares memory, or no reserve.
        """
        self._run(FORWARD, (params, x, hx, cx, y, hy, cy, reserve if self._training else None))

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
        self._run(BACKWARD_DATA, (params, y, dy, hx, dhy, dhx, cx, dcy, dcx, dx, reserve))

    def backward_weights(self, x: Any, hx: Any, y: Any, d_params: Any, reserve: Any, accumulate: bool = False) -> None:
        """Write the gradient of params to `d_params`, or add it there; after `backward_data`.

        Raises:
            ArgumentError: an array that cannot be used, or a plan without training.
        """
        self._run(BACKWARD_WEIGHTS, (x, hx, y, d_params, reserve), accumulate=check_bool("accumulate", accumulate))

    def _run(self, which: Pass, given: tuple[Any, ...], *, accumulate: bool = False) -> None:
        if which is not FORWARD and not self._training:
            raise ArgumentError("is_training", "True when the plan was made: it has no reserve", False)
        if self._held is not None:
            given = tuple(self._held[1] if array is self._held[0] else array for array in given)
        library = _arrays.library_of(given[which.data])
        with _arrays.streams(self._engine, library, _arrays.libraries_of(*given)):
            arrays, at = self._take[which](*given)
            self._native.run(which, arrays, at, accumulate=accumulate)

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
        kind = _arrays.kind_of("params", params)
        if kind.device != "cpu":
            _arrays.check_mutable("params", kind, "the graph's arrays are of its kind")
        with _arrays.streams(self._engine, kind.library, frozenset({kind.library})):
            native = take_params(self._engine, self._spec, "params", params)
            return Graph(self._native.capture(native, carry_state=carry_state), self._schedule, kind, params)

    def __reduce__(self) -> Any:
        raise ArgumentTypeError("object to pickle", "the op: a plan holds native objects of this process", "Plan")
