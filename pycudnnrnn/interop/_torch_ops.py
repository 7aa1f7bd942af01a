"""The RNN as two torch operators, `pycudnnrnn::rnn` and `pycudnnrnn::rnn_backward`: tensors and plain values alone.

Eager code, `torch.compile`, `torch.export` and `torch.func` all call these; there is no second path. An operator may
return tensors only, so the reserve is one: the forward of a prepared call (`op.prepare`) writes it into a uint8 tensor
that autograd keeps and frees as it does any saved tensor. A forward that nothing will be differentiated through keeps
none. The backward works on a copy, which makes it pure, so that `retain_graph=True` gives the same gradients again:
a copy took 1 to 5 % of a step where running the forward again would take a third.

Dropout's seed is an argument, drawn by the caller from torch's generator. Masks follow from it alone: they come again
with `torch.manual_seed`, in the backward, and where activation checkpointing runs a forward a second time.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Final, NamedTuple

from pycudnnrnn import ops
from pycudnnrnn.engines import DropoutState, engine_for
from pycudnnrnn.engines.numpy_reserve import reserve_nbytes
from pycudnnrnn.errors import EngineError, MissingDependencyError
from pycudnnrnn.spec import RNNSpec, parse_dtype

try:
    import torch
except ImportError as error:
    raise MissingDependencyError("torch", "torch", "pycudnnrnn.interop.torch") from error

SEEDS: Final = 2**63 - 1
"""Seeds of dropout are drawn from as many as an int64 can tell apart."""

_ARGUMENTS: Final = (
    "Tensor x, Tensor? batch_sizes, Tensor? hx, Tensor? cx, Tensor params, Tensor? seed, str spec, float dropout, "
    "bool batch_first"
)
"""x: [T, B, I] (or [B, T, I]); with batch_sizes, a PackedSequence's data [rows, I], and then hx must be given.
batch_sizes and seed are int64 on the CPU. dropout is what acts in this call: 0 in evaluation, and with one layer."""


class _Call(NamedTuple):
    """The arguments of one call, and what follows from them."""

    x: Any
    batch_sizes: Any | None
    hx: Any | None
    cx: Any | None
    params: Any
    seed: Any | None
    spec_json: str
    dropout: float
    batch_first: bool

    @property
    def spec(self) -> RNNSpec:
        return _spec(self.spec_json, self.params.dtype, self.dropout)

    @property
    def time_major(self) -> bool:
        return self.batch_sizes is not None or not self.batch_first

    @property
    def size(self) -> tuple[Any, Any]:
        """T and B, which a compiler may give as symbols."""
        if self.batch_sizes is not None:
            assert self.hx is not None  # noqa: S101  for the type checker: the modules see to it
            return self.batch_sizes.shape[0], self.hx.shape[1]
        T, B = self.x.shape[:2]
        return (B, T) if self.batch_first else (T, B)

    @property
    def num_rows(self) -> Any:
        """The packed rows: all valid steps of all sequences."""
        return self.x.shape[0] if self.batch_sizes is not None else self.x.shape[0] * self.x.shape[1]

    def empty_results(self) -> tuple[Any, Any, Any]:
        """Tensors for y, hy and cy; cy has no elements but for LSTM."""
        spec, B = self.spec, self.size[1]
        y = self.x.new_empty((*self.x.shape[:-1], spec.output_size))
        hy = self.x.new_empty((spec.num_pseudo_layers, B, spec.state_size))
        cy = self.x.new_empty((spec.num_pseudo_layers, B, spec.num_units) if spec.has_cell_state else 0)
        return y, hy, cy

    def op(self) -> ops.CudnnRNN:
        """An op of this call's own where it drops, since its dropout is set to the seed."""
        if self.seed is None:
            return _op(self.spec)
        op = ops.from_spec(self.spec)
        op.set_dropout_state(DropoutState(engine_for(_device_name(self.x)).name, int(self.seed)))
        return op

    def lengths(self) -> list[int] | None:
        """Each sequence's length, longest first, from how many still run at each step."""
        if self.batch_sizes is None:
            return None
        return (self.batch_sizes[:, None] > torch.arange(self.size[1])).sum(0).tolist()  # type: ignore[no-any-return]

    def plan(self) -> ops.Plan:
        T, B = self.size
        return self.op().prepare(
            int(T), int(B), is_training=True, sequence_lengths=self.lengths(), time_major=self.time_major,
            device=_device_name(self.x),
        )  # fmt: skip

    def reserve_nbytes(self) -> Any:
        """The bytes of the reserve: by arithmetic on the CPU, where sizes may be symbols; asked of cuDNN elsewhere."""
        if self.x.device.type == "cpu":
            return reserve_nbytes(self.spec, self.num_rows, drops=self.seed is not None)
        return self.plan().reserve_nbytes

    def padded(self, data: Any) -> Any:
        """Give packed data its padding: [rows, F] to [T, B, F]."""
        if self.batch_sizes is None:
            return data.contiguous()
        padded, _ = torch.ops.aten._pad_packed_sequence(data, self.batch_sizes, False, 0.0, -1)  # noqa: SLF001
        return padded.contiguous()

    def packed(self, data: Any) -> Any:
        """Undo `padded`."""
        if self.batch_sizes is None:
            return data
        return torch.ops.aten._pack_padded_sequence(data, torch.tensor(self.lengths()), False)[0]  # noqa: SLF001


