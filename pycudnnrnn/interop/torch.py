"""`LSTM`, `GRU` and `RNN` as subclasses of torch's modules of the same names, which run on this package's engines.

Parameters, initial values, state dicts, copies, checks and errors are torch's. The forward pass is this package's, with
its gradient; and the weights are views of one buffer, as torch has them on CUDA, so that a call copies nothing.
"""

from __future__ import annotations

import operator
from typing import Any, Literal, TypeVar

import numpy as np

from pycudnnrnn._checks import check_type, needs
from pycudnnrnn.errors import ArgumentTypeError
from pycudnnrnn.interop._torch_rules import TorchArgumentError
from pycudnnrnn.schedule import Schedule, check_lengths

with needs("torch", "torch", "pycudnnrnn.interop.torch"):
    import torch
    from torch.nn.utils.rnn import PackedSequence

    from pycudnnrnn.interop._torch_ops import DTYPES, SEEDS, differentiable
    from pycudnnrnn.interop._torch_weights import engine_on, places_of

__all__ = ["GRU", "LSTM", "RNN", "replace_rnns"]
__dir__ = __all__.copy

_Module = TypeVar("_Module", bound=torch.nn.Module)


class _Base(torch.nn.RNNBase):  # type: ignore[misc]  # torch's types are not looked at
    """The forward pass of the three modules, and the buffer of their weights."""

    def forward(self, input: Any, hx: Any = None, lengths: Any = None) -> tuple[Any, Any]:  # noqa: A002  torch's name
        """Run the RNN on a batch, as torch's module of the same name does. `module(input, hx)` calls this.

        Args:
            input: [T, B, I]; [B, T, I] with `batch_first`; [T, I] for one sequence; or a PackedSequence.
            hx: the states before the first step: the pair (h_0, c_0) for the LSTM, the tensor h_0 for the others.
                None: zeros. Default: None.
            lengths: the number of steps of each sequence of a padded batch, from 0 to T: a list, a NumPy array or a
                tensor on the CPU, [B]. The output is zero past a sequence's end, and the states are those of its last
                step; without a step, they are those of `hx`. None: all have T steps. Default: None.

        Returns:
            The pair (output, states). The output has the form of the input. The states are (h_n, c_n) for the LSTM,
            and h_n for the others.

        Raises:
            RuntimeError: a wrong shape or device, as torch's module raises; `lengths` in an export.
            ValueError: a wrong dtype or number of axes, as torch's module raises; wrong `lengths`.
            TypeError: not a tensor; for `lengths`, not integers on the host.
        """
        if torch.jit.is_tracing() or torch.compiler.is_exporting():
            if lengths is not None:
                raise TorchArgumentError("lengths", "None in an export: pack the sequences instead", type(lengths))
            return super().forward(input, hx)  # type: ignore[no-any-return]
        packed = isinstance(input, PackedSequence)
        data, batch_sizes, order, way_back = input if packed else (input, None, None, None)
        if not isinstance(data, torch.Tensor):
            raise ArgumentTypeError("input", "a tensor or a PackedSequence", type(data))
        if lengths is not None:
            return self._padded(input, hx, lengths)
        current = map(self._parameters.get, self._flat_weights_names)
        if not all(map(operator.is_, self._flat_weights, current)):  # torch's own test takes ten times as long
            self._init_flat_weights()  # torch's `_update_flat_weights` does not see a former weight put back
        if not packed and data.dim() not in (2, 3):
            raise ValueError(f"{self._get_name()}: Expected input to be 2D or 3D, got {data.dim()}D instead")
        unbatched = not packed and data.dim() == 2
        turned = self.batch_first and not packed
        if unbatched:
            data = data.unsqueeze(1)
        elif turned:
            data = data.transpose(0, 1)
        self.check_input(data, batch_sizes)
        if not packed and not data.size(0):
            raise TorchArgumentError("input", "at least one step", tuple(data.shape), aspect="shape")
        B = data.size(1) if batch_sizes is None else _num_sequences(batch_sizes, order)
        weights, dtype = self._flat_weights, self._autocast_dtype(data)
        if data.device != weights[0].device:
            raise TorchArgumentError("input", f"{weights[0].device}, the module's", data.device, aspect="device")
        if dtype is not None:
            data = data.to(dtype)
        elif data.dtype != weights[0].dtype:  # torch's check does not look if autocast is on, for any device
            raise TorchArgumentError("input", f"{weights[0].dtype}, the module's", data.dtype, aspect="dtype")
        # The operator reads the batch size of packed data from the states.
        states = [] if hx is None and not packed else self._states(hx, data, B, unbatched=unbatched)
        if order is not None:
            states = [state.index_select(1, order) for state in states]
        keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (data, *states, *weights))
        dropout = float(self.dropout) if self.training and self.num_layers > 1 else 0.0
        seed = torch.randint(SEEDS, (), device="cpu") if dropout else None
        h, c = [*states, None, None][:2]
        y, hy, cy = differentiable(data, batch_sizes, h, c, seed, self._spec_text(), dropout, keep, *weights)
        states = [hy, cy] if self.mode == "LSTM" else [hy]
        if way_back is not None:
            states = [state.index_select(1, way_back) for state in states]
        if packed:
            y = PackedSequence(y, batch_sizes, order, way_back)
        elif unbatched:
            y, states = y.squeeze(1), [state.squeeze(1) for state in states]
        elif turned:
            y = y.transpose(0, 1)
        return y, tuple(states) if self.mode == "LSTM" else states[0]

    def flatten_parameters(self) -> None:
        """Make the weights views of one buffer, in the layout of their device's engine.

        torch's module calls this when it is made, moved, cast or loaded. Weights that something else manages (FSDP,
        `parametrize`, `functional_call`) stay as they are: then each call copies them.
        """
        weights = self._flat_weights
        # Memory that is made in inference mode cannot be trained.
        if torch.is_inference_mode_enabled() or any(type(weight) is not torch.nn.Parameter for weight in weights):
            return
        (dtype, device), *others = {(weight.dtype, weight.device) for weight in weights}
        if others or dtype not in DTYPES or device.type not in {"cpu", "cuda"}:
            return
        if all(map(_is_alone, weights)):
            with torch.no_grad():
                places_of(engine_on(str(device)), self._spec_text(), dtype).flatten(weights)

    def _spec_text(self) -> str:
        sizes = f"{self.num_layers:d} {self.hidden_size:d} {self.input_size:d} {self.proj_size:d}"
        return f"{self.mode} {sizes} {self.bias} {bool(self.bidirectional)}"

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self.flatten_parameters()  # assign=True replaces the weights

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.flatten_parameters()

    def __prepare_scriptable__(self) -> Any:
        """Return torch's module with the same tensors, in which `torch.jit.script` finds only what it knows."""
        if type(self) not in _TORCHS:
            return self
        twin = torch.nn.Module.__new__(_TORCHS[type(self)])
        twin.__dict__.update(self.__dict__)
        return twin

    def _autocast_dtype(self, data: Any) -> Any | None:
        """Return the dtype that autocast has for a call; None if it does not act."""
        kind = data.device.type
        acts = kind != "meta" and torch.is_autocast_enabled(kind) and data.is_floating_point()  # "meta" has none
        return torch.get_autocast_dtype(kind) if acts and self._flat_weights[0].dtype is not torch.float64 else None

    def _states(self, hx: Any, data: Any, B: int, *, unbatched: bool) -> list[Any]:
        """Return the initial states, zeros if there are none, checked, with a batch axis and in the data's dtype."""
        count = self.num_layers * (2 if self.bidirectional else 1)
        h, c = (count, B, self.proj_size or self.hidden_size), (count, B, self.hidden_size)
        shapes = [h, c] if self.mode == "LSTM" else [h]
        if hx is None:
            return [data.new_zeros(shape) for shape in shapes]
        tensors = hx if self.mode == "LSTM" else (hx,)
        if not isinstance(tensors, (tuple, list)) or [*map(torch.is_tensor, tensors)] != [True] * len(shapes):
            raise ArgumentTypeError("hx", "a tensor, for the LSTM a pair (h, c)", type(hx))
        casts, states = self._autocast_dtype(data) is not None, []
        for number, (state, shape) in enumerate(zip(tensors, shapes, strict=True)):
            cast = state.to(data.dtype) if casts and state.is_floating_point() else state
            expected = shape[::2] if unbatched else shape
            if cast.shape != expected or cast.dtype != data.dtype or cast.device != data.device:
                name = f"hx[{number}]" if self.mode == "LSTM" else "hx"
                got = f"{tuple(cast.shape)} of {cast.dtype} on {cast.device}"
                raise TorchArgumentError(name, f"{expected} of {data.dtype} on {data.device}", got)
            states.append(cast.unsqueeze(1) if unbatched else cast)
        return states

    def _padded(self, input: Any, hx: Any, lengths: Any) -> tuple[Any, Any]:  # noqa: A002
        """Run a padded batch as a packed one, without the sequences that have no step.

        torch's functions that pack and pad do not work under `torch.func`.
        """
        if isinstance(input, PackedSequence) or input.dim() != 3:
            raise ArgumentTypeError("input", "a padded batch, a tensor of 3 axes, if lengths are given", type(input))
        B, T = input.shape[:2] if self.batch_first else input.shape[1::-1]
        packing = _packing(lengths, T, B, input.device, batch_first=self.batch_first)
        if packing is None:
            return self.forward(input, hx)
        rows, order, batch_sizes = packing
        states = self._states(hx, input, B, unbatched=False)
        first = [state.index_select(1, order) for state in states]
        packed = PackedSequence(input.flatten(0, 1).index_select(0, rows), batch_sizes)
        (y, *_), last = self.forward(packed, tuple(first) if self.mode == "LSTM" else first[0])
        output = y.new_zeros((T * B, y.size(1))).index_copy(0, rows, y).unflatten(0, input.shape[:2])
        pairs = zip(states, last if self.mode == "LSTM" else [last], strict=True)
        states = [state.to(new.dtype).index_copy(1, order, new) for state, new in pairs]
        return output, tuple(states) if self.mode == "LSTM" else states[0]


