"""torch modules in place of `torch.nn.LSTM`, `GRU` and `RNN`, over one flat parameter.

The parameter `params` is the opaque buffer, so that an optimizer, an all-reduce or a copy between devices handles one
tensor. A state dict has torch's names and shapes all the same, and so has every weight as an attribute
(`module.weight_ih_l0`): a view where the engine keeps a matrix's gates side by side, and a read-only copy where not.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

from pycudnnrnn._checks import check_int, check_real, check_text, shorten
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, MissingDependencyError, TorchArgumentError
from pycudnnrnn.interop._torch_ops import SEEDS, differentiable
from pycudnnrnn.interop._torch_params import FlatParams
from pycudnnrnn.spec import INT32_MAX, BiasMode, Direction, RNNMode, RNNSpec

try:
    import torch
    from torch.nn.utils.rnn import PackedSequence
except ImportError as error:
    raise MissingDependencyError("torch", "torch", "pycudnnrnn.interop.torch") from error

__all__ = ["GRU", "LSTM", "RNN"]
__dir__ = __all__.copy


class _RNN(FlatParams):
    """What the three modules share; `LSTM` says what it means."""

    _mode: RNNMode

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        """Make `params`, and draw its values."""
        super().__init__()
        for name, flag in (("bias", bias), ("batch_first", batch_first), ("bidirectional", bidirectional)):
            if not isinstance(flag, bool):
                raise ArgumentTypeError(name, "a bool", shorten(flag))
        self.input_size = check_int("input_size", input_size, 1, INT32_MAX)
        self.hidden_size = check_int("hidden_size", hidden_size, 1, INT32_MAX)
        self.num_layers = check_int("num_layers", num_layers, 1, INT32_MAX)
        self.bias, self.batch_first, self.bidirectional = bias, batch_first, bidirectional
        self.dropout = check_real("dropout", dropout)
        if not 0 <= self.dropout <= 1:
            raise ArgumentError("dropout", "a probability of dropping, from 0 to 1", dropout)
        if self.dropout and num_layers == 1:
            warnings.warn(f"dropout={dropout} has no effect with one layer: it acts between layers", stacklevel=2)
        self.proj_size = check_int("proj_size", proj_size, 0, hidden_size - 1)
        if self.proj_size and self._mode is not RNNMode.LSTM:
            raise ArgumentError("proj_size", "0: only the LSTM projects", proj_size)
        self.mode = self._mode.upper()
        spec = RNNSpec(
            self._mode, num_layers, hidden_size, input_size,
            direction=Direction.BIDIRECTIONAL if bidirectional else Direction.UNIDIRECTIONAL,
            num_proj=proj_size or None, bias_mode=BiasMode.DOUBLE if bias else BiasMode.NONE,
        )  # fmt: skip
        self._make_params(spec, torch.empty(0, device=device, dtype=dtype))
        self.reset_parameters()

    def extra_repr(self) -> str:
        """Return the arguments that differ from their defaults, for `repr`."""
        usual = {
            "proj_size": 0,
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0,
            "bidirectional": False,
        }
        shown = (f", {name}={getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value)
        return f"{self.input_size}, {self.hidden_size}{''.join(shown)}"

    def reset_parameters(self) -> None:
        """Draw every weight and bias from the uniform distribution on ±1 / sqrt(hidden_size), as torch does.

        A seed gives the numbers that it gives in torch's module.
        """
        bound = 1 / math.sqrt(self.hidden_size)
        with torch.no_grad():
            for name, weight in self.named_weights():
                self._write(name, torch.nn.init.uniform_(torch.empty_like(weight), -bound, bound))

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:  # noqa: A002  torch's name
        """Run, as torch's module of the same name does.

        Shapes:
            input: [T, B, I], [B, T, I] with `batch_first`, [T, I], or a PackedSequence; hx: [L * D, B, P or U], and
            for LSTM a pair with [L * D, B, U], each without B where the input is; the output and the final states: as
            input and hx.

        Raises:
            TorchArgumentError: a wrong shape, dtype or device, or a trace of torch.fx of nothing but this module.
            ArgumentTypeError: not a tensor, or not a pair of them where the cell has c.
        """
        if isinstance(input, torch.fx.Proxy):
            return self._traced(input, hx)
        packed = isinstance(input, PackedSequence)
        parts: tuple[Any, ...] = input if packed else (input, None, None, None)
        data, batch_sizes, order, way_back = parts
        _check_tensor("input", data)
        unbatched = not packed and data.dim() == 2
        batch_axis = 0 if self.batch_first else 1
        if unbatched:
            data = data.unsqueeze(batch_axis)
        params = self.params
        self._check_input(data, params, batch_sizes)
        if _autocasts(data) and params.dtype is not torch.float64:  # which autocast leaves alone everywhere
            dtype = torch.get_autocast_dtype(data.device.type)
            data, params = data.to(dtype), self._cast(params, dtype)
        B = data.size(batch_axis) if not packed else _num_sequences(batch_sizes, order)
        states = self._states(hx, data, B, unbatched=unbatched)
        if packed and not states:  # the operator knows the batch of packed data by its states
            states = [data.new_zeros(shape) for shape in self._state_shapes(B)]
        if order is not None:
            states = [state.index_select(1, order) for state in states]
        keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (data, params, *states))
        dropout = float(self.dropout) if self.training and self.num_layers > 1 else 0.0
        seed = torch.randint(SEEDS, (), device="cpu") if dropout else None
        h, c = [*states, None, None][:2]
        y, hy, cy = differentiable(
            data, batch_sizes, h, c, params, seed, self._spec_json, dropout, self.batch_first, keep
        )
        states = [hy, cy] if self._has_cell_state else [hy]
        if way_back is not None:
            states = [state.index_select(1, way_back) for state in states]
        if packed:
            y = PackedSequence(y, batch_sizes, order, way_back)
        elif unbatched:
            y, states = y.squeeze(batch_axis), [state.squeeze(1) for state in states]
        return y, tuple(states) if self._has_cell_state else states[0]

    def _traced(self, *arguments: Any) -> tuple[Any, Any]:
        """Be a leaf of a trace of torch.fx, as torch's modules are: its tracer knows those by their package."""
        tracer = arguments[0].tracer
        path = tracer.path_of_module(self)
        if not path:
            raise TorchArgumentError("module", "one that has this one inside: a trace has it as a leaf", "nothing else")
        node: tuple[Any, Any] = tracer.create_proxy("call_module", path, arguments, {})
        return node

    @property
    def _has_cell_state(self) -> bool:
        return self.mode == "LSTM"

    def _check_input(self, data: Any, params: Any, batch_sizes: Any | None) -> None:
        dims = 3 if batch_sizes is None else 2
        if data.dim() != dims:
            axes = "[T, B, input_size] or [T, input_size]" if batch_sizes is None else "packed data [rows, input_size]"
            raise TorchArgumentError("input", axes, tuple(data.shape), aspect="shape")
        if data.dtype != params.dtype and not _autocasts(data):
            raise TorchArgumentError("input", f"{params.dtype}, the module's", data.dtype, aspect="dtype")
        if data.device != params.device:
            raise TorchArgumentError("input", f"{params.device}, the module's", data.device, aspect="device")
        if data.size(-1) != self.input_size:
            expected = f"a last axis of input_size={self.input_size}"
            raise TorchArgumentError("input", expected, tuple(data.shape), aspect="shape")
        if batch_sizes is None and data.size(1 if self.batch_first else 0) == 0:
            raise TorchArgumentError("input", "at least one step", tuple(data.shape), aspect="shape")

    def _state_shapes(self, B: int) -> list[tuple[int, int, int]]:
        count = self.num_layers * (2 if self.bidirectional else 1)
        h, c = (count, B, self.proj_size or self.hidden_size), (count, B, self.hidden_size)
        return [h, c] if self._has_cell_state else [h]

    def _states(self, hx: Any, data: Any, B: int, *, unbatched: bool) -> list[Any]:
        """Return the initial states that are given, checked, with their batch axis and in the data's dtype."""
        if hx is None:
            return []
        names = ["hx[0]", "hx[1]"] if self._has_cell_state else ["hx"]
        if self._has_cell_state and (not isinstance(hx, (tuple, list)) or len(hx) != 2):
            raise ArgumentTypeError("hx", "a pair (h, c)", type(hx))
        found: list[Any] = []
        states: list[Any] = list(hx) if self._has_cell_state else [hx]
        for name, state, shape in zip(names, states, self._state_shapes(B), strict=True):
            _check_tensor(name, state)
            expected = (shape[0], shape[2]) if unbatched else shape
            if tuple(state.shape) != expected:
                axes = "[L * D, width]" if unbatched else "[L * D, B, width]"
                raise TorchArgumentError(name, f"{expected}, which is {axes}", tuple(state.shape), aspect="shape")
            if state.device != data.device:
                raise TorchArgumentError(name, f"{data.device}, the input's", state.device, aspect="device")
            if _autocasts(data):
                state = state.to(data.dtype)  # noqa: PLW2901
            if state.dtype != data.dtype:
                raise TorchArgumentError(name, f"{data.dtype}, the input's", state.dtype, aspect="dtype")
            found.append(state.unsqueeze(1) if unbatched else state)
        return found


