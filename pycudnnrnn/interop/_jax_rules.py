"""The RNN as a JAX primitive, with rules for `vmap` and for gradients, and the calls that XLA makes for it.

Only a primitive shows which transformation comes first; `jax.custom_vjp` does not. The gradient of a `vmap` is one wide
batch, forward and backward, and the gradient of params is the requested sum. A `vmap` of gradients needs a separate
gradient for each element. No engine computes that in one call, so the elements run one after the other.

A call uses XLA's inputs and outputs in place, and allocates nothing on a GPU. Other memory that an engine needs is an
output of bytes. XLA keeps some of these for the backward, and drops the others.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from pycudnnrnn import _locks
from pycudnnrnn.errors import EngineError
from pycudnnrnn.passes import GRADIENTS, INPUTS, RESULTS, UPSTREAM, Arrays, slots
from pycudnnrnn.schedule import Schedule, check_lengths
from pycudnnrnn.spec import RNNSpec

Shapes = dict[str, Any]
"""A `jax.ShapeDtypeStruct` of each array, by name."""


def scratch(nbytes: int) -> Any:
    """Return the shape of so many bytes."""
    return jax.ShapeDtypeStruct((nbytes,), np.uint8)


@dataclasses.dataclass(frozen=True)
class Traced:
    """The part of a call that is fixed while JAX traces; hashable.

    `runner` is an engine that runs on XLA's buffers (`_jax_runners`). It gives a pass to XLA, which runs it there.
    `operands` are the names of the arrays before params: "states", the dropout states, whose updated ones are the last
    result; or "position", the dropout position; and "lengths", if they are not in the schedule. `seed` gives the masks
    of a position that is known while JAX traces.
    """

    spec: RNNSpec
    schedule: Schedule
    training: bool
    runner: Any
    operands: tuple[str, ...] = ()
    seed: int | None = None

    @property
    def drops(self) -> bool:
        return self.training and self.spec.dropout > 0 and self.spec.num_layers > 1

    @_locks.cached_property
    def shapes(self) -> Shapes:
        """The arrays of a call. Only an LSTM has arrays of c."""
        size, dtype = self.runner.engine.layout(self.spec).size, self.spec.dtype.numpy
        arrays = slots(self.spec, self.schedule, size)
        shapes = {name: slot.shape for name, slot in arrays.items() if slot.shape is not None}
        return {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape in shapes.items()}

    def of_cell(self, *names: str) -> Shapes:
        """Return those of the arrays that this cell has."""
        return {name: self.shapes[name] for name in names if name in self.shapes}

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments of the primitive."""
        return *self.operands, *self.of_cell(*INPUTS)

    @property
    def results(self) -> Shapes:
        states = {"states": scratch(self.runner.states_nbytes)} if "states" in self.operands else {}
        return self.of_cell(*RESULTS) | states

    def gradients(self, *, weights: bool) -> Shapes:
        """Return the arrays that a backward writes; the gradient of params first, if requested."""
        return self.of_cell(*(["d_params"] if weights else []), *GRADIENTS)

    def widened(self, count: int) -> Traced:
        """Return the call on `count` batches next to each other."""
        lengths, batch = self.schedule.lengths, self.schedule.B * count
        wide = dataclasses.replace(self.schedule, B=batch, lengths=None if lengths is None else lengths * count)
        return dataclasses.replace(self, schedule=wide)

    def schedule_of(self, lengths: Any) -> Schedule:
        """Return the steps of a batch with these lengths, which are known only now.

        Raises:
            ArgumentError: a length outside 0..T.
        """
        checked = check_lengths(lengths, self.schedule.T, self.schedule.B)
        return dataclasses.replace(self.schedule, lengths=checked)


@dataclasses.dataclass(frozen=True)
class XlaCall:
    """The function that XLA calls for a pass, with the names of its arrays. XLA compiles equal ones once."""

    call: Traced
    ins: tuple[str, ...]
    outs: tuple[str, ...]
    training: bool

    def __call__(self, context: Any, outs: Sequence[Any], *ins: Any) -> None:
        buffers = dict(zip(self.ins, ins, strict=True)) | dict(zip(self.outs, outs, strict=True))
        self.call.runner.run(self, context, buffers)


