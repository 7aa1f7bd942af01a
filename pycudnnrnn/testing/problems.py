"""One call of an RNN with all of its arrays, drawn from a seed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pycudnnrnn import _arrays, ops
from pycudnnrnn._arrays import Array
from pycudnnrnn._checks import check_int, check_type
from pycudnnrnn.engines import engine_for
from pycudnnrnn.schedule import check_lengths
from pycudnnrnn.spec import INT32_MAX, SEED_MAX, RNNSpec

DATA: Final = ("x", "hx", "cx", "dy", "dhy", "dcy")
"""The arrays of a problem, except params."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """One call of an op: its arrays, and upstream gradients for its backward pass.

    Problems with equal specs, lengths and bits of all arrays are equal. A problem prints as the call of `make_problem`
    that makes it, unless `dataclasses.replace` has changed it.

    Letters: T steps, B sequences, I inputs, L layers, D directions, U units, P projected units.

    Args:
        op: the op to call.
        params: the params buffer, [op.params_size()].
        x: the input, [T, B, I].
        hx: h before the first step, [L * D, B, U], or [L * D, B, P] with a projection.
        cx: c of an LSTM before the first step, [L * D, B, U]. Other ops ignore it.
        lengths: the steps of each sequence, B integers from 0 to T. None: T for all.
        dy: gradient of the output, [T, B, D * U], or [T, B, D * P] with a projection.
        dhy: gradient of the final h, shaped as `hx`.
        dcy: gradient of the final c, shaped as `cx`.

    Example:
        >>> from pycudnnrnn import ops, testing
        >>> op = ops.CudnnGRU(1, num_units=3, input_size=2)
        >>> problem = testing.make_problem(op, T=5, B=4, lengths=None, seed=0)
        >>> problem.x.shape, problem.full_lengths
        ((5, 4, 2), [5, 5, 5, 5])
        >>> sorted(problem.results())
        ['dhx', 'dparams', 'dx', 'hy', 'y']
    """

    op: ops.CudnnRNN
    params: Array
    x: Array
    hx: Array
    cx: Array
    lengths: list[int] | None
    dy: Array
    dhy: Array
    dcy: Array
    _source: str = dataclasses.field(default="", init=False)

    def __repr__(self) -> str:
        return self._source or f"<Problem of {self.op!r} with T={len(self.x)} and arrays of the caller>"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Print the repr in a failing example of Hypothesis."""
        printer.text(repr(self))

    def _value(self) -> tuple[Any, ...]:
        hosts = [_arrays.to_host(name, getattr(self, name)) for name in ("params", *DATA)]
        return self.spec, tuple(self.full_lengths), *((host.shape, host.dtype, host.tobytes()) for host in hosts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Problem) and self._value() == other._value()

    def __hash__(self) -> int:
        return hash(self._value())

    def to(self, device: str) -> Problem:
        """Return this problem with its arrays on a device: params in the layout of that device, all others as they are.

        Args:
            device: "cpu", "cuda" or "cuda:<index>".

        Raises:
            EngineError: no engine runs on `device`.
            MissingDependencyError: a CUDA device without CuPy.
        """
        engine = engine_for(_arrays.check_device(device))
        with engine.active():
            arrays = {name: _arrays.move(getattr(self, name), engine.xp) for name in DATA}
        moved = dataclasses.replace(self, params=self.op.move_params(self.params, device), **arrays)
        return _with_source(moved, self._source and f"{self._source}.to({device!r})")

    @property
    def spec(self) -> RNNSpec:
        """The description of the op's RNN."""
        return self.op.spec

    @property
    def full_lengths(self) -> list[int]:
        """The steps of each sequence as a list, also if `lengths` is None."""
        T, B, _ = self.x.shape
        return [T] * B if self.lengths is None else self.lengths

    def forward(self, params: Array | None = None, **keywords: Any) -> ops.Forward:
        """Run the op's forward on this problem's arrays.

        Args:
            params: a params buffer to use in place of the problem's. Default: None, the problem's.
            **keywords: passed to the op's `forward`, for example `time_major` or `checkpoint_every`.

        Returns:
            The results of the call.
        """
        params = self.params if params is None else params
        states = (self.hx, self.cx) if self.spec.has_cell_state else (self.hx,)
        keywords = {"sequence_lengths": self.lengths} | keywords
        return self.op.forward(self.x, *states, params, **keywords)

    def results(self, **keywords: Any) -> dict[str, Any]:
        """Compute every result and gradient of this problem, by name.

        Args:
            **keywords: passed to the op's `forward`, for example `time_major` or `checkpoint_every`.

        Returns:
            The results "y", "hy" and for an LSTM "cy", then the gradients "dx", "dhx", for an LSTM "dcx", and
            "dparams". Each is an array of the same kind as the problem's own arrays.
        """
        fwd = self.forward(**keywords)
        grads = fwd.backward(*self.upstream())
        results = {
            "y": fwd.output, "hy": fwd.output_h, "cy": fwd.output_c,
            "dx": grads.input, "dhx": grads.input_h, "dcx": grads.input_c, "dparams": grads.params,
        }  # fmt: skip
        return {name: array for name, array in results.items() if array is not None}

    def upstream(self) -> tuple[Array, Array, Array | None]:
        """Return (dy, dhy, dcy). The last one is None for cells without c."""
        return self.dy, self.dhy, self.dcy if self.spec.has_cell_state else None


