"""torch modules in the place of `torch.nn.LSTM`, `GRU` and `RNN`, over one flat parameter.

The parameter `params` is the opaque buffer, so that an optimizer, an all-reduce or a copy between devices handles one
tensor. A state dict has torch's names and shapes all the same, and so has every weight as an attribute
(`module.weight_ih_l0`): a view where the engine keeps a matrix's gates side by side, and a read-only copy where not.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import warnings
from collections.abc import Iterator
from typing import Any, Literal

from pycudnnrnn._checks import check_int, check_real
from pycudnnrnn.convert._gates import order_of
from pycudnnrnn.convert.pytorch import name_of
from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, MissingDependencyError, TorchArgumentError
from pycudnnrnn.interop._torch_ops import SEEDS, Differentiable
from pycudnnrnn.layout import ParamLayout, Region, arithmetic_layout
from pycudnnrnn.spec import INT32_MAX, LSTM_PROJECTION_ID, BiasMode, Direction, RNNMode, RNNSpec

try:
    import torch
    from torch.nn.utils.rnn import PackedSequence
except ImportError as error:
    raise MissingDependencyError("torch", "torch", "pycudnnrnn.interop.torch") from error

__all__ = ["GRU", "LSTM", "RNN"]


class _RNN(torch.nn.Module):  # type: ignore[misc]  # torch's types are not looked at
    """What the three modules share; see `torch.nn.LSTM` for the arguments that they share with torch's.

    Every weight and bias is in `params`: `named_weights` gives them under torch's names. Gradients come in evaluation
    mode too. Gradients of gradients, forward-mode gradients and `vmap` are refused.
    """

    params: torch.nn.Parameter
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
        super().__init__()
        for name, flag in (("bias", bias), ("batch_first", batch_first), ("bidirectional", bidirectional)):
            if not isinstance(flag, bool):
                raise ArgumentTypeError(name, "a bool", repr(flag))
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
        self._spec_json = spec.to_json()
        empty = torch.empty(0, device=device, dtype=dtype)
        self._place(self._layout_for(empty))
        self.params = torch.nn.Parameter(empty.new_zeros(self._layout.size))
        self.reset_parameters()

    def extra_repr(self) -> str:
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

    def named_weights(self, params: Any = None) -> Iterator[tuple[str, Any]]:
        """Yield torch's name of every weight and bias, in torch's order, and where it is in `params`.

        `params` may be another tensor of its shape, such as `module.params.grad`.
        """
        params = self.params if params is None else params
        for name in self._places:
            yield name, self._read(name, params)

    @property
    def all_weights(self) -> list[list[Any]]:
        """The weights of each layer and direction, as torch groups them."""
        per_layer = 2 + 2 * self.bias + (self.proj_size > 0)
        weights = [weight for _, weight in self.named_weights()]
        return [weights[start : start + per_layer] for start in range(0, len(weights), per_layer)]

    def flatten_parameters(self) -> None:
        """Do nothing: there is one flat parameter from the start."""

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:  # noqa: A002  torch's name
        """Run, as torch's module of the same name does.

        Shapes:
            input: [T, B, I], [B, T, I] with `batch_first`, [T, I], or a PackedSequence; hx: [L * D, B, P or U], and
            for LSTM a pair with [L * D, B, U], each without B where the input is; the output and the final states: as
            input and hx.

        Raises:
            TorchArgumentError: a wrong shape, dtype or device.
            ArgumentTypeError: not a tensor, or not a pair of them where the cell has c.
        """
        packed = isinstance(input, PackedSequence)
        parts: tuple[Any, ...] = input if packed else (input, None, None, None)
        data, batch_sizes, order, way_back = parts
        _check_tensor("input", data)
        unbatched = not packed and data.dim() == 2
        batch_axis = 0 if self.batch_first else 1
        if unbatched:
            data = data.unsqueeze(batch_axis)
        self._check_input(data, batch_sizes)
        data, params = self._cast(data)
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
        y, hy, cy, _ = Differentiable.apply(
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

    @property
    def _has_cell_state(self) -> bool:
        return self.mode == "LSTM"

    def _cast(self, data: Any) -> tuple[Any, Any]:
        """Give data and params autocast's dtype where it is on; float64 is left alone, as everywhere in autocast."""
        params, kind = self.params, data.device.type
        if not torch.is_autocast_enabled(kind) or params.dtype is torch.float64:
            return data, params
        dtype = torch.get_autocast_dtype(kind)
        return data.to(dtype), params.to(dtype)

    def _check_input(self, data: Any, batch_sizes: Any | None) -> None:
        dims = 3 if batch_sizes is None else 2
        if data.dim() != dims:
            axes = "[T, B, input_size] or [T, input_size]" if batch_sizes is None else "packed data [rows, input_size]"
            raise TorchArgumentError("input", axes, tuple(data.shape), aspect="shape")
        if data.dtype != self.params.dtype and not torch.is_autocast_enabled(data.device.type):
            raise TorchArgumentError("input", f"{self.params.dtype}, the module's", data.dtype, aspect="dtype")
        if data.device != self.params.device:
            raise TorchArgumentError("input", f"{self.params.device}, the module's", data.device, aspect="device")
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
            if torch.is_autocast_enabled(data.device.type):
                state = state.to(data.dtype)  # noqa: PLW2901
            if state.dtype != data.dtype:
                raise TorchArgumentError(name, f"{data.dtype}, the input's", state.dtype, aspect="dtype")
            found.append(state.unsqueeze(1) if unbatched else state)
        return found

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__
        if "_places" in state and "params" in state["_parameters"] and name in self._places:
            return self._read(name, state["_parameters"]["params"])
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        state = self.__dict__
        if "_places" in state and name not in state["_parameters"] and name in self._places:
            raise ArgumentTypeError(name, f"its values: with torch.no_grad(): module.{name}.copy_(values)", type(value))
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *self._places])

    def _read(self, name: str, params: Any) -> Any:
        regions = self._places[name]
        shape = (sum(region.shape[0] for region in regions), *regions[0].shape[1:])
        if all(a.slice.stop == b.offset for a, b in itertools.pairwise(regions)):
            return params[regions[0].offset : regions[-1].slice.stop].view(shape)
        return torch.cat([params[region.slice] for region in regions]).view(shape)

    def _write(self, name: str, values: Any) -> None:
        start = 0
        flat = values.reshape(-1)
        for region in self._places[name]:
            self.params[region.slice] = flat[start : start + region.size]
            start += region.size

    def _layout_for(self, tensor: Any) -> ParamLayout:
        """Ask the engine that runs where a tensor is; a device without one ("meta") holds no numbers to place."""
        spec = RNNSpec.from_json(self._spec_json).replace(dtype=tensor.dtype)
        if tensor.device.type not in {"cpu", "cuda"}:
            return arithmetic_layout(spec)
        return engine_for(str(tensor.device)).layout(spec)

    def _place(self, layout: ParamLayout) -> None:
        self._layout = layout
        self._places = _places(RNNSpec.from_json(self._spec_json), layout)

    def _settle(self) -> None:
        """Bring the buffer from the layout it was made in to its device's, where they differ."""
        old, new = self._layout, self._layout_for(self.params)
        if old == new:
            return
        self._place(new)
        gradient, self.params.grad = self.params.grad, None
        self.params.data = _rearranged(self.params.data, old, new)
        self.params.grad = None if gradient is None else _rearranged(gradient, old, new)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        self._settle()
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._settle()

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        for name, weight in self.named_weights():
            destination[prefix + name] = weight if keep_vars else weight.detach()
        super()._save_to_state_dict(destination, prefix, keep_vars)
        del destination[f"{prefix}params"]

    def _load_from_state_dict(self, *arguments: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        errors = arguments[-1]
        before = len(errors)
        with self._under_torchs_names() as named:
            super()._load_from_state_dict(*arguments)
        if len({(weight.device, weight.dtype) for weight in named.values()}) > 1:
            errors.append("assign=True replaces one flat buffer: it takes every weight, of one device and dtype.")
        if len(errors) > before:
            return
        first = next(iter(named.values()))
        with torch.no_grad():
            if (first.device, first.dtype) != (self.params.device, self.params.dtype):
                self._place(self._layout_for(first))
                buffer = first.new_zeros(self._layout.size)
                self.params = torch.nn.Parameter(buffer, requires_grad=self.params.requires_grad)
            for name, weight in named.items():
                self._write(name, weight)

    @contextlib.contextmanager
    def _under_torchs_names(self) -> Iterator[dict[str, Any]]:
        """Let torch's own code see every weight as a parameter of its own, in the place of `params`."""
        own: dict[str, Any] = self.__dict__["_parameters"]
        parameter = functools.partial(torch.nn.Parameter, requires_grad=self.params.requires_grad)
        named = {name: parameter(weight.detach().clone()) for name, weight in self.named_weights()}
        others = {name: value for name, value in own.items() if name != "params"}
        self._parameters = both = named | others
        try:
            yield named
        finally:
            named.update((name, both[name]) for name in named)
            own.update((name, both[name]) for name in others)
            self._parameters = own


class LSTM(_RNN):
    """The LSTM, in the place of `torch.nn.LSTM`.

    Raises:
        ArgumentError: a value that torch's module refuses too.
        ArgumentTypeError: a value of the wrong type.

    Source: torch.nn.LSTM (2.13) for the signature, names, shapes and initial values.
    """

    _mode = RNNMode.LSTM


class GRU(_RNN):
    """The GRU, in the place of `torch.nn.GRU`: torch's is cuDNN's, reset after the recurrent product."""

    _mode = RNNMode.GRU


class RNN(_RNN):
    """The tanh or relu RNN, in the place of `torch.nn.RNN`; what follows `nonlinearity` is as in the others.

    Raises:
        ArgumentError: another nonlinearity.
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
        if nonlinearity not in {"tanh", "relu"}:
            raise ArgumentError("nonlinearity", "'tanh' or 'relu'", repr(nonlinearity))
        self.nonlinearity = nonlinearity
        self._mode = RNNMode(f"rnn_{nonlinearity}")
        super().__init__(input_size, hidden_size, num_layers, *args, **kwargs)


def _places(spec: RNNSpec, layout: ParamLayout) -> dict[str, tuple[Region, ...]]:
    """Return the regions that are each of torch's arrays, in torch's order of names and of gates."""
    G = spec.num_gates
    order = order_of("pytorch", spec.mode)
    found = {}
    for p in range(spec.num_pseudo_layers):
        layer, direction = divmod(p, spec.num_dirs)
        stacks: list[tuple[str, Literal["weight", "bias"], int]] = [("W", "weight", 0), ("R", "weight", G)]
        if spec.has_input_bias:
            stacks.extend([("bW", "bias", 0), ("bR", "bias", G)])
        for what, kind, first in stacks:
            found[name_of(what, layer, direction)] = tuple(layout.region(p, first + gate, kind) for gate in order)
        if spec.num_proj:
            found[name_of("projection", layer, direction)] = (layout.region(p, LSTM_PROJECTION_ID, "weight"),)
    return found


def _rearranged(params: Any, old: ParamLayout, new: ParamLayout) -> Any:
    """Return a buffer with the same weights in another layout of the same regions."""
    moved = params.new_zeros(new.size)
    for source, target in zip(old.regions, new.regions, strict=True):
        moved[target.slice] = params[source.slice]
    return moved


def _num_sequences(batch_sizes: Any, order: Any | None) -> int:
    """Return B of packed data, without reading numbers where it need not: a compiler does not know them."""
    count: int = int(batch_sizes[0]) if order is None else order.size(0)
    return count


def _check_tensor(name: str, value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        raise ArgumentTypeError(name, "a tensor", type(value))
