"""The RNN as two torch operators, `pycudnnrnn::rnn` and `pycudnnrnn::rnn_backward`, and the function that joins them.

Eager code, `torch.compile`, `torch.export` and `torch.func` all come through here; there is no second path. An operator
returns tensors and nothing else, so the reserve is one: a prepared call (`op.prepare`) writes it into a uint8 tensor
that autograd keeps and frees like any saved tensor. A forward that nothing will be differentiated through keeps none.
The backward works on a copy, so that it changes nothing that it is given and `retain_graph=True` gives the same
gradients again: the copy takes 2 to 6 % of a step (LSTM, 128 to 512 units), and running the forward again 30 %.

Dropout's seed is an argument, drawn by the caller from torch's generator. Masks depend only on it: they come again
with `torch.manual_seed`, in the backward, and where activation checkpointing runs a forward a second time.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Final, NamedTuple

import numpy as np

from pycudnnrnn import _arrays, ops
from pycudnnrnn.engines import DropoutState, engine_for
from pycudnnrnn.engines.numpy_engine.reserve import reserve_nbytes
from pycudnnrnn.errors import EngineError, MissingDependencyError, TorchArgumentError
from pycudnnrnn.schedule import Schedule
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
    batch_sizes: Any
    hx: Any
    cx: Any
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
            return self.batch_sizes.shape[0], self.hx.shape[1]
        T, B = self.x.shape[:2]
        return (B, T) if self.batch_first else (T, B)

    @property
    def num_rows(self) -> Any:
        """The packed rows: all valid steps of all sequences."""
        return self.x.shape[0] if self.batch_sizes is not None else self.x.shape[0] * self.x.shape[1]

    def empty_results(self, x: Any) -> tuple[Any, Any, Any]:
        """Tensors for y (over `x`'s axes), hy and cy; cy has no elements but for LSTM."""
        spec, B = self.spec, self.size[1]
        y = x.new_empty((*x.shape[:-1], spec.output_size))
        hy = x.new_empty((spec.num_pseudo_layers, B, spec.state_size))
        cy = x.new_empty((spec.num_pseudo_layers, B, spec.num_units) if spec.has_cell_state else 0)
        return y, hy, cy

    def op(self) -> ops.CudnnRNN:
        """An op of this call's own where it drops, since its dropout is set to the seed."""
        if self.seed is None:
            return _op(self.spec)
        op = ops.from_spec(self.spec)
        op.set_dropout_state(DropoutState(engine_for(_device_name(self.x)).name, int(self.seed)))
        return op

    def check(self) -> None:
        """Refuse batch sizes that are not those of the data: torch reads and writes memory by them, unchecked.

        Raises:
            TorchArgumentError: they rise, are negative, or do not add up to the rows.
        """
        if self.batch_sizes is None:
            return
        running = self.batch_sizes.tolist()
        falling = [self.size[1], *running, 0]
        if running[:1] != falling[:1] or sum(running) != len(self.x) or falling != sorted(falling, reverse=True):
            expected = f"numbers that do not rise, from B={falling[0]} on, {len(self.x)} in all"
            raise TorchArgumentError("batch_sizes", expected, running[:8])

    def lengths(self) -> list[int] | None:
        """Each sequence's length, longest first, from how many still run at each step."""
        if self.batch_sizes is None:
            return None
        running = self.batch_sizes.numpy()
        return (running[:, None] > np.arange(self.size[1])).sum(axis=0).tolist()  # type: ignore[no-any-return]

    def plan(self, op: ops.CudnnRNN) -> ops.Plan:
        T, B = self.size
        return op.prepare(
            int(T), int(B), is_training=True, sequence_lengths=self.lengths(), time_major=self.time_major,
            device=_device_name(self.x),
        )  # fmt: skip

    def reserve_nbytes(self) -> Any:
        """The bytes of the reserve: by arithmetic on the CPU, where sizes may be symbols; asked of cuDNN elsewhere."""
        if self.reads_no_output:
            return reserve_nbytes(self.spec, self.num_rows, drops=self.seed is not None)
        ragged = self.batch_sizes is not None
        return _cudnn_reserve_nbytes(self.spec, *map(int, self.size), self.time_major, ragged, _device_name(self.x))

    @property
    def reads_no_output(self) -> bool:
        """Whether the NumPy engine runs it, or nothing does: "meta" has shapes and no numbers."""
        return self.x.device.type == "meta" or engine_for(_device_name(self.x)).name == "numpy"

    def kept(self, y: Any) -> Any | None:
        """What a backward has to be given of the output: cuDNN reads it again, and then nobody may change it."""
        return None if self.reads_no_output else y

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
)  # type: ignore[untyped-decorator]  # torch's types are not looked at
def rnn(*arguments: Any) -> tuple[Any, Any, Any, Any]:
    """Run an RNN; the reserve has no elements unless it is to be kept."""
    *plain, keep_reserve = map(_plain, arguments)
    call = _Call(*plain)
    call.check()
    padded = call.padded(call.x)
    x, hx, cx, params = map(_native, (padded, call.hx, call.cx, call.params))
    with _on_current_stream(padded):
        if not (keep_reserve and call.size[1]):
            fwd = call.op().run(
                x, hx, cx, params, call.seed is not None, sequence_lengths=call.lengths(),
                time_major=call.time_major, keep_reserve=False,
            )  # fmt: skip
            y, hy, cy = (_tensor(array, padded) for array in (fwd.output, fwd.output_h, fwd.output_c))
            return call.packed(y), hy, cy, padded.new_empty(0, dtype=torch.uint8)
        y, hy, cy = call.empty_results(padded)
        plan = call.plan(call.op())
        nbytes = plan.reserve_nbytes if call.batch_sizes is None else call.reserve_nbytes()
        reserve = padded.new_empty(nbytes, dtype=torch.uint8)
        cy_or_none = _native(cy) if call.spec.has_cell_state else None
        plan.forward(params, x, hx, cx, _native(y), _native(hy), cy_or_none, _native(reserve[: plan.reserve_nbytes]))
    return call.packed(y), hy, cy, reserve