class LSTM(_Base, torch.nn.LSTM):  # type: ignore[misc]
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

    The backward direction's names end in `_reverse`.

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
        device: where the weights are created. None: torch's default device. Default: None.
        dtype: dtype of the weights. None: torch's default dtype. Default: None.

    Shapes:
        input: [T, B, I]; [B, T, I] with `batch_first`; [T, I] for one sequence; or a PackedSequence.
        hx: the pair (h_0, c_0): h_0 is [L * D, B, S], c_0 is [L * D, B, U]. Without B if the input has none.
        output: as the input, with D * S in place of I.
        states: the pair (h_n, c_n), as hx.

    Raises:
        ValueError: a wrong value, as torch's module raises.
        TypeError: a value of the wrong type, as torch's module raises.

    Example:
        >>> import torch
        >>> from pycudnnrnn.interop.torch import LSTM
        >>> _ = torch.manual_seed(0)
        >>> module = LSTM(3, 8, num_layers=2)
        >>> output, (h, c) = module(torch.randn(10, 4, 3))
        >>> output.shape, h.shape, c.shape
        (torch.Size([10, 4, 8]), torch.Size([2, 4, 8]), torch.Size([2, 4, 8]))
        >>> output.sum().backward()
        >>> module.weight_hh_l1.grad.shape
        torch.Size([32, 8])
        >>> output, states = module(torch.randn(10, 4, 3), lengths=[10, 3, 0, 7])

    Source: torch.nn.LSTM (2.13), which is the base class.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype
        )


