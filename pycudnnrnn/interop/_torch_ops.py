"""The RNN as two torch operators, `pycudnnrnn::rnn` and `pycudnnrnn::rnn_backward`, and the functions that join them.

Eager code, `torch.compile`, `torch.export` and `torch.func` all use these operators. On the CPU they call the NumPy
engine, on arrays over the tensors' memory. On CUDA they pass the tensors' addresses to cuDNN (`_torch_cudnn`).

An operator can return only tensors, so the reserve is a uint8 tensor, which autograd keeps and frees like any other. A
forward that will not be differentiated keeps none. The backward works on a copy, so that it does not change its
arguments and `retain_graph=True` gives the same gradients again. The copy takes 2 to 6 % of a step (LSTM, 128 to 512
units), and running the forward again 30 %.

The dropout seed is an argument, which the caller draws from torch's generator. On the CPU masks depend only on it. On
CUDA they depend on the forwards that ran on the stream since `torch.manual_seed`. A seed gives the same masks again as
long as they are kept (`_torch_cudnn.chain_on`), for activation checkpointing, which runs a forward a second time.
"""

from __future__ import annotations

import contextlib
import functools
import math
import types
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

from pycudnnrnn.engines import Calls, DropoutState, engine_for
from pycudnnrnn.engines.numpy_engine.calls import reserve_nbytes
from pycudnnrnn.errors import EngineError
from pycudnnrnn.interop import _torch_cudnn
from pycudnnrnn.interop._torch_call import Arguments
from pycudnnrnn.interop._torch_rules import TorchArgumentError
from pycudnnrnn.interop._torch_weights import KNOWN_MAX, parts_on, split
from pycudnnrnn.passes import BACKWARD_DATA, BACKWARD_WEIGHTS, FORWARD, CallConfig
from pycudnnrnn.spec import DType

SEEDS: Final = 2**63 - 1
"""The number of dropout seeds to draw from: those of an int64."""

DTYPES: Final = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
"""The dtypes that an RNN can have."""

_ARGUMENTS: Final = (
    "Tensor x, Tensor? batch_sizes, Tensor? hx, Tensor? cx, Tensor? seed, str spec, float dropout, Tensor[] weights"
)
"""x: [T, B, I]; with batch_sizes, a PackedSequence's data [rows, I], and then hx must be given. batch_sizes and seed
are int64 on the CPU. dropout is this call's: 0 in evaluation, and with one layer. Weights are in torch's order; the
call runs in the dtype of x, so they are copied if theirs is another one."""

_TAGS: Final = (torch.Tag.pt2_compliant_tag, torch.Tag.cudagraph_unsafe)
"""Fake tensors and compilers may use the operators. A CUDA graph may not, because they allocate memory."""

_library: Final = torch.library.Library("pycudnnrnn", "DEF")


def _operator(name: str, schema: str) -> Callable[[Callable[..., Any]], Any]:
    """Make a function an operator; `torch.library.custom_op` would take three times as long at each call."""

    def register(run: Callable[..., Any]) -> Any:
        _library.define(f"{name}{schema}", tags=_TAGS)
        _library.impl(name, run, "CompositeExplicitAutograd")
        torch.library.register_autograd(f"pycudnnrnn::{name}", _refuse_backward, lib=_library)
        return getattr(torch.ops.pycudnnrnn, name).default

    return register


def _refuse_backward(*_: Any) -> Any:
    raise EngineError("backward through an operator by itself: interop.torch's modules have the gradients")


@_operator("rnn", f"({_ARGUMENTS}, bool keep_reserve) -> (Tensor y, Tensor hy, Tensor cy, Tensor reserve)")
def rnn(*arguments: Any) -> tuple[Any, ...]:
    """Run an RNN. The reserve is empty if it is not kept."""
    call, keep, x = Arguments(*arguments[:-1]), arguments[-1], arguments[0]
    address, _owner = call.places.join(call.weights, x.dtype)
    if call.engine.name != "numpy":
        return _torch_cudnn.forward(call, address, keep=keep)
    plan = _plan(call, keep=keep)
    y, hy, cy = call.empty_results()
    reserve = x.new_empty(plan.reserve_nbytes, dtype=torch.uint8)
    arrays = {
        "params": _array_at(address, call.places.size, call.spec.dtype), "x": _array(x),
        "hx": _array(call.hx), "cx": _array(call.cx),
        "y": _array(y), "hy": _array(hy), "cy": _array(cy) if call.spec.has_cell_state else None,
        "reserve": _array(reserve),
    }  # fmt: skip
    plan.bind(FORWARD, arrays, ())()
    return y, hy, cy, reserve