class LSTM(_RNN):
    """The LSTM, in place of `torch.nn.LSTM`.

    Every weight and bias is in the one parameter `params`: `named_weights` gives them under torch's names, and so do
    attributes and the state dict. Gradients come in evaluation mode too. Gradients of gradients, forward-mode gradients
    and `vmap` are refused.

    On CUDA tensors, algorithm and math type are those that torch's module takes: TF32 is used for float32 where torch's
    user allows it (`torch.backends.cudnn.rnn.fp32_precision`), and that is torch's default.

    Args:
        num_layers: layers, each on the output of the one below.
        bias: whether each gate has its two biases.
        batch_first: whether data is [B, T, ...]; states are [L * D, B, ...] either way.
        dropout: the probability that a unit between two layers is dropped, in training. The seed of each call comes
            from torch's generator, so that `torch.manual_seed` gives the same masks again. On CUDA, activation
            checkpointing has the masks of the latest 16 forwards on a stream, and raises `EngineError` for an earlier
            one.
        bidirectional: whether each layer runs backward in time too, beside forward.
        proj_size: width of h after its projection; 0 for none.
        device: where `params` is made; None for torch's default.
        dtype: of `params`; None for torch's default.

    Shapes:
        params: [params_size], as an op's on the same device.

    Raises:
        ArgumentError: a value that torch's module refuses too.
        ArgumentTypeError: a value of the wrong type.

    Source: torch.nn.LSTM (2.13) for the signature, names, shapes and initial values.
    """

    _mode = RNNMode.LSTM


