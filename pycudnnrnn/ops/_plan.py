"""A call that is prepared once and repeated, on the caller's buffers, or as one CUDA graph on buffers of its own."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, Final

from pycudnnrnn import _arrays, passes
from pycudnnrnn._arrays import ArrayKind
from pycudnnrnn._checks import check_bool
from pycudnnrnn.engines import Calls, Engine, EngineGraph, engine_for, on_callers_stream
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.ops._take import Taker, slots_on, take_params
from pycudnnrnn.passes import Name, Pass
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import Algorithm, MathType, RNNSpec

_STAY: Final = frozenset({"numpy", "cupy"})
"""The libraries whose arrays keep their memory."""


Check = Callable[[], None] | None
"""Raises an error if the op has another dropout than its plan or graph. None without dropout."""

Bound = tuple[tuple[Any, ...], str, frozenset[str], Callable[..., None]]
"""A pass on arrays that were checked: these, the library that determines its stream, all libraries, and the call."""


class Plan:
    """Prepared calls of an op with fixed sizes and lengths, on your own buffers. `op.prepare` returns it.

    - `workspace_nbytes`: bytes of the workspace, which the plan owns. On the NumPy engine it is 0: each call allocates
      its scratch memory (see `op.memory`).
    - `reserve_nbytes`: bytes of the reserve, which you own: a uint8 array [reserve_nbytes]. In training, `forward`
      fills it, then `backward_data` changes it, then `backward_weights` reads it.
      Only the plan that filled a reserve can read it; this is not checked.

    A plan keeps the NumPy or CuPy arrays of the last call of each pass alive. Where the next call has the same array
    object, it does not check it, and reads its present values. Other arrays are checked, and torch and JAX arrays
    always are. Do not change the shape, the memory or the writeable flag of an array object between calls.

    On cuDNN the calls allocate no memory. Use a plan from one thread at a time, and on one stream: it belongs to the
    stream that its first call runs on. A call on another stream raises an error, so prepare a plan for each stream.

    None is allowed where cuDNN allows NULL: for `hx` and `cx` (zeros), and for `hy`, `cy`, `dhx` and `dcx` (no result).
    Arrays of the cells without c take None for `cx`, `cy`, `dcy` and `dcx`. On a GPU each array must begin at a
    multiple of 16 bytes, and on the CPU `reserve` and `dx` at a multiple of an element's size. New arrays do; slices
    may not.

    You can capture calls without dropout in your own CUDA graph. Keep the plan alive as long as the graph, and do not
    let their runs overlap. Plans cannot be pickled.

    Letters: T steps, B sequences, I `input_size`, L `num_layers`, D directions (1 or 2), U `num_units`, and S for the
    width of h: `num_proj` with a projection, otherwise U.

    Source: cudnnRNNForward, cudnnRNNBackwardData_v8, cudnnRNNBackwardWeights_v8 (cudnn_adv.h, 9.28).
    """

    def __init__(
        self, engine: Engine, spec: RNNSpec, schedule: Schedule, native: Calls, training: bool, check: Check
    ) -> None:
        self._engine, self._spec, self._schedule = engine, spec, schedule
        self._native, self._training, self._check = native, training, check
        self.workspace_nbytes, self.reserve_nbytes = native.workspace_nbytes, native.reserve_nbytes
        self._last: dict[Pass, Bound] = {}
        reserve_nbytes = native.reserve_nbytes if training else None
        of_call = slots_on(engine, spec, schedule, reserve_nbytes)
        self._take = {
            which: Taker(engine, spec, of_call, {n: n for n in which.names}, written=which.written, in_place=True)
            for which in passes.PASSES
        }

    @property
    def algo(self) -> Algorithm:
        """The algorithm that runs: "auto" has been resolved."""
        return self._native.spec.untuned_algo

    @property
    def math_type(self) -> MathType:
        """The math type that runs."""
        return self._native.spec.math_type

    def hold(self, params: Any | None) -> None:
        """Promise that `params` will not change, so that calls with this buffer can reuse what was computed from it.

        This saves time on the NumPy engine: 16-bit params are converted once, matrices are packed once for the compiled
        kernels, and biases are added once. Other buffers that are passed to a call are read as usual.

        Args:
            params: the flat buffer of all weights and biases, [params_size()]. After changing its values, call `hold`
                again. None ends the promise.

        Raises:
            ArgumentError: an array that is not a params buffer of this plan.
        """
        native = None if params is None else take_params(self._engine, self._spec, "params", params)
        self._native.hold(native)

    def forward(self, params: Any, x: Any, hx: Any, cx: Any, y: Any, hy: Any, cy: Any, reserve: Any = None) -> None:
        """Run the forward: write the output to `y` and the final states to `hy` and `cy`.

        Args:
            params: the flat buffer of all weights and biases, [params_size()].
            x: the input, [T, B, I], or [B, T, I] with `time_major=False`.
            hx: the initial h of each layer and direction, [L * D, B, S], or None for zeros.
            cx: the initial c of each layer and direction, [L * D, B, U] (LSTM only), or None for zeros.
            y: receives the output, [T, B, D * S], or [B, T, D * S] with `time_major=False`.
            hy: receives the final h, [L * D, B, S], or None.
            cy: receives the final c, [L * D, B, U] (LSTM only), or None.
            reserve: the reserve, [reserve_nbytes], uint8. None if the plan is not for training. Default: None.

        Raises:
            ArgumentError: an array of another shape, dtype or device, or an output that shares memory with another
                array.
            ArgumentTypeError: None for an array that is needed, such as the reserve in training.
            StateError: the op's dropout state was set after the plan was prepared.
        """
        if self._check:
            self._check()
        self._run(passes.FORWARD, (params, x, hx, cx, y, hy, cy, reserve if self._training else None))

    def backward_data(
        self, params: Any, y: Any, dy: Any, hx: Any, dhy: Any, dhx: Any, cx: Any, dcy: Any, dcx: Any, dx: Any,
        reserve: Any,
    ) -> None:  # fmt: skip
        """Run the first backward pass: write the gradients of `x`, `hx` and `cx` to `dx`, `dhx` and `dcx`.

        Args:
            params: the flat buffer of all weights and biases, [params_size()].
            y: the output of the forward.
            dy: gradient of the loss for `y`, in its shape.
            hx: the initial h of each layer and direction, [L * D, B, S], or None for zeros.
            dhy: gradient of the loss for `hy`, [L * D, B, S].
            dhx: receives the gradient of `hx`, [L * D, B, S], or None.
            cx: the initial c of each layer and direction, [L * D, B, U] (LSTM only), or None for zeros.
            dcy: gradient of the loss for `cy`, [L * D, B, U] (LSTM only).
            dcx: receives the gradient of `cx`, [L * D, B, U] (LSTM only), or None.
            dx: receives the gradient of `x`, in its shape.
            reserve: the reserve, [reserve_nbytes], uint8, as the forward left it.

        Raises:
            ArgumentError: an array of another shape, dtype or device, an output that shares memory with another array,
                or a plan that is not for training.
            ArgumentTypeError: None for an array that is needed.
        """
        self._run(passes.BACKWARD_DATA, (params, y, dy, hx, dhy, dhx, cx, dcy, dcx, dx, reserve))

    def backward_weights(self, x: Any, hx: Any, y: Any, d_params: Any, reserve: Any, accumulate: bool = False) -> None:
        """Run the second backward pass, after `backward_data`: write the gradient of params to `d_params`.

        Args:
            x: the input, [T, B, I], or [B, T, I] with `time_major=False`.
            hx: the initial h of each layer and direction, [L * D, B, S], or None for zeros.
            y: the output of the forward.
            d_params: receives the gradient of params, [params_size()].
            reserve: the reserve, [reserve_nbytes], uint8, as `backward_data` left it.
            accumulate: whether to add the gradient to the values in `d_params`. Default: False.

        Raises:
            ArgumentError: an array of another shape, dtype or device, an output that shares memory with another array,
                or a plan that is not for training.
            ArgumentTypeError: None for an array that is needed.
        """
        self._run(
            passes.BACKWARD_WEIGHTS, (x, hx, y, d_params, reserve), accumulate=check_bool("accumulate", accumulate)
        )

    def _run(self, which: Pass, arrays: tuple[Any, ...], **keywords: bool) -> None:
        """Run a pass. Arrays that are those of the last call are not checked."""
        engine = self._engine
        last = self._last.get(which)
        if last and all(map(operator.is_, arrays, last[0])):
            _, library, libraries, run = last
            with on_callers_stream(engine, library, libraries):
                run(**keywords)
            return
        if which is not passes.FORWARD and not self._training:
            raise ArgumentError("is_training", "True when the plan was made: it has no reserve", False)
        library, libraries = _arrays.library_of(arrays[which.data]), _arrays.libraries_of(*arrays)
        with on_callers_stream(engine, library, libraries):
            natives, at = self._take[which](*arrays)
            run = self._native.bind(which, natives, at)
            run(**keywords)
        if libraries <= _STAY:
            self._last[which] = arrays, library, libraries, run
            self._take[which].known = natives.values(), at

    def capture(self, params: Any, *, carry_state: bool = False) -> Graph:
        """Capture the forward and, in training, both backward passes after it, as one CUDA graph with its own buffers.

        The calls run once before they are captured. This does not advance dropout. If an error is raised, nothing has
        changed.

        Args:
            params: the flat buffer of all weights and biases, [params_size()]. Each replay reads it again; the graph
                keeps it alive.
            carry_state: whether a replay also writes its final states to `hx` and `cx`, so that the next replay
                continues from there. For one direction only. Default: False.

        Returns:
            The `Graph`, with its buffers.

        Raises:
            CaptureError: a plan on the CPU, an algorithm that cuDNN cannot capture, or a stream that is being captured.
            ArgumentError: params that cannot be used (JAX arrays, for example), or `carry_state` with two directions.
        """
        if check_bool("carry_state", carry_state) and self._spec.num_dirs == 2:
            raise ArgumentError("carry_state", "False with both directions: one of them starts at the end", carry_state)
        kind = _arrays.kind_of("params", params)
        if kind.library == "jax" and kind.device != "cpu":
            expected = "a CuPy array or a torch tensor: the graph's arrays are of its kind, and nobody writes to JAX's"
            raise ArgumentError("params", expected, "a JAX array")
        with on_callers_stream(self._engine, kind.library, frozenset({kind.library})):
            native = take_params(self._engine, self._spec, "params", params)
            graph = self._native.capture(native, carry_state=carry_state)
            return Graph(graph, kind, params, self._check)

    def __repr__(self) -> str:
        schedule, lengths = self._schedule, self._schedule.lengths
        sizes = [f"T={schedule.T}", f"B={schedule.B}", "training" if self._training else "inference"]
        sizes += ["ragged"] * (lengths is not None) + ["batch-major"] * (not schedule.time_major)
        nbytes = f"workspace {self.workspace_nbytes:,} bytes, reserve {self.reserve_nbytes:,} bytes"
        return f"<Plan: {self._spec!r}, {', '.join(sizes)}; {self.algo} on {self._engine.device}; {nbytes}>"

    def __reduce__(self) -> Any:
        raise ArgumentTypeError("object to pickle", "the op: a plan holds native objects of this process", "Plan")


NAMES: Final[tuple[Name, ...]] = (*passes.INPUTS[1:], *passes.RESULTS, *passes.UPSTREAM, *passes.GRADIENTS, "d_params")
"""A graph's buffers."""