class GRU(_Base, torch.nn.GRU):  # type: ignore[misc]
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

    The backward direction's names end in `_reverse`.

    Gradients, precision and dropout are as for `LSTM`.

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
        device: where the weights are created. None: torch's default device. Default: None.
        dtype: dtype of the weights. None: torch's default dtype. Default: None.

    Shapes:
        input: [T, B, I]; [B, T, I] with `batch_first`; [T, I] for one sequence; or a PackedSequence.
        hx: h_0, [L * D, B, U]. Without B if the input has none.
        output: as the input, with D * U in place of I.
        states: h_n, as hx.

    Raises:
        ValueError: a wrong value, as torch's module raises.
        TypeError: a value of the wrong type, as torch's module raises.

    Example:
        >>> import torch
        >>> from pycudnnrnn.interop.torch import GRU
        >>> _ = torch.manual_seed(0)
        >>> module = GRU(3, 8, bidirectional=True)
        >>> output, h = module(torch.randn(10, 4, 3))
        >>> output.shape, h.shape
        (torch.Size([10, 4, 16]), torch.Size([2, 4, 8]))

    Source: torch.nn.GRU (2.13), which is the base class.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        sizes = input_size, hidden_size, num_layers
        super().__init__(*sizes, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype)


class RNN(_Base, torch.nn.RNN):  # type: ignore[misc]
    """Run a plain RNN with tanh or relu, in place of `torch.nn.RNN`.

    Each step computes, from the input x and the hidden state h::

        h' = tanh(W x + bW + R h + bR)    with nonlinearity="tanh"
        h' = relu(W x + bW + R h + bR)    with nonlinearity="relu"; relu(a) = max(a, 0)

    Letters: T steps, B sequences, I `input_size`, L `num_layers`, D directions (1 or 2), U `hidden_size`.

    The weights have torch's names and shapes. Those of layer k are:

    - `weight_ih_l[k]`: W, [U, I] (above layer 0 [U, D * U]);
    - `weight_hh_l[k]`: R, [U, U];
    - `bias_ih_l[k]` and `bias_hh_l[k]`: bW and bR, [U] each, if `bias`.

    The backward direction's names end in `_reverse`.

    Gradients, precision and dropout are as for `LSTM`.

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
        device: where the weights are created. None: torch's default device. Default: None.
        dtype: dtype of the weights. None: torch's default dtype. Default: None.

    Shapes:
        input: [T, B, I]; [B, T, I] with `batch_first`; [T, I] for one sequence; or a PackedSequence.
        hx: h_0, [L * D, B, U]. Without B if the input has none.
        output: as the input, with D * U in place of I.
        states: h_n, as hx.

    Raises:
        ValueError: a wrong value, as torch's module raises.
        TypeError: a value of the wrong type, as torch's module raises.

    Example:
        >>> import torch
        >>> from pycudnnrnn.interop.torch import RNN
        >>> _ = torch.manual_seed(0)
        >>> module = RNN(3, 8, nonlinearity="relu")
        >>> output, h = module(torch.randn(10, 4, 3))
        >>> output.shape, h.shape
        (torch.Size([10, 4, 8]), torch.Size([1, 4, 8]))

    Source: torch.nn.RNN (2.13), which is the base class.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: Literal["tanh", "relu"] = "tanh",
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        sizes = input_size, hidden_size, num_layers, nonlinearity
        super().__init__(*sizes, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype)


_TORCHS: dict[type[_Base], type[Any]] = {LSTM: torch.nn.LSTM, GRU: torch.nn.GRU, RNN: torch.nn.RNN}


def replace_rnns(model: _Module) -> _Module:
    """Turn each `torch.nn.LSTM`, `GRU` and `RNN` of a model into one of this package, in place.

    Tensors, names, hooks, mode and optimizers stay as they are. Modules of other classes stay, also subclasses of
    torch's.

    Args:
        model: a `torch.nn.Module`, which may itself be one of the three.

    Returns:
        The same model.

    Raises:
        ArgumentTypeError: not a `torch.nn.Module`.

    Example:
        >>> import torch
        >>> from pycudnnrnn.interop.torch import replace_rnns
        >>> model = torch.nn.Sequential(torch.nn.Embedding(10, 3), torch.nn.LSTM(3, 8))
        >>> model = replace_rnns(model)
        >>> isinstance(model[1], torch.nn.LSTM), type(model[1]).__module__
        (True, 'pycudnnrnn.interop.torch')
    """
    check_type("model", model, torch.nn.Module, "a torch.nn.Module")
    for module in model.modules():
        for subclass, base in _TORCHS.items():
            if type(module) is base:
                module.__class__ = subclass
                module.flatten_parameters()
    return model


def _num_sequences(batch_sizes: Any, order: Any | None) -> int:
    """Return B of packed data, without reading numbers if possible: a compiler does not know them."""
    return max(int(batch_sizes[:1].sum()), 0) if order is None else order.size(0)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _packing(lengths: Any, T: int, B: int, device: Any, *, batch_first: bool) -> tuple[Any, Any, Any] | None:
    """Return the places of a padded batch's packed rows, the sequences with steps, longest first, and the batch sizes.

    None if all have T steps.
    """
    if isinstance(lengths, torch.Tensor) and lengths.device.type == "cpu":
        lengths = lengths.numpy(force=True)
    schedule = Schedule(T, B, check_lengths(lengths, T, B, "lengths"))
    if schedule.lengths is None:
        return None
    step, sequence = schedule.rows
    rows = torch.as_tensor(sequence * T + step if batch_first else step * B + sequence, device=device)
    order = torch.as_tensor(schedule.order[: np.count_nonzero(schedule.lengths)], device=device)
    return rows, order, torch.as_tensor(schedule.batch_sizes, dtype=torch.int64, device="cpu")


def _is_alone(weight: Any) -> bool:
    """Return True if nothing else has the weight's memory: no other process, and no tensor that it is a part of."""
    shared = weight.device.type == "cpu" and weight.is_shared()
    return not shared and weight.untyped_storage().nbytes() == weight.nbytes
