"""The RNN as two torch operators, `pycudnnrnn::rnn` and `pycudnnrnn::rnn_backward`, and the functions that join them.

Eager code, `torch.compile`, `torch.export` and `torch.func` all use these operators. On the CPU they call the NumPy
engine, on arrays over the tensors' memory. On CUDA they pass the tensors' addresses to cuDNN (`_torch_cudnn`). Only a
forward that does not take exactly one native call runs by ops there.

An operator can return only tensors, so the reserve is a uint8 tensor, which autograd keeps and frees like any other. A
forward that will not be differentiated keeps none. The backward works on a copy, so that it does not change its
arguments and `retain_graph=True` gives the same gradients again. The copy takes 2 to 6 % of a step (LSTM, 128 to 512
units), and running the forward again 30 %.

The dropout seed is an argument, which the caller draws from torch's generator. On the CPU masks depend only on it. On
CUDA they depend on the forwards that ran on the stream since `torch.manual_seed`. A seed gives the same masks again as
long as they are kept (`_torch_chains`), for activation checkpointing, which runs a forward a second time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from pycudnnrnn import ops
from pycudnnrnn.engines import DropoutState, Engine, EnginePlan, engine_for
from pycudnnrnn.engines.numpy_engine.calls import reserve_nbytes
from pycudnnrnn.errors import EngineError
from pycudnnrnn.interop import _torch_cudnn
from pycudnnrnn.interop._torch_call import Arguments
from pycudnnrnn.interop._torch_rules import TorchArgumentError
from pycudnnrnn.passes import BACKWARD_DATA, BACKWARD_WEIGHTS, FORWARD, CallConfig
from pycudnnrnn.spec import TIME_MAX, DType

SEEDS: Final = 2**63 - 1
"""The number of dropout seeds to draw from: those of an int64."""

_ARGUMENTS: Final = (
    "Tensor x, Tensor? batch_sizes, Tensor? hx, Tensor? cx, Tensor params, Tensor? seed, str spec, float dropout, "
    "bool batch_first"
)
"""x: [T, B, I] (or [B, T, I]); with batch_sizes, a PackedSequence's data [rows, I], and then hx must be given.
batch_sizes and seed are int64 on the CPU. dropout is this call's: 0 in evaluation, and with one layer."""

_TAGS: Final = tuple(
    getattr(torch.Tag, name) for name in ("pt2_compliant_tag", "cudagraph_unsafe") if hasattr(torch.Tag, name)
)
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
def rnn(*arguments: Any) -> tuple[Any, Any, Any, Any]:
    """Run an RNN. The reserve is empty if it is not kept."""
    *rest, keep = arguments
    call = Arguments(*rest)
    engine = engine_for(str(call.x.device))
    if engine.name != "numpy":
        return _torch_cudnn.forward(call, keep=keep) or _forward_by_ops(call, engine.name, keep=keep)
    x, plan = call.x, _plan(engine, call, keep=keep)
    y, hy, cy = call.empty_results(x)
    reserve = x.new_empty(plan.reserve_nbytes, dtype=torch.uint8)
    arrays = {
        "params": _array(call.params), "x": _array(x), "hx": _array(call.hx), "cx": _array(call.cx),
        "y": _array(y), "hy": _array(hy), "cy": _array(cy) if call.spec.has_cell_state else None,
        "reserve": _array(reserve),
    }  # fmt: skip
    plan.bind(FORWARD, arrays, ())()
    return y, hy, cy, reserve


@torch.library.register_fake("pycudnnrnn::rnn", lib=_library)  # type: ignore[untyped-decorator]
def _(*arguments: Any) -> tuple[Any, Any, Any, Any]:
    call, keep = Arguments(*arguments[:-1]), arguments[-1]
    y, hy, cy = call.empty_results(call.x)
    return y, hy, cy, call.x.new_empty(_reserve_nbytes(call) if keep else 0, dtype=torch.uint8)