@torch.library.custom_op(
    "pycudnnrnn::rnn",
    mutates_args=(),
    schema=f"({_ARGUMENTS}, bool keep_reserve) -> (Tensor y, Tensor hy, Tensor cy, Tensor reserve)",
)
def rnn(*arguments: Any) -> tuple[Any, Any, Any, Any]:
    """Run an RNN on tensors; the reserve has no elements unless it is to be kept."""
    call, keep_reserve = _Call(*(_plain(a) for a in arguments[:-1])), arguments[-1]
    reserve = call.x.new_empty(0, dtype=torch.uint8)
    x, hx, cx = (None if a is None else _native(a) for a in (call.padded(call.x), call.hx, call.cx))
    with _on_current_stream(call.x):
        if keep_reserve and call.size[1]:
            plan = call.plan()
            _, hy, cy = call.empty_results()
            y = call.x.new_empty((*x.shape[:-1], call.spec.output_size))
            reserve = call.x.new_empty(plan.reserve_nbytes, dtype=torch.uint8)
            results = y, hy, cy if call.spec.has_cell_state else None
            plan.forward(_native(call.params), x, hx, cx, *map(_native, results), _native(reserve))
            return call.packed(y), hy, cy, reserve
        fwd = call.op().run(
            x, hx, cx, _native(call.params), call.seed is not None, sequence_lengths=call.lengths(),
            time_major=call.time_major, keep_reserve=False,
        )  # fmt: skip
    y, hy, cy = (_tensor(a, call.x) for a in (fwd.output, fwd.output_h, fwd.output_c))
    return call.packed(y), hy, cy, reserve


@rnn.register_fake
def _(*arguments: Any) -> tuple[Any, Any, Any, Any]:
    call, keep_reserve = _Call(*arguments[:-1]), arguments[-1]
    nbytes = call.reserve_nbytes() if keep_reserve else 0
    return *call.empty_results(), call.x.new_empty(nbytes, dtype=torch.uint8)


@torch.library.custom_op(
    "pycudnnrnn::rnn_backward",
    mutates_args=(),
    schema=f"(Tensor dy, Tensor dhy, Tensor dcy, Tensor y, Tensor reserve, {_ARGUMENTS}, bool params_too) -> "
    "(Tensor dx, Tensor dhx, Tensor dcx, Tensor dparams)",
)
def rnn_backward(*arguments: Any) -> tuple[Any, Any, Any, Any]:
    """Return the gradients of x, hx, cx and params; those of what was not given, or not wanted, have no elements."""
    dy, dhy, dcy, y, reserve, *rest, params_too = map(_plain, arguments)
    call = _Call(*rest)
    dx, dhx, dcx, d_params = _empty_gradients(call, params_too=params_too)
    if not call.size[1]:
        return dx, dhx, dcx, d_params.zero_()
    x, y, dy = (call.padded(a) for a in (call.x, y, dy))
    dx = torch.empty_like(x)
    lstm = call.spec.has_cell_state
    reserve = _native(reserve.clone())
    x, y, hx, cx = map(_native, (x, y, call.hx, call.cx))
    upstream = dy, dhy, dcy if lstm else None
    downstream = dx, None if hx is None else dhx, None if cx is None else dcx
    (dy, dhy, dcy), (to_x, to_hx, to_cx) = (tuple(map(_native, tensors)) for tensors in (upstream, downstream))
    with _on_current_stream(call.x):
        plan, params = call.plan(), _native(call.params)
        plan.backward_data(params, y, dy, hx, dhy, to_hx, cx, dcy, to_cx, to_x, reserve)
        if params_too:
            plan.backward_weights(x, hx, y, _native(d_params), reserve)
    return call.packed(dx), dhx, dcx, d_params


