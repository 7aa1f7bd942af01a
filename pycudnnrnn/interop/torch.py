"""torch modules in place of `torch.nn.LSTM`, `GRU` and `RNN`, with one flat parameter.

The parameter `params` holds all weights and biases, so an optimizer, an all-reduce or a copy between devices handles
one tensor. The state dict has torch's names and shapes. Each weight is also an attribute (`module.weight_ih_l0`): a
view of `params` if the engine stores the gates of a matrix next to each other, otherwise a copy, and writing to it
changes nothing. With `flat=False` each weight is a parameter instead, and each call copies all of them into one buffer.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from pycudnnrnn._checks import check_bool, check_dropout, check_int, check_text, needs, shorten
from pycudnnrnn._text import warn
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.interop._torch_rules import TorchArgumentError
from pycudnnrnn.spec import INT32_MAX, BiasMode, Direction, RNNMode, RNNSpec

with needs("torch", "torch", "pycudnnrnn.interop.torch"):
    import torch
    from torch.nn.utils.rnn import PackedSequence

    from pycudnnrnn.interop._torch_ops import SEEDS, differentiable
    from pycudnnrnn.interop._torch_params import FlatParams

__all__ = ["GRU", "LSTM", "RNN"]
__dir__ = __all__.copy


class _RNN(FlatParams):
    """Base of the three modules, which explain the arguments."""

    _mode: RNNMode
    _has_cell_state = False

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
        *,
        flat: bool = True,
    ) -> None:
        super().__init__()
        flags = {"bias": bias, "batch_first": batch_first, "bidirectional": bidirectional, "flat": flat}
        for name, flag in flags.items():
            check_bool(name, flag)
        self.input_size = check_int("input_size", input_size, 1, INT32_MAX)
        self.hidden_size = check_int("hidden_size", hidden_size, 1, INT32_MAX)
        self.num_layers = check_int("num_layers", num_layers, 1, INT32_MAX)
        self.bias, self.batch_first, self.bidirectional = bias, batch_first, bidirectional
        self.dropout = check_dropout(dropout)
        if self.dropout and num_layers == 1:
            warn(f"dropout={dropout} has no effect with one layer: it acts between layers")
        self.proj_size = check_int("proj_size", proj_size, 0, hidden_size - 1)
        if self.proj_size and self._mode is not RNNMode.LSTM:
            raise ArgumentError("proj_size", "0: only the LSTM projects", proj_size)
        self.mode = self._mode.upper()
        spec = RNNSpec(
            self._mode, num_layers, hidden_size, input_size,
            direction=Direction.BIDIRECTIONAL if bidirectional else Direction.UNIDIRECTIONAL,
            num_proj=proj_size or None, bias_mode=BiasMode.DOUBLE if bias else BiasMode.NONE,
        )  # fmt: skip
        self._make_params(spec, torch.empty(0, device=device, dtype=dtype), flat=flat)
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
            "flat": True,
        }
        shown = (f", {name}={getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value)
        return f"{self.input_size}, {self.hidden_size}{''.join(shown)}"

    def reset_parameters(self) -> None:
        """Draw new weights and biases, uniform in ±1 / sqrt(hidden_size), as torch does.

        The same seed draws the same numbers as in torch's module.
        """
        bound = 1 / math.sqrt(self.hidden_size)
        empty = ((name, torch.empty_like(weight, requires_grad=False)) for name, weight in self.named_weights())
        self._write({name: torch.nn.init.uniform_(weight, -bound, bound) for name, weight in empty})

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:  # noqa: A002  torch's name
        """Run the RNN on a batch, as torch's module of the same name does. `module(input, hx)` calls this.

        Args:
            input: [T, B, I]; [B, T, I] with `batch_first`; [T, I] for one sequence; or a PackedSequence.
            hx: the states before the first step: the pair (h_0, c_0) for the LSTM, the tensor h_0 for the others.
                None: zeros. Default: None.

        Returns:
            The pair (output, states). The output has the form of the input. The states are (h_n, c_n) for the LSTM,
            and h_n for the others.

        Raises:
            TorchArgumentError: a wrong shape, dtype or device, or a torch.fx trace of this module by itself.
            ArgumentTypeError: not a tensor, or for the LSTM not a pair of tensors.
        """
        if isinstance(input, torch.fx.Proxy):
            return self._traced(input, hx)
        packed = isinstance(input, PackedSequence)
        parts: tuple[Any, ...] = input if packed else (input, None, None, None)
        data, batch_sizes, order, way_back = parts
        _check_tensor("input", data)
        kind = data.device.type
        autocasts = kind != "meta" and torch.is_autocast_enabled(kind)  # torch has no autocast for "meta"
        unbatched = not packed and data.dim() == 2
        batch_axis = 0 if self.batch_first else 1
        if unbatched:
            data = data.unsqueeze(batch_axis)
        params = self.params if self.flat else self._joined(dict(self.named_weights()))
        self._check_input(data, params, batch_sizes, autocasts=autocasts)
        if autocasts and params.dtype is not torch.float64:  # which autocast leaves alone everywhere
            dtype = torch.get_autocast_dtype(kind)
            data, params = data.to(dtype), self._cast(params, dtype)
        B = data.size(batch_axis) if not packed else _num_sequences(batch_sizes, order)
        states = [] if hx is None else self._states(hx, data, B, unbatched=unbatched, autocasts=autocasts)
        if packed and not states:  # the operator reads the batch size of packed data from the states
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
        """Record this module as a leaf of a torch.fx trace. The tracer recognizes torch's own by their package."""
        tracer = arguments[0].tracer
        path = tracer.path_of_module(self)
        if not path:
            raise TorchArgumentError("module", "one that has this one inside: a trace has it as a leaf", "nothing else")
        node: tuple[Any, Any] = tracer.create_proxy("call_module", path, arguments, {})
        return node

    def _check_input(self, data: Any, params: Any, batch_sizes: Any | None, *, autocasts: bool) -> None:
        dims = 3 if batch_sizes is None else 2
        if data.dim() != dims:
            axes = "[T, B, input_size] or [T, input_size]" if batch_sizes is None else "packed data [rows, input_size]"
            raise TorchArgumentError("input", axes, tuple(data.shape), aspect="shape")
        if data.dtype != params.dtype and not (autocasts and data.is_floating_point()):
            raise TorchArgumentError("input", f"{params.dtype}, the module's", data.dtype, aspect="dtype")
        if data.device != params.device:
            raise TorchArgumentError("input", f"{params.device}, the module's", data.device, aspect="device")
        if data.size(-1) != self.input_size:
            expected = f"a last axis of input_size={self.input_size}"
            raise TorchArgumentError("input", expected, tuple(data.shape), aspect="shape")
        if params.shape != (self._layout.size,):
            expected = f"({self._layout.size},), all weights and biases"
            raise TorchArgumentError("params", expected, tuple(params.shape), aspect="shape")
        if batch_sizes is None and data.size(1 if self.batch_first else 0) == 0:
            raise TorchArgumentError("input", "at least one step", tuple(data.shape), aspect="shape")

    def _state_shapes(self, B: int) -> list[tuple[int, int, int]]:
        count = self.num_layers * (2 if self.bidirectional else 1)
        h, c = (count, B, self.proj_size or self.hidden_size), (count, B, self.hidden_size)
        return [h, c] if self._has_cell_state else [h]

    def _states(self, hx: Any, data: Any, B: int, *, unbatched: bool, autocasts: bool) -> list[Any]:
        """Return the given initial states, checked, with a batch axis and in the data's dtype."""
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
            if autocasts and state.is_floating_point():
                state = state.to(data.dtype)  # noqa: PLW2901
            if state.dtype != data.dtype:
                raise TorchArgumentError(name, f"{data.dtype}, the input's", state.dtype, aspect="dtype")
            found.append(state.unsqueeze(1) if unbatched else state)
        return found