@_operator(
    "rnn_backward",
    f"(Tensor? dy, Tensor? dhy, Tensor? dcy, Tensor? y, Tensor reserve, {_ARGUMENTS}, bool params_too) -> "
    "(Tensor dx, Tensor dhx, Tensor dcx, Tensor dparams)",
)
def rnn_backward(*arguments: Any) -> tuple[Any, Any, Any, Any]:
    """Return the gradients of x, hx, cx and params; those not given or not wanted are empty.

    A gradient of a result that is None counts as zeros.
    """
    dy, dhy, dcy, y, reserve, *rest, params_too = arguments
    call = Arguments(*rest)
    engine = engine_for(str(call.x.device))
    if engine.name != "numpy":
        batch = _torch_cudnn.batch_of(call, training=True)
        if batch is not None:
            dy, dhy, dcy = call.upstream(dy, dhy, dcy)
            return batch.backward(call, dy, dhy, dcy, y, reserve, params_too=params_too)
        dx, dhx, dcx, d_params = call.empty_gradients(call.x, params_too=params_too)
        return dx, dhx, dcx, d_params.zero_()  # a batch without sequences: no other forward keeps a reserve
    plan = _plan(engine, call, keep=True)
    dx, dhx, dcx, d_params = call.empty_gradients(call.x, params_too=params_too)
    kept = _array(reserve.clone())
    arrays = {
        "params": _array(call.params), "dy": _array(dy), "dhy": _array(dhy),
        "dcy": _array(dcy) if call.spec.has_cell_state else None, "dx": _array(dx),
        "dhx": None if call.hx is None else _array(dhx), "dcx": None if call.cx is None else _array(dcx),
        "reserve": kept,
    }  # fmt: skip
    plan.bind(BACKWARD_DATA, arrays, ())()
    if params_too:
        plan.bind(BACKWARD_WEIGHTS, {"x": _array(call.x), "d_params": _array(d_params), "reserve": kept}, ())()
    return dx, dhx, dcx, d_params


@torch.library.register_fake("pycudnnrnn::rnn_backward", lib=_library)  # type: ignore[untyped-decorator]
def _(*arguments: Any) -> tuple[Any, ...]:
    call = Arguments(*arguments[5:-1])
    return tuple(call.empty_gradients(call.x, params_too=arguments[-1]))


def differentiable(*arguments: Any) -> tuple[Any, Any, Any]:
    """Run the forward operator, with its gradient, and return y, hy and cy."""
    if torch.compiler.is_compiling() or _is_transformed():
        y, hy, cy, _ = _Transformable.apply(*arguments)
        return y, hy, cy
    return _Eager.apply(*arguments)  # type: ignore[no-any-return]


_is_transformed: Final = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)  # noqa: SLF001
"""Whether `torch.func` is active. If torch does not report it, True is assumed, which is correct, but slower."""

_below_autograd: Final = getattr(torch._C, "_AutoDispatchBelowAutograd", contextlib.nullcontext)  # noqa: SLF001
"""The guard under which a call bypasses autograd, since an autograd function replaces it."""


def _refuse_vmap(*_: Any) -> Any:
    raise EngineError("vmap: an RNN takes one batch; fold the mapped axis into the batch axis instead")


class _Eager(torch.autograd.Function):  # type: ignore[misc]  # torch's types are not looked at
    """The forward operator with its gradient, if only autograd is active.

    `torch.func` and compilers need a function with a separate `setup_context`, whose call takes three times as long.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Any:
        with _below_autograd():
            y, hy, cy, reserve = rnn(*arguments)
        _set_up(ctx, arguments, y, reserve)
        ctx.set_materialize_grads(False)
        return y, hy, cy

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            return _gradients(ctx, _Backward.apply, upstream)
        with _below_autograd():
            return _gradients(ctx, rnn_backward, upstream)


class _Transformable(torch.autograd.Function):  # type: ignore[misc]
    """The same for `torch.func` and compilers.

    An operator could also register its gradient itself, but `torch.func.grad` does not accept that (2.13), and
    `torch.func.jvp` would return zeros. Here `jvp` raises an error.
    """

    @staticmethod
    def forward(  # no *args: a compiler counts the arguments to find out whether the first one is a context
        x: Any, batch_sizes: Any, hx: Any, cx: Any, params: Any, seed: Any,
        spec_json: str, dropout: float, batch_first: bool, keep_reserve: bool,
    ) -> Any:  # fmt: skip
        return rnn(x, batch_sizes, hx, cx, params, seed, spec_json, dropout, batch_first, keep_reserve)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        y, _, _, reserve = output
        ctx.mark_non_differentiable(reserve)
        _set_up(ctx, inputs, y, reserve)

    @staticmethod
    def backward(ctx: Any, dy: Any, dhy: Any, dcy: Any, _: Any) -> tuple[Any, ...]:
        # A compiler does not trace a function in a function's backward, and raises its own error for double backward.
        run = rnn_backward if torch.compiler.is_compiling() else _Backward.apply
        return _gradients(ctx, run, (dy, dhy, dcy))

    vmap = staticmethod(_refuse_vmap)


def _set_up(ctx: Any, arguments: tuple[Any, ...], y: Any, reserve: Any) -> None:
    """Keep the tensors for a backward. cuDNN's backward reads the output again, so autograd must see changes to it."""
    *tensors, ctx.spec_json, ctx.dropout, ctx.batch_first, _ = arguments
    y = None if _reads_no_output(str(y.device)) else y
    ctx.save_for_backward(y, reserve, *tensors)