def _empty_gradients(call: _Call, *, params_too: bool) -> tuple[Any, Any, Any, Any]:
    wanted = call.x, call.hx, call.cx, call.params if params_too else None
    dx, dhx, dcx, d_params = (call.x.new_empty(0 if a is None else a.shape) for a in wanted)
    return dx, dhx, dcx, d_params


@rnn_backward.register_fake
def _(*arguments: Any) -> tuple[Any, Any, Any, Any]:
    return _empty_gradients(_Call(*arguments[5:-1]), params_too=arguments[-1])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    *tensors, ctx.spec, ctx.dropout, ctx.batch_first, ctx.keeps_reserve = inputs
    y, _, _, reserve = output
    ctx.save_for_backward(y, reserve, *tensors)


def _differentiate(ctx: Any, dy: Any, dhy: Any, dcy: Any, _: Any) -> tuple[Any, ...]:
    if not ctx.keeps_reserve:
        raise EngineError("this forward ran with keep_reserve=False: there is nothing to differentiate it with")
    y, reserve, *tensors = ctx.saved_tensors
    wanted = ctx.needs_input_grad
    gradients = rnn_backward(
        dy, dhy, dcy, y, reserve, *tensors, ctx.spec, ctx.dropout, ctx.batch_first, wanted[_PARAMS]
    )
    dx, dhx, dcx, d_params = (
        gradient if wanted[index] else None for gradient, index in zip(gradients, (0, 2, 3, _PARAMS), strict=True)
    )
    return dx, None, dhx, dcx, d_params, *[None] * 5


_PARAMS: Final = 4
"""The place of params among the operator's inputs."""

rnn.register_autograd(_differentiate, setup_context=_keep)


def _refuse_double_backward(_ctx: Any, *_: Any) -> Any:
    raise EngineError(
        "double backward: neither cuDNN nor the NumPy engine differentiates an RNN's backward (torch.nn's modules do "
        "on the CPU)"
    )


rnn_backward.register_autograd(_refuse_double_backward)


def _refuse_vmap(_info: Any, _in_dims: Any, *_: Any) -> Any:
    raise EngineError("vmap: an RNN takes one batch; fold the mapped axis into the batch axis instead")


rnn.register_vmap(_refuse_vmap)
rnn_backward.register_vmap(_refuse_vmap)


@functools.lru_cache(maxsize=256)
def _spec(spec_json: str, dtype: Any, dropout: float) -> RNNSpec:
    return RNNSpec.from_json(spec_json).replace(dtype=dtype, dropout=dropout)


@functools.lru_cache(maxsize=256)
def _op(spec: RNNSpec) -> ops.CudnnRNN:
    return ops.from_spec(spec)


def _device_name(tensor: Any) -> str:
    return str(tensor.device)


def _plain(argument: Any) -> Any:
    """A tensor without its history, and contiguous; anything else as it is."""
    return argument.detach().contiguous() if isinstance(argument, torch.Tensor) else argument


def _native(tensor: Any) -> Any:
    """What an op takes: NumPy's array over a CPU tensor's memory, or the CUDA tensor itself."""
    if tensor is None or tensor.device.type != "cpu":
        return tensor
    if tensor.dtype is torch.bfloat16:  # which NumPy has from ml_dtypes, and torch does not know that
        return tensor.view(torch.uint16).numpy().view(parse_dtype("dtype", tensor.dtype).numpy)
    return tensor.numpy()


def _tensor(array: Any, like: Any) -> Any:
    """Undo `_native`; no array becomes a tensor without elements."""
    if array is None:
        return like.new_empty(0)
    if like.device.type != "cpu":
        return array
    return torch.from_numpy(array.view("u2")).view(like.dtype) if like.dtype is torch.bfloat16 else torch.from_numpy(array)


def _on_current_stream(tensor: Any) -> contextlib.AbstractContextManager[Any]:
    """Let CuPy put its work on torch's current stream of the tensor's device."""
    if tensor.device.type == "cpu":
        return contextlib.nullcontext()
    xp = engine_for(_device_name(tensor)).xp
    stream = torch.cuda.current_stream(tensor.device)
    context: contextlib.AbstractContextManager[Any] = xp.cuda.ExternalStream(stream.cuda_stream, tensor.device.index)
    return context