@torch.library.register_fake("pycudnnrnn::rnn", lib=_library)  # type: ignore[untyped-decorator]
def _(*arguments: Any) -> tuple[Any, ...]:
    call, keep = Arguments(*arguments[:-1]), arguments[-1]
    for weight in call.weights:
        if weight.device != call.x.device:  # torch also comes here if only one tensor is on "meta"
            raise TorchArgumentError("weights", f"{call.x.device}, the input's", weight.device, aspect="device")
    if not keep:
        nbytes = 0
    elif _reads_no_output(str(call.x.device)):  # by arithmetic, since sizes may be symbols
        nbytes = reserve_nbytes(call.spec, math.prod(call.x.shape[:-1]), drops=call.seed is not None)
    else:
        nbytes = _torch_cudnn.reserve_nbytes(call)
    return *call.empty_results(), call.x.new_empty(nbytes, dtype=torch.uint8)


@_operator(
    "rnn_backward",
    f"(Tensor? dy, Tensor? dhy, Tensor? dcy, Tensor? y, Tensor reserve, {_ARGUMENTS}, bool params_too) -> "
    "(Tensor dx, Tensor dhx, Tensor dcx, Tensor dparams)",
)
def rnn_backward(*arguments: Any) -> tuple[Any, Any, Any, Any]:
    """Return the gradients of x, hx, cx and the params buffer; those not given or not requested are empty.

    A gradient of a result that is None counts as zeros.
    """
    dy, dhy, dcy, y, reserve, *rest, params_too = arguments
    call = Arguments(*rest)
    address, _owner = call.places.join(call.weights, call.x.dtype)
    dx, dhx, dcx, d_params = gradients = call.empty_gradients(params_too=params_too)
    if call.engine.name != "numpy":
        _torch_cudnn.backward(call, address, [dy, dhy, dcy], y, reserve, gradients)
        return dx, dhx, dcx, d_params
    plan = _plan(call, keep=True)
    copied = _array(reserve.clone())
    arrays = {
        "params": _array_at(address, call.places.size, call.spec.dtype), "dy": _array(dy),
        "dhy": _array(dhy), "dcy": _array(dcy) if call.spec.has_cell_state else None, "dx": _array(dx),
        "dhx": None if call.hx is None else _array(dhx), "dcx": None if call.cx is None else _array(dcx),
        "reserve": copied,
    }  # fmt: skip
    plan.bind(BACKWARD_DATA, arrays, ())()
    if params_too:
        plan.bind(BACKWARD_WEIGHTS, {"x": _array(call.x), "d_params": _array(d_params), "reserve": copied}, ())()
    return dx, dhx, dcx, d_params


@torch.library.register_fake("pycudnnrnn::rnn_backward", lib=_library)  # type: ignore[untyped-decorator]
def _(*arguments: Any) -> tuple[Any, ...]:
    call = Arguments(*arguments[5:-1])
    return tuple(call.empty_gradients(params_too=arguments[-1]))


def differentiable(*arguments: Any) -> tuple[Any, Any, Any]:
    """Run the forward operator, with its gradient, and return y, hy and cy.

    The arguments are the operator's, with the weights last and one by one: autograd does not look into a list.
    """
    if _is_traced():
        return _Rnn.apply(*arguments)[:3]  # type: ignore[no-any-return]
    # Without what `torch.func` needs, which takes as long again.
    return super(torch.autograd.Function, _Rnn).apply(*arguments)[:3]  # type: ignore[no-any-return]


_is_transformed: Final = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)  # noqa: SLF001
"""Whether `torch.func` is active. If torch does not report it, True is assumed, which is correct, but slower."""

_below_autograd: Final = getattr(torch._C, "_AutoDispatchBelowAutograd", contextlib.nullcontext)  # noqa: SLF001
"""The guard under which a call bypasses autograd, since an autograd function replaces it."""


def _is_traced() -> bool:
    return torch.compiler.is_compiling() or _is_transformed()


def _refuse_vmap(*_: Any) -> Any:
    raise EngineError("vmap: an RNN takes one batch; fold the mapped axis into the batch axis instead")