def in_place(run: Any, ins: Arrays, outs: Shapes) -> Arrays:
    """Run on XLA's own buffers. An array that goes in and comes out under one name is one memory."""
    at = {name: number for number, name in enumerate(ins)}
    aliases = {at[name]: number for number, name in enumerate(outs) if name in at}
    call = buffer_callback(run, tuple(outs.values()), vmap_method="sequential", input_output_aliases=aliases)
    return named(outs, call(*ins.values()), ins)


def named(outs: Shapes, results: Sequence[Any], ins: Arrays) -> Arrays:
    """Return results by name, varying over the mesh axes that any argument varies over, which XLA's calls do not do."""
    axes = axes_of(ins.values())
    return {name: varying(result, axes) for name, result in zip(outs, results, strict=True)}


def axes_of(arrays: Any) -> frozenset[Any]:
    """Return the mesh axes that any of the arrays varies over, under `shard_map`."""
    return frozenset().union(*map(_axes, arrays))


def _axes(array: Any) -> frozenset[Any]:
    kind: Any = jax.typeof(array)
    axes: frozenset[Any] = kind.manual_axis_type.varying if hasattr(kind, "manual_axis_type") else kind.vma  # 0.10.2
    return axes


def varying(array: Any, axes: frozenset[Any]) -> Any:
    missing = axes - _axes(array)
    return jax.lax.pcast(array, tuple(missing), to="varying") if missing else array


# --- the primitive ----------------------------------------------------------------------------------------------------

_rnn: Final = Primitive("cudnn_rnn")
"""The arrays of `Traced.names` to the results of a call."""

_tangent: Final = Primitive("cudnn_rnn_tangent")
"""(saved arrays, tangents) to the tangents of the results. It exists to be transposed. Params have one tangent or
none."""


def run(call: Traced, arrays: Arrays) -> Arrays:
    """Run a call; its arguments vary over the same mesh axes."""
    return dict(zip(call.results, _rnn.bind(*map(arrays.get, call.names), call=call), strict=True))


def _forward(*arguments: Any, call: Traced) -> list[Any]:
    outs = call.runner.forward(call, dict(zip(call.names, arguments, strict=True)), keep=False)
    return [outs[name] for name in call.results]


def _avals(*arguments: Any, call: Traced) -> list[Any]:
    """Return the types of the results: not sharded over Explicit axes, and varying as the arguments do."""
    like, types = arguments[-1], []
    for result in call.results.values():
        sharding = NamedSharding(like.sharding.mesh, PartitionSpec(*(None for _ in result.shape)))
        types.append(like.update(shape=result.shape, dtype=result.dtype, weak_type=False, sharding=sharding))
    return types


# --- gradients --------------------------------------------------------------------------------------------------------


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _keeping(call: Traced, ins: Arrays) -> Arrays:
    """Run forward, and keep the reserve."""
    return call.runner.forward(call, ins, keep=True)  # type: ignore[no-any-return]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _backward(call: Traced, weights: bool, ins: Arrays) -> Arrays:
    """Return the gradients of params (if `weights`), of x and of the states."""
    return call.runner.backward(call, ins, weights=weights)  # type: ignore[no-any-return]


@_keeping.defjvp  # type: ignore[untyped-decorator]
@_backward.defjvp  # type: ignore[untyped-decorator]
def _second(call: Traced, *_: Any) -> Any:
    raise EngineError(f"second derivatives of {call.spec.mode} were asked for: no engine computes them")


def _derivative(primals: Sequence[Any], tangents: Sequence[Any], *, call: Traced) -> tuple[Any, Any]:
    ins = dict(zip(call.names, primals, strict=True))
    outs = _keeping(call, ins)
    saved = {name: array for name, array in (ins | outs).items() if name not in {"position", "hy", "cy"}}
    first = len(call.operands)
    weights = type(tangents[first]) is not ad.Zero
    directions = map(ad.instantiate_zeros, tangents[first if weights else first + 1 :])
    moved = _tangent.bind(*saved.values(), *directions, call=call, weights=weights, saved=tuple(saved))
    results = [outs[name] for name in call.results]
    carried = [ad.Zero(jax.typeof(states).to_tangent_aval()) for states in results[len(moved) :]]
    return results, [*moved, *carried]


def _tangent_avals(*arguments: Any, call: Traced, **_: Any) -> list[Any]:
    return _avals(*arguments, call=call)[: len(call.of_cell(*RESULTS))]