class Graph:
    """A captured CUDA graph: one forward and, in training, both backward passes after it. `plan.capture` returns it.

    Write into the inputs, call `replay`, read the results:

    - inputs: `x`, `hx`, `cx`, and in training the upstream gradients `dy`, `dhy`, `dcy`. All are 0 at first.
    - results: `y`, `hy`, `cy`, and in training the gradients `dx`, `dhx`, `dcx` and `d_params`. Each replay overwrites
      them.
    - `params`: the buffer that was captured. New values in it count from the next replay.

    All are arrays of the same kind as `params`, in the shapes of the plan's calls; None where the cell or the plan has
    no such array. A replay on another stream waits for the replay before. Graphs cannot be pickled.
    """

    def __init__(self, native: EngineGraph, kind: ArrayKind, params: Any, check: Check) -> None:
        self._native, self._kind, self.params, self._check = native, kind, params, check
        engine, library = engine_for(kind.device), kind.library
        self._on_stream = functools.partial(on_callers_stream, engine, library, frozenset({library}))

        def array_of(name: Name) -> Any:
            array = native.arrays.get(name)
            return None if array is None else _arrays.to_caller(array, kind)

        self.x, self.hx, self.cx = map(array_of, passes.INPUTS[1:])
        self.y, self.hy, self.cy = map(array_of, passes.RESULTS)
        self.dy, self.dhy, self.dcy = map(array_of, passes.UPSTREAM)
        self.dx, self.dhx, self.dcx = map(array_of, passes.GRADIENTS)
        self.d_params = array_of("d_params")

    def replay(self) -> None:
        """Run the graph on the current stream of the library of `params`: torch's for tensors, otherwise CuPy's.

        The sequence lengths are those of the plan. Others need another plan and another graph.

        Raises:
            StateError: the op's dropout state was set after the plan was prepared.
        """
        if self._check:
            self._check()
        with self._on_stream():
            self._native.replay()

    def __repr__(self) -> str:
        shown = [f"{name} {list(array.shape)}" for name in NAMES if (array := getattr(self, name)) is not None]
        return f"<Graph: {', '.join(shown)}; {self._kind.library} on {self._kind.device}>"

    def __reduce__(self) -> Any:
        raise ArgumentTypeError("object to pickle", "the op: a graph holds native objects of this process", "Graph")