class LSTM(_RNN):
    """Run a long short-term memory RNN, in place of `torch.nn.LSTM`.

    Each step computes, from the input x, the hidden state h and the cell state c::

        i  = sigmoid(W_i x + bW_i + R_i h + bR_i)    input gate
        f  = sigmoid(W_f x + bW_f + R_f h + bR_f)    forget gate
        n  = tanh(W_n x + bW_n + R_n h + bR_n)       new value
        o  = sigmoid(W_o x + bW_o + R_o h + bR_o)    output gate
        c' = f * c + i * n
        h' = o * tanh(c')                            with proj_size: P (o * tanh(c'))

    `*` multiplies element by element.

    Letters: T steps, B sequences, I `input_size`, L `num_layers`, D directions (1 or 2), U `hidden_size`, P
    `proj_size`, and S for the width of h: P with a projection, otherwise U.

    The weights have torch's names and shapes. Those of layer k, with the gates in the order i, f, n, o, are:

    - `weight_ih_l[k]`: W, [4 * U, I] (above layer 0 [4 * U, D * S]);
    - `weight_hh_l[k]`: R, [4 * U, S];
    - `bias_ih_l[k]` and `bias_hh_l[k]`: bW and bR, [4 * U] each, if `bias`;
    - `weight_hr_l[k]`: the projection P, [P, U], if `proj_size`.

    The backward direction's names end in `_reverse`. These names are attributes, keys of the state dict, and in
    `named_weights()`. The module's only parameter is `params`, which contains all weights in cuDNN's layout; with
    `flat=False` each weight is a parameter.

    An optimizer whose rule uses the shape or the norm of each parameter (Adafactor, LAMB, LARS, Muon) sees one vector
    in place of the weights, so it trains differently than with torch's module, or raises an error. Use `flat=False`
    with such an optimizer: it makes each weight a parameter. Optimizers that treat each number separately, such as
    SGD, Adam or AdamW, train both alike.

    Gradients are available in evaluation mode, too. Double backward, forward-mode gradients and `vmap` raise an error.

    On CUDA tensors the module uses the algorithm and math type that torch's module would use. TF32 is used for float32
    if torch allows it (`torch.backends.cudnn.rnn.fp32_precision`), which is torch's default.

    The dropout seed of each call comes from torch's generator, so `torch.manual_seed` reproduces the masks. On CUDA,
    activation checkpointing reproduces the masks of the latest 16 forwards on a stream. It raises `EngineError` for an
    earlier one.

    Args:
        input_size: width of the input, I.
        hidden_size: width of the state, U, in each layer and direction.
        num_layers: number of layers, L. Each one reads the output of the layer below. Default: 1.
        bias: whether each gate has its two biases. Default: True.
        batch_first: True for input and output [B, T, ...], False for [T, B, ...]. States are [L * D, B, ...] either
            way. Default: False.
        dropout: probability from 0 to 1 of dropping a value between two layers, in training only. The other values are
            multiplied by 1 / (1 - dropout). It has no effect with one layer. Default: 0.0.
        bidirectional: True adds a backward direction with separate weights. Each layer then outputs both,
            concatenated, the forward direction first. Default: False.
        proj_size: width to which the output is projected, P, less than hidden_size. 0: no projection. Default: 0.
        device: where `params` is created. None: torch's default device. Default: None.
        dtype: dtype of `params`. None: torch's default dtype. Default: None.
        flat: True keeps all weights in the one parameter `params`. False makes each weight a parameter under torch's
            name. Each call then copies them into one buffer first. Default: True.

    Shapes:
        input: [T, B, I]; [B, T, I] with `batch_first`; [T, I] for one sequence; or a PackedSequence.
        hx: the pair (h_0, c_0): h_0 is [L * D, B, S], c_0 is [L * D, B, U]. Without B if the input has none.
        output: as the input, with D * S in place of I.
        states: the pair (h_n, c_n), as hx.

    Raises:
        ArgumentError: a value that torch's module rejects too.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> import torch
        >>> from pycudnnrnn.interop.torch import LSTM
        >>> _ = torch.manual_seed(0)
        >>> module = LSTM(3, 8, num_layers=2)
        >>> output, (h, c) = module(torch.randn(10, 4, 3))
        >>> output.shape, h.shape, c.shape
        (torch.Size([10, 4, 8]), torch.Size([2, 4, 8]), torch.Size([2, 4, 8]))
        >>> output.sum().backward()
        >>> module.params.grad.shape == module.params.shape
        True

    Source: torch.nn.LSTM (2.13) for the signature, names, shapes and initial values.
    """

    _mode = RNNMode.LSTM
    _has_cell_state = True


