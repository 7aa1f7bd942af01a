"""The RNN as a JAX primitive, with rules for `vmap` and for gradients.

Only a primitive shows which transformation comes first; `jax.custom_vjp` does not. The gradient of a `vmap` is one wide
batch, forward and backward, and the gradient of params is the requested sum. A `vmap` of gradients needs a separate
gradient for each element. No engine computes that in one call, so the elements run one after the other.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from pycudnnrnn.errors import EngineError
from pycudnnrnn.interop._jax_passes import Traced, varying_like

_rnn: Final = Primitive("cudnn_rnn")
"""(dropout, params, input_data, states...) to the results of a call."""

_tangent: Final = Primitive("cudnn_rnn_tangent")
"""(reserve, tangents) to the tangents of the results. It exists to be transposed. Params have one tangent or none."""


def run(call: Traced, dropout: Any, *arguments: Any) -> tuple[Any, ...]:
    """Run a call; its arguments vary over the same mesh axes."""
    return tuple(_rnn.bind(dropout, *arguments, call=call))


def _forward(dropout: Any, *arguments: Any, call: Traced) -> Sequence[Any]:
    results, _ = call.runner.forward(call, dropout, arguments, keep=False)
    return list(results)


def _avals(*given: Any, call: Traced) -> list[Any]:
    """Return the types of the results: not sharded over Explicit axes, and varying as the arguments do."""
    ranks = {len(aval.shape): aval for aval in given}  # the position has none, params 1, the rest 3
    found = []
    for result in call.results:
        like = ranks[len(result.shape)]
        spec = PartitionSpec(*(None for _ in result.shape))
        sharding = NamedSharding(like.sharding.mesh, spec)
        found.append(like.update(shape=result.shape, dtype=result.dtype, weak_type=False, sharding=sharding))
    return found


# --- gradients --------------------------------------------------------------------------------------------------------


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _keeping(call: Traced, dropout: Any, *arguments: Any) -> Any:
    """Run forward, and keep the reserve."""
    return call.runner.forward(call, dropout, arguments, keep=True)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _backward(call: Traced, weights: bool, kept: tuple[Any, ...], upstream: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the gradients of params (if `weights`), of input_data and the states."""
    arguments, output, reserve = kept
    return tuple(call.runner.backward(call, arguments, output, upstream, reserve, weights=weights))


@_keeping.defjvp  # type: ignore[untyped-decorator]
@_backward.defjvp  # type: ignore[untyped-decorator]
def _second(call: Traced, *_: Any) -> Any:
    raise EngineError(f"second derivatives of {call.spec.mode} were asked for: no engine computes them")


def _derivative(primals: Sequence[Any], tangents: Sequence[Any], *, call: Traced) -> tuple[Any, Any]:
    results, reserve = _keeping(call, *primals)
    weights = type(tangents[1]) is not ad.Zero
    moved = map(ad.instantiate_zeros, tangents[1 if weights else 2 :])
    found = _tangent.bind(*primals[1:], results[0], *reserve, *moved, call=call, weights=weights)
    carried = [ad.Zero(jax.typeof(states).to_tangent_aval()) for states in results[len(found) :]]
    return results, [*found, *carried]


def _tangent_avals(*given: Any, call: Traced, **_: Any) -> list[Any]:
    return _avals(*given, call=call)[: 1 + len(call.there("hx", "cx"))]


def _transposed(upstream: Sequence[Any], *operands: Any, call: Traced, weights: bool) -> list[Any]:
    count = 2 + len(call.there("hx", "cx"))
    kept = operands[: len(operands) - count + (not weights)]  # followed by the tangents, which are wanted
    arguments, (output, *reserve) = kept[:count], kept[count:]
    given = tuple(map(ad.instantiate_zeros, upstream))
    gradients = _backward(call, weights, (arguments, output, tuple(reserve)), given)
    return [*(None for _ in kept), *gradients]


def _pushed(*_: Any, call: Traced, **__: Any) -> Any:
    asked = f"forward-mode derivatives of {call.spec.mode} were asked for (jvp, jacfwd)"
    raise EngineError(f"{asked}: reverse mode (grad, vjp, jacrev) is all there is")


# --- vmap -------------------------------------------------------------------------------------------------------------


def _batched(arguments: Sequence[Any], axes: Sequence[int | None], *, call: Traced) -> tuple[Any, list[int]]:
    """Run one larger batch, or one element after the other if the results would differ.

    They differ if params are mapped, since each element then has its own, and with dropout, since a larger batch has
    other masks.
    """
    size = next(array.shape[axis] for array, axis in zip(arguments, axes, strict=True) if axis is not None)
    if not size:
        none = [jnp.zeros((0, *shape.shape), shape.dtype) for shape in call.results]
        found = [*varying_like(none, arguments)]
    elif axes[0] is not None or axes[1] is not None or call.drops:
        return _looped(_rnn, arguments, axes, call=call)
    else:
        dropout, params, *data = arguments
        along = (1 if call.schedule.time_major else 0, *(1 for _ in call.there("hx", "cx")))
        each = [
            jnp.broadcast_to(array, (size, *array.shape)) if axis is None else jnp.moveaxis(array, axis, 0)
            for array, axis in zip(data, axes[2:], strict=True)
        ]
        wide = (_joined(array, axis) for array, axis in zip(each, along, strict=True))
        results = run(call.widened(size), dropout, params, *wide)
        found = [
            _split(array, axis, size, one.shape[axis + 1])
            for array, axis, one in zip(results, along, each, strict=True)
        ]
    return found, [0] * len(found)


def _looped(
    primitive: Any, arguments: Sequence[Any], axes: Sequence[int | None], **fixed: Any
) -> tuple[Any, list[int]]:
    """Run one element after the other."""
    mapped = [jnp.moveaxis(array, axis, 0) for array, axis in zip(arguments, axes, strict=True) if axis is not None]

    def one(elements: Sequence[Any]) -> Any:
        left = iter(elements)
        given = [array if axis is None else next(left) for array, axis in zip(arguments, axes, strict=True)]
        return primitive.bind(*given, **fixed)

    found = jax.lax.map(one, mapped)
    return found, [0] * len(found)


def _joined(array: Any, axis: int) -> Any:
    """[N, ...] to one array with the N side by side along `axis`."""
    moved = jnp.moveaxis(array, 0, axis)
    return moved.reshape(*moved.shape[:axis], moved.shape[axis] * moved.shape[axis + 1], *moved.shape[axis + 2 :])


def _split(array: Any, axis: int, size: int, each: int) -> Any:
    """Undo `_joined`, of `size` arrays that were `each` long along `axis`."""
    parts = array.reshape(*array.shape[:axis], size, each, *array.shape[axis + 1 :])
    return jnp.moveaxis(parts, axis, 0)


for _primitive, _run, _shapes in ((_rnn, _forward, _avals), (_tangent, _pushed, _tangent_avals)):
    _primitive.multiple_results = True
    _primitive.def_impl(_run)
    _primitive.def_abstract_eval(_shapes)
    mlir.register_lowering(_primitive, mlir.lower_fun(_run, multiple_results=True))
ad.primitive_jvps[_rnn] = _derivative
ad.primitive_jvps[_tangent] = lambda *_, call, **__: _second(call)
ad.primitive_transposes[_tangent] = _transposed
batching.primitive_batchers[_rnn] = _batched
batching.primitive_batchers[_tangent] = functools.partial(_looped, _tangent)