class _Rnn(torch.autograd.Function):  # type: ignore[misc]  # torch's types are not looked at
    """The forward operator with its gradient.

    An operator could also register its gradient itself, but `torch.func.grad` does not accept that (2.13), and
    `torch.func.jvp` would return zeros. Here `jvp` raises an error.
    """

    @staticmethod
    def forward(x: Any, *others: Any) -> Any:
        *call, keep = x, *others[: _WEIGHTS - 1]
        with contextlib.nullcontext() if _is_traced() else _below_autograd():
            return rnn(*call, others[_WEIGHTS - 1 :], keep)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        """Keep the tensors for a backward. cuDNN's reads the output again, so autograd must see changes to it.

        Detached weights keep the memory that the forward read, if a weight's `data` is set to another.
        """
        *tensors, ctx.spec_text, ctx.dropout, _ = inputs[:_WEIGHTS]
        weights = inputs[_WEIGHTS:] if _is_traced() else [weight.detach() for weight in inputs[_WEIGHTS:]]
        y, _, _, reserve = output
        ctx.set_materialize_grads(False)
        y = None if _reads_no_output(str(y.device)) else y
        ctx.save_for_backward(y, reserve, *tensors, *weights)

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> tuple[Any, ...]:
        saved = ctx.saved_tensors  # this may run the forward again, with autograd: activation checkpointing
        eager = not _is_traced() and not torch.is_grad_enabled()
        # A compiler does not trace a function in a function's backward, and raises its own error for double backward.
        run = rnn_backward if eager or torch.compiler.is_compiling() else _Backward.apply
        needs, weights = ctx.needs_input_grad, saved[_SAVED:]
        d_weights, params_too = [None] * len(weights), any(needs[_WEIGHTS:])
        with _below_autograd() if eager else contextlib.nullcontext():
            dx, dhx, dcx, d_params = run(
                *upstream[:3], *saved[:_SAVED], ctx.spec_text, ctx.dropout, weights, params_too
            )
            if params_too:  # autograd casts them, if the weights have another dtype, and drops those of frozen ones
                d_weights = split(d_params, parts_on(str(dx.device), ctx.spec_text, dx.dtype))
        # Autograd takes None only where there was no tensor.
        return dx, None, dhx if needs[2] else None, dcx if needs[3] else None, None, None, None, None, *d_weights

    vmap = staticmethod(_refuse_vmap)


class _Backward(torch.autograd.Function):  # type: ignore[misc]
    """The backward operator, which has no gradient itself."""

    @staticmethod
    def forward(*arguments: Any) -> tuple[Any, Any, Any, Any]:
        return rnn_backward(*arguments)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        pass

    @staticmethod
    def backward(*_: Any) -> Any:
        raise EngineError("double backward: no engine differentiates an RNN's backward, nor does cuDNN")

    vmap = staticmethod(_refuse_vmap)


_WEIGHTS: Final = 8
"""The place of the first weight among the arguments of `differentiable`."""

_SAVED: Final = 7
"""Its place among the tensors that are saved for a backward."""


def _plan(call: Arguments, *, keep: bool) -> Calls:
    """Return the plan that runs a call on the NumPy engine, on arrays over the tensors' memory."""
    if call.seed is None:
        return _plan_without_dropout(call.engine, CallConfig(call.spec, call.schedule, keep))
    dropout = call.engine.dropout(call.spec, DropoutState(call.engine.name, int(call.seed)))
    return call.engine.plan(CallConfig(call.spec, call.schedule, keep, dropout))  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=KNOWN_MAX)
def _plan_without_dropout(engine: Any, config: CallConfig) -> Calls:
    return engine.plan(config)  # type: ignore[no-any-return]


def _array(tensor: Any) -> Any:
    """Return the NumPy array over a CPU tensor's memory."""
    if tensor is None:
        return None
    if tensor.dtype is torch.bfloat16:  # NumPy has it from ml_dtypes, which torch does not know
        return tensor.detach().view(torch.uint16).numpy().view(DType.BFLOAT16.numpy)
    return tensor.numpy(force=True)  # of a tensor that requires a gradient, too; on the CPU nothing is copied


@functools.lru_cache(maxsize=KNOWN_MAX)
def _array_at(address: int, size: int, dtype: DType) -> Any:
    """Return the NumPy array over a params buffer, whose memory the caller keeps alive while the array is read."""
    memory = {"version": 3, "data": (address, False), "shape": (size,), "typestr": f"|V{dtype.itemsize}"}
    return np.asarray(types.SimpleNamespace(__array_interface__=memory)).view(dtype.numpy)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _reads_no_output(device: str) -> bool:
    """Return True if no backward there reads the output: on the NumPy engine, and for "meta" tensors."""
    return device == "meta" or engine_for(device).name == "numpy"