class GRU(_RNN):
    """Run a gated recurrent unit RNN, in place of `torch.nn.GRU`.

    Each step computes, from the input x and the hidden state h::

        r  = sigmoid(W_r x + bW_r + R_r h + bR_r)     reset gate
        z  = sigmoid(W_z x + bW_z + R_z h + bR_z)     update gate
        n  = tanh(W_n x + bW_n + r * (R_n h + bR_n))  new value
        h' = (1 - z) * n + z * h

    `*` multiplies element by element. The reset gate acts after the recurrent product, as in torch and cuDNN.

    Letters: T steps, B sequences, I `input_size`, L `num_layers`, D directions (1 or 2), U `hidden_size`.

    The weights have torch's names and shapes. Those of layer k, with the gates in the order r, z, n, are:

    - `weight_ih_l[k]`: W, [3 * U, I] (above layer 0 [3 * U, D * U]);
    - `weight_hh_l[k]`: R, [3 * U, U];
    - `bias_ih_l[k]` and `bias_hh_l[k]`: bW and bR, [3 * U] each, if `bias`.

    The backward direction's names end in `_reverse`. These names are attributes, keys of the state dict, and in
    `named_weights()`. The module's only parameter is `params`, which contains all weights in cuDNN's layout; with
    `flat=False` each weight is a parameter.

    An optimizer whose rule uses the shape or the norm of each parameter (Adafactor, LAMB, LARS, Muon) needs
    `flat=False` to train this module as it trains torch's: see `LSTM`. Gradients, precision and dropout are also as
    for `LSTM`.

    Args:
        input_size: width of the input, I.
        hidden_size: width of the state, U, in each layer and direction.
        num_layers: number of layers, L. Each one reads the output of the layer below. Default: 1.
        bias: whether each gate has its two biases. Default: True.
        batch_first: True for input and output [B, T, ...], False for [T, B, ...]. States are [L * D, B, ...] either
            way. Default: False.
        dropout: probability from 0 to 1 of dropping a value between two layers, in training only. The other values are
            multiplied by 1 / (1 - dropout). It has no effect with one layer. Default: 0.0.
        bidirectional: True adds a backward direction with separate weights. Each layer then outputs both,
            concatenated, the forward direction first. Default: False.
        proj_size: must be 0: only the LSTM projects. Default: 0.
        device: where `params` is created. None: torch's default device. Default: None.
        dtype: dtype of `params`. None: torch's default dtype. Default: None.
        flat: True keeps all weights in the one parameter `params`. False makes each weight a parameter under torch's
            name. Each call then copies them into one buffer first. Default: True.

    Shapes:
        input: [T, B, I]; [B, T, I] with `batch_first`; [T, I] for one sequence; or a PackedSequence.
        hx: h_0, [L * D, B, U]. Without B if the input has none.
        output: as the input, with D * U in place of I.
        states: h_n, as hx.

    Raises:
        ArgumentError: a value that torch's module rejects too.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> import torch
        >>> from pycudnnrnn.interop.torch import GRU
        >>> _ = torch.manual_seed(0)
        >>> module = GRU(3, 8, bidirectional=True)
        >>> output, h = module(torch.randn(10, 4, 3))
        >>> output.shape, h.shape
        (torch.Size([10, 4, 16]), torch.Size([2, 4, 8]))

    Source: torch.nn.GRU (2.13) for the signature, names, shapes and initial values.
    """

    _mode = RNNMode.GRU