@rnn.register_fake  # type: ignore[untyped-decorator]
def _(*arguments: Any) -> tuple[Any, Any, Any, Any]:
    call, keep_reserve = _Call(*arguments[:-1]), arguments[-1]
    nbytes = call.reserve_nbytes() if keep_reserve else 0
    return *call.empty_results(call.x), call.x.new_empty(nbytes, dtype=torch.uint8)


@torch.library.custom_op(
    "pycudnnrnn::rnn_backward",
    mutates_args=(),
    schema=f"(Tensor dy, Tensor dhy, Tensor dcy, Tensor? y, Tensor reserve, {_ARGUMENTS}, bool params_too) -> "
    "(Tensor dx, Tensor dhx, Tensor dcx, Tensor dparams)",
)  # type: ignore[untyped-decorator]
def rnn_backward(*arguments: Any) -> tuple[Any, Any, Any, Any]:
    """Return the gradients of x, hx, cx and params; those of what was not given, or not wanted, have no elements."""
    dy, dhy, dcy, y, reserve, *rest, params_too = map(_plain, arguments)
    call = _Call(*rest)
    dx, dhx, dcx, d_params = _empty_gradients(call, params_too=params_too)
    if not call.size[1]:
        return dx, dhx, dcx, d_params.zero_()
    padded = call.padded(call.x)
    dx = torch.empty_like(padded)
    dy = call.padded(dy)
    y = dy if y is None else call.padded(y)  # a plan wants an array of y's shape, and reads it where it was kept
    x, y, dy, hx, cx, params = map(_native, (padded, y, dy, call.hx, call.cx, call.params))
    to_hx, to_cx = (None if a is None else _native(to) for a, to in ((hx, dhx), (cx, dcx)))
    dcy = _native(dcy) if call.spec.has_cell_state else None
    with _on_current_stream(padded):
        plan = call.plan(_op(call.spec))  # the masks are in the reserve, so that no seed is set up again
        kept = _native(reserve[: plan.reserve_nbytes].clone())
        plan.backward_data(params, y, dy, hx, _native(dhy), to_hx, cx, dcy, to_cx, _native(dx), kept)
        if params_too:
            plan.backward_weights(x, hx, y, _native(d_params), kept)
    return call.packed(dx), dhx, dcx, d_params


def _empty_gradients(call: _Call, *, params_too: bool) -> tuple[Any, Any, Any, Any]:
    wanted = call.x, call.hx, call.cx, call.params if params_too else None
    dx, dhx, dcx, d_params = (call.x.new_empty(0 if a is None else a.shape) for a in wanted)
    return dx, dhx, dcx, d_params