def make_problem(
    op: ops.CudnnRNN, T: int, B: int, lengths: list[int] | None, seed: int, *, values: Sequence[float] | None = None
) -> Problem:
    """Draw the arrays of a call, in the op's dtype: from a normal distribution, or from given values.

    Normal params are scaled by 1 / sqrt(U), so that the gates do not saturate.

    Args:
        op: the op to call.
        T: number of steps.
        B: number of sequences.
        lengths: the steps of each sequence, B integers from 0 to T. None: T for all.
        seed: seed of the numbers.
        values: the numbers to draw from, each as likely, for all arrays; they may be infinite or NaN. None: a normal
            distribution. Default: None.

    Returns:
        The arrays of the call, and upstream gradients for its backward pass.

    Raises:
        ArgumentError, ArgumentTypeError: an argument that is not of its range or type.

    Example:
        >>> from pycudnnrnn import ops, testing
        >>> op = ops.CudnnLSTM(1, num_units=3, input_size=2)
        >>> problem = testing.make_problem(op, T=5, B=2, lengths=[5, 3], seed=0)
        >>> problem.forward().output.shape
        (5, 2, 3)
    """
    check_type("op", op, ops.CudnnRNN, "an op, such as ops.from_spec(spec)")
    T, B = check_int("T", T, 0, INT32_MAX), check_int("B", B, 0, INT32_MAX)
    check_lengths(lengths, T, B, "lengths")
    lengths = None if lengths is None else [*map(int, lengths)]
    rng = np.random.default_rng(check_int("seed", seed, 0, SEED_MAX))
    spec = op.spec
    pool = None if values is None else np.array(values, np.float64)

    def draw(*shape: int, scale: float = 1.0) -> Array:
        numbers = rng.normal(size=shape) * scale if pool is None else rng.choice(pool, shape)
        with np.errstate(over="ignore"):  # a value may be infinite in a narrow dtype
            return numbers.astype(spec.dtype.numpy)

    states = (spec.num_pseudo_layers, B)
    params = draw(op.params_size(), scale=spec.num_units**-0.5)
    problem = Problem(
        op, params, draw(T, B, spec.input_size), draw(*states, spec.state_size), draw(*states, spec.num_units),
        lengths, draw(T, B, spec.output_size), draw(*states, spec.state_size), draw(*states, spec.num_units),
    )  # fmt: skip
    asked = f"T={T}, B={B}, lengths={lengths}, seed={seed}"
    if values is not None:
        asked += f", values=[{', '.join(map(_number_source, values))}]"
    return _with_source(problem, f"make_problem({op!r}, {asked})")


def _with_source(problem: Problem, source: str) -> Problem:
    object.__setattr__(problem, "_source", source)
    return problem


def _number_source(value: float) -> str:
    return repr(float(value)) if math.isfinite(value) else f"float('{float(value)}')"