class GRU(_RNN):
    """The GRU, in place of `torch.nn.GRU`: torch's is cuDNN's, reset after the recurrent product.

    Arguments and errors are those of `LSTM`; a projection is refused, as by torch.
    """

    _mode = RNNMode.GRU


class RNN(_RNN):
    """The tanh or relu RNN, in place of `torch.nn.RNN`; the other arguments are those of `LSTM`.

    Args:
        nonlinearity: "tanh" or "relu".

    Raises:
        ArgumentError: another nonlinearity, or what `LSTM` refuses.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if check_text("nonlinearity", nonlinearity) not in {"tanh", "relu"}:
            raise ArgumentError("nonlinearity", "'tanh' or 'relu'", shorten(nonlinearity))
        self.nonlinearity = nonlinearity
        self._mode = RNNMode(f"rnn_{nonlinearity}")
        super().__init__(input_size, hidden_size, num_layers, *args, **kwargs)


def _autocasts(data: Any) -> bool:
    """Whether autocast is on where the data is; torch has none for "meta"."""
    on: bool = data.device.type != "meta" and torch.is_autocast_enabled(data.device.type)
    return on


def _num_sequences(batch_sizes: Any, order: Any | None) -> int:
    """Return B of packed data, without reading numbers where it need not: a compiler does not know them."""
    _check_tensor("batch_sizes", batch_sizes)
    kind = batch_sizes.dtype, batch_sizes.device.type
    if batch_sizes.dim() != 1 or not len(batch_sizes) or kind != (torch.int64, "cpu"):
        got = f"{tuple(batch_sizes.shape)} of {kind[0]} on {kind[1]}"
        raise TorchArgumentError("batch_sizes", "an int64 tensor on the CPU, one number per step", got)
    count: int = int(batch_sizes[0]) if order is None else order.size(0)
    if order is None and not torch.compiler.is_compiling() and count < 0:  # the operator checks the rest
        raise TorchArgumentError("batch_sizes", "numbers from 0 on", count)
    return count


def _check_tensor(name: str, value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        raise ArgumentTypeError(name, "a tensor", type(value))