@rnn_backward.register_fake  # type: ignore[untyped-decorator]
def _(*arguments: Any) -> tuple[Any, Any, Any, Any]:
    return _empty_gradients(_Call(*arguments[5:-1]), params_too=arguments[-1])


class Differentiable(torch.autograd.Function):  # type: ignore[misc]  # torch's types are not looked at
    """The forward operator with its way back.

    A function around the operators, where an operator could register its gradient itself: `torch.func.grad` takes this
    and not that (2.13), and `torch.func.jvp` is refused here and gives zeros there.
    """

    @staticmethod
    def forward(  # spelt out: a compiler counts the arguments, to tell whether the first one is a context
        x: Any, batch_sizes: Any, hx: Any, cx: Any, params: Any, seed: Any,
        spec_json: str, dropout: float, batch_first: bool, keep_reserve: bool,
    ) -> Any:  # fmt: skip
        return rnn(x, batch_sizes, hx, cx, params, seed, spec_json, dropout, batch_first, keep_reserve)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        *tensors, ctx.spec_json, ctx.dropout, ctx.batch_first, _ = inputs
        y, _, _, reserve = output
        ctx.mark_non_differentiable(reserve)
        ctx.save_for_backward(_Call(*inputs[:-1]).kept(y), reserve, *tensors)

    @staticmethod
    def backward(ctx: Any, dy: Any, dhy: Any, dcy: Any, _: Any) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        # A compiler does not trace a function in a function's backward, and refuses double backward by itself.
        run = rnn_backward if torch.compiler.is_compiling() else _Backward.apply
        dx, dhx, dcx, d_params = run(
            dy, dhy, dcy, *ctx.saved_tensors, ctx.spec_json, ctx.dropout, ctx.batch_first, ctx.needs_input_grad[_PARAMS]
        )
        gradients = dx, None, dhx, dcx, d_params, *[None] * 5
        return tuple(g if wanted else None for g, wanted in zip(gradients, ctx.needs_input_grad, strict=True))

    @staticmethod
    def vmap(*_: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _refuse_vmap()


class _Backward(torch.autograd.Function):  # type: ignore[misc]
    """The backward operator, from which there is no way back."""

    @staticmethod
    def forward(*arguments: Any) -> tuple[Any, Any, Any, Any]:
        return rnn_backward(*arguments)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        pass

    @staticmethod
    def backward(*_: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise EngineError("double backward: no engine differentiates an RNN's backward, nor does cuDNN")

    @staticmethod
    def vmap(*_: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _refuse_vmap()


def _refuse_vmap() -> Any:
    raise EngineError("vmap: an RNN takes one batch; fold the mapped axis into the batch axis instead")


_PARAMS: Final = 4
"""The place of params among the operator's inputs."""


@functools.lru_cache(maxsize=256)
def _spec(spec_json: str, dtype: Any, dropout: float) -> RNNSpec:
    return RNNSpec.from_json(spec_json).replace(dtype=dtype, dropout=dropout)


@functools.lru_cache(maxsize=256)
def _op(spec: RNNSpec) -> ops.CudnnRNN:
    return ops.from_spec(spec)


@functools.lru_cache(maxsize=256)
def _cudnn_reserve_nbytes(spec: RNNSpec, T: int, B: int, time_major: bool, ragged: bool, device: str) -> int:
    """Ask for any lengths that may come: a compiler asks before it knows them. No memory is taken."""
    lengths = (*[T] * (B - 1), T - 1) if ragged and T > 1 else None
    schedule = Schedule(T, B, lengths, time_major)
    return engine_for(device).memory(spec, schedule, training=True, dropout=None, checkpoint_every=None).reserve_nbytes


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
    """Undo `_native`, contiguously as compilers expect; no array becomes a tensor without elements."""
    if array is None:
        return like.new_empty(0)
    if like.dtype is torch.bfloat16 and like.device.type == "cpu":
        array = array.view("u2")
    tensor = torch.from_numpy(array) if like.device.type == "cpu" else array
    return tensor.view(like.dtype).contiguous()


def _on_current_stream(tensor: Any) -> contextlib.AbstractContextManager[Any]:
    """Put what is prepared and allocated for a call on torch's current stream, as the call itself is."""
    kind = _arrays.kind_of("input", tensor)
    return _arrays.streams(engine_for(kind.device), kind, frozenset({"torch"}))