def _transposed(upstream: Sequence[Any], *operands: Any, call: Traced, weights: bool, saved: tuple[str, ...]) -> Any:
    ins = dict(zip(saved, operands, strict=False))  # the tangents follow: their gradients are asked for
    ins |= zip(call.of_cell(*UPSTREAM), map(ad.instantiate_zeros, upstream), strict=True)
    gradients = _backward(call, weights, ins)
    return [*(None for _ in saved), *map(gradients.get, call.gradients(weights=weights))]


def _pushed(*_: Any, call: Traced, **__: Any) -> Any:
    asked = f"forward-mode derivatives of {call.spec.mode} were asked for (jvp, jacfwd)"
    raise EngineError(f"{asked}: reverse mode (grad, vjp, jacrev) is all there is")


# --- vmap -------------------------------------------------------------------------------------------------------------


def _batched(arguments: Sequence[Any], axes: Sequence[int | None], *, call: Traced) -> tuple[Any, list[int]]:
    """Run one larger batch, or one element after the other if the results would differ.

    They differ if params are mapped, since each element then has its own, and with dropout, since a larger batch has
    other masks. An engine takes no batch that is empty, so without an element nothing runs.
    """
    size = next(array.shape[axis] for array, axis in zip(arguments, axes, strict=True) if axis is not None)
    mapped = dict(zip(call.names, axes, strict=True))
    if not size or mapped["params"] is not None or call.drops:
        return _looped(_rnn, arguments, axes, call=call)
    data = 1 if call.schedule.time_major else 0
    batch_axis = {"lengths": 0, "x": data, "y": data, "hx": 1, "hy": 1, "cx": 1, "cy": 1}
    wide = dict(zip(call.names, arguments, strict=True))
    for name in wide.keys() - {"params"}:
        array, axis, side = wide[name], mapped[name], batch_axis[name]
        each = jnp.broadcast_to(array, (size, *array.shape)) if axis is None else jnp.moveaxis(array, axis, 0)
        wide[name] = jax.lax.collapse(jnp.moveaxis(each, 0, side), side, side + 2)
    results = [_split(array, batch_axis[name], size) for name, array in run(call.widened(size), wide).items()]
    return results, [0] * len(results)


def _looped(
    primitive: Any, arguments: Sequence[Any], axes: Sequence[int | None], **fixed: Any
) -> tuple[Any, list[int]]:
    """Run one element after the other."""
    mapped = [jnp.moveaxis(array, axis, 0) for array, axis in zip(arguments, axes, strict=True) if axis is not None]

    def one(elements: Sequence[Any]) -> Any:
        left = iter(elements)
        each = [array if axis is None else next(left) for array, axis in zip(arguments, axes, strict=True)]
        return primitive.bind(*each, **fixed)

    results = jax.lax.map(one, mapped)
    return results, [0] * len(results)


def _split(array: Any, axis: int, size: int) -> Any:
    """Return the `size` arrays that are next to each other along `axis`, as [size, ...]."""
    parts = array.reshape(*array.shape[:axis], size, array.shape[axis] // size, *array.shape[axis + 1 :])
    return jnp.moveaxis(parts, axis, 0)


for _primitive, _run, _types in ((_rnn, _forward, _avals), (_tangent, _pushed, _tangent_avals)):
    _primitive.multiple_results = True
    _primitive.def_impl(_run)
    _primitive.def_abstract_eval(_types)
    mlir.register_lowering(_primitive, mlir.lower_fun(_run, multiple_results=True))
ad.primitive_jvps[_rnn] = _derivative
ad.primitive_jvps[_tangent] = lambda *_, call, **__: _second(call)
ad.primitive_transposes[_tangent] = _transposed
batching.primitive_batchers[_rnn] = _batched
batching.primitive_batchers[_tangent] = functools.partial(_looped, _tangent)


@functools.cache
def wait_at_exit() -> None:
    """Make the interpreter's exit wait for all JAX arrays that are still being computed.

    XLA calls Python for them, and the process aborts if it does so after the exit. JAX waits only for computations that
    the exiting thread has started. This is registered after JAX's own handlers, so it runs before them.

    Source: RuntimeTokenSet, which belongs to one thread, and wait_for_tokens (jax/_src/dispatch.py, 0.10.2).
    """
    atexit.register(_wait)


def _wait() -> None:
    for platform in (None, "cpu"):
        with contextlib.suppress(RuntimeError):  # a JAX without it
            for array in jax.live_arrays(platform):
                with contextlib.suppress(RuntimeError):  # it failed, or was deleted
                    array.block_until_ready()