def _gradients(ctx: Any, run: Any, upstream: tuple[Any, ...]) -> tuple[Any, ...]:
    wanted = ctx.needs_input_grad
    dx, dhx, dcx, d_params = run(
        *upstream, *ctx.saved_tensors, ctx.spec_json, ctx.dropout, ctx.batch_first, wanted[_PARAMS]
    )
    gradients = dx, None, dhx, dcx, d_params, *[None] * 5
    return tuple(g if is_wanted else None for g, is_wanted in zip(gradients, wanted, strict=True))


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


_PARAMS: Final = 4
"""The place of params among the operator's inputs."""


def _plan(engine: Engine, call: Arguments, *, keep: bool) -> EnginePlan:
    """Return the plan that runs a call on the NumPy engine, on arrays over the tensors' memory."""
    dropout = None if call.seed is None else engine.dropout(call.spec, DropoutState(engine.name, int(call.seed)))
    return engine.plan(CallConfig(call.spec, call.schedule, keep, dropout))


def _array(tensor: Any) -> Any:
    """Return the NumPy array over a CPU tensor's memory."""
    if tensor is None:
        return None
    if tensor.dtype is torch.bfloat16:  # NumPy has it from ml_dtypes, which torch does not know
        return tensor.detach().view(torch.uint16).numpy().view(DType.BFLOAT16.numpy)
    return tensor.numpy(force=True)  # of a tensor that requires a gradient, too; on the CPU nothing is copied


def _forward_by_ops(call: Arguments, engine: str, *, keep: bool) -> tuple[Any, Any, Any, Any]:
    """Run a forward on cuDNN that one native call cannot run: more steps, or no sequences. No reserve is kept.

    Raises:
        TorchArgumentError: a backward is to follow.
    """
    T, B = call.size
    if keep and B:
        expected = f"at most {TIME_MAX} steps on CUDA if gradients are needed"
        raise TorchArgumentError("input", expected, T, aspect="length")
    schedule, op = call.schedule, ops.from_spec(call.spec)
    if call.seed is not None:
        op.set_dropout_state(DropoutState(engine, int(call.seed)))
    x = call.x.detach()
    if schedule.packed:
        x, lengths = pad_packed_sequence(PackedSequence(x, call.batch_sizes))
    hx, cx = (None if state is None else state.detach() for state in (call.hx, call.cx))
    found = op.run(
        x, hx, cx, call.params.detach().contiguous(), call.seed is not None,
        sequence_lengths=schedule.lengths, time_major=call.time_major,
        keep_reserve=False,
    )  # fmt: skip
    results = found.output, found.output_h, found.output_c
    y, hy, cy = (x.new_empty(0) if result is None else result.contiguous() for result in results)
    y = pack_padded_sequence(y, lengths).data if schedule.packed else y
    return y, hy, cy, x.new_empty(0, dtype=torch.uint8)


def _reserve_nbytes(call: Arguments) -> Any:
    """Return the reserve's bytes: by arithmetic on the CPU, where sizes may be symbols, otherwise from cuDNN."""
    if _reads_no_output(str(call.x.device)):
        return reserve_nbytes(call.spec, call.num_rows, drops=call.seed is not None)
    batch = _torch_cudnn.batch_of(call, training=True)
    return 0 if batch is None else batch.reserve_nbytes  # none: the call itself will raise an error


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _reads_no_output(device: str) -> bool:
    """Return True if no backward there reads the output: on the NumPy engine, and for "meta" tensors."""
    return device == "meta" or engine_for(device).name == "numpy"