class RNN(_RNN):
    """Run a plain RNN with tanh or relu, in place of `torch.nn.RNN`.

    Each step computes, from the input x and the hidden state h::

        h' = tanh(W x + bW + R h + bR)    with nonlinearity="tanh"
        h' = relu(W x + bW + R h + bR)    with nonlinearity="relu"; relu(a) = max(a, 0)

    Letters: T steps, B sequences, I `input_size`, L `num_layers`, D directions (1 or 2), U `hidden_size`.

    The weights have torch's names and shapes. Those of layer k are:

    - `weight_ih_l[k]`: W, [U, I] (above layer 0 [U, D * U]);
    - `weight_hh_l[k]`: R, [U, U];
    - `bias_ih_l[k]` and `bias_hh_l[k]`: bW and bR, [U] each, if `bias`.

    The backward direction's names end in `_reverse`. These names are attributes, keys of the state dict, and in
    `named_weights()`. The module's only parameter is `params`, which contains all weights in cuDNN's layout; with
    `flat=False` each weight is a parameter.

    An optimizer whose rule uses the shape or the norm of each parameter (Adafactor, LAMB, LARS, Muon) needs
    `flat=False` to train this module as it trains torch's: see `LSTM`. Gradients, precision and dropout are also as
    for `LSTM`.

    Args:
        input_size: width of the input, I.
        hidden_size: width of the state, U, in each layer and direction.
        num_layers: number of layers, L. Each one reads the output of the layer below. Default: 1.
        nonlinearity: the activation, "tanh" or "relu". Default: "tanh".
        bias: whether each gate has its two biases. Default: True.
        batch_first: True for input and output [B, T, ...], False for [T, B, ...]. States are [L * D, B, ...] either
            way. Default: False.
        dropout: probability from 0 to 1 of dropping a value between two layers, in training only. The other values are
            multiplied by 1 / (1 - dropout). It has no effect with one layer. Default: 0.0.
        bidirectional: True adds a backward direction with separate weights. Each layer then outputs both,
            concatenated, the forward direction first. Default: False.
        proj_size: must be 0: only the LSTM projects. Default: 0.
        device: where `params` is created. None: torch's default device. Default: None.
        dtype: dtype of `params`. None: torch's default dtype. Default: None.
        flat: True keeps all weights in the one parameter `params`. False makes each weight a parameter under torch's
            name. Each call then copies them into one buffer first. Default: True.

    Shapes:
        input: [T, B, I]; [B, T, I] with `batch_first`; [T, I] for one sequence; or a PackedSequence.
        hx: h_0, [L * D, B, U]. Without B if the input has none.
        output: as the input, with D * U in place of I.
        states: h_n, as hx.

    Raises:
        ArgumentError: another nonlinearity, or a value that torch's module rejects too.
        ArgumentTypeError: a value of the wrong type.

    Example:
        >>> import torch
        >>> from pycudnnrnn.interop.torch import RNN
        >>> _ = torch.manual_seed(0)
        >>> module = RNN(3, 8, nonlinearity="relu")
        >>> output, h = module(torch.randn(10, 4, 3))
        >>> output.shape, h.shape
        (torch.Size([10, 4, 8]), torch.Size([1, 4, 8]))

    Source: torch.nn.RNN (2.13) for the signature, names, shapes and initial values.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: Literal["tanh", "relu"] = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
        *,
        flat: bool = True,
    ) -> None:
        if check_text("nonlinearity", nonlinearity) not in {"tanh", "relu"}:
            raise ArgumentError("nonlinearity", "'tanh' or 'relu'", shorten(nonlinearity))
        self.nonlinearity = nonlinearity
        self._mode = RNNMode(f"rnn_{nonlinearity}")
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype,
            flat=flat,
        )  # fmt: skip


def _num_sequences(batch_sizes: Any, order: Any | None) -> int:
    """Return B of packed data, without reading numbers if possible: a compiler does not know them."""
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
