"""One flat parameter with every weight and bias in it, and torch's names for them; see `interop.torch`."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch

from pycudnnrnn.convert._two_biases import form_of
from pycudnnrnn.convert.pytorch import name_of
from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import ArgumentTypeError
from pycudnnrnn.interop._torch_rules import TorchArgumentError
from pycudnnrnn.layout import ParamLayout, Region, arithmetic_layout
from pycudnnrnn.spec import LSTM_PROJECTION_ID, RNNSpec

COMPARED_MAX: Final = 256
"""Most comparisons of layouts in two dtypes that are remembered."""


class _Parameters(dict[str, Any]):
    """A module's parameters. Taking a weight of `parts` for a parameter raises an error that explains it."""

    def __init__(self, parts: Iterable[str], of: str) -> None:
        super().__init__()
        self._parts, self._of = frozenset(parts), of

    def __missing__(self, name: str) -> Any:
        self.check(name)
        raise KeyError(name)

    def __delitem__(self, name: str) -> None:
        self.check(name)
        super().__delitem__(name)

    def check(self, name: str) -> None:
        if name in self._parts:
            expected = (
                "a whole parameter: prune and parametrize work on 'params', and what changes one weight works on "
                f"{self._of}(..., flat=False), which takes this module's state dict"
            )
            raise TorchArgumentError(name, expected, "a part of the parameter 'params'")


class FlatParams(torch.nn.Module):  # type: ignore[misc]  # torch's types are not looked at
    """A module whose weights are parts of its parameter `params`, in the layout of its device's engine.

    With `flat=False` each weight is a parameter, and each call copies them into one buffer.
    """

    flat: bool
    """Whether `params` is the only parameter."""

    params: torch.nn.Parameter
    """Every weight and bias, in one flat tensor. With `flat=False` there is none."""

    def _make_params(self, spec: RNNSpec, like: Any, *, flat: bool) -> None:
        """Create the parameters: zeros, with the device and dtype of `like`."""
        self.flat = flat
        self._spec_json = spec.to_json()
        self._place(self._layout_for(like))
        buffer = like.new_zeros(self._layout.size)
        if flat:
            self._parameters: dict[str, Any] = _Parameters(self._places, type(self).__name__)
            self.params = torch.nn.Parameter(buffer)
            return
        for name in self._places:
            self.register_parameter(name, torch.nn.Parameter(self._read(name, buffer).clone()))

    def named_weights(self, params: Any = None) -> Iterator[tuple[str, Any]]:
        """Yield (name, tensor) for each weight and bias, with torch's names, in torch's order.

        Args:
            params: the flat tensor to read from, such as `module.params.grad`. None: the module's own weights.
                Default: None.
        """
        for name in self._places:
            yield name, getattr(self, name) if params is None else self._read(name, params)

    @property
    def all_weights(self) -> list[list[Any]]:
        """The weights as torch groups them: one list per layer and direction."""
        of_layer = itertools.groupby(self.named_weights(), key=lambda pair: pair[0].partition("_l")[2])
        return [[weight for _, weight in named] for _, named in of_layer]

    def flatten_parameters(self) -> None:
        """Do nothing: each call runs on flat params."""

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__
        if "_places" in state and "params" in state["_parameters"] and name in self._places:
            return self._read(name, state["_parameters"]["params"])
        if name in {"_flat_weights", "_flat_weights_names"}:
            raise AttributeError(f"{name}: every weight is a part of the parameter 'params', and in named_weights()")
        return super().__getattr__(name)

    def register_parameter(self, name: str, param: Any) -> None:
        """Register a further parameter, as `torch.nn.Module` does.

        Args:
            name: name of the parameter, which must not be that of a weight here.
            param: the parameter, or None.

        Raises:
            TorchArgumentError: the name is that of a weight, which is a part of `params`. torch's prune does this.
        """
        if isinstance(self._parameters, _Parameters):
            self._parameters.check(name.removesuffix("_orig"))
        super().register_parameter(name, param)

    def __setattr__(self, name: str, value: Any) -> None:
        state = self.__dict__
        if "params" in state.get("_parameters", ()) and name in self._places:
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

    def _write(self, named: dict[str, Any]) -> None:
        """Copy new values into all weights."""
        with torch.no_grad():
            if self.flat:
                self.params.copy_(self._joined(named))
                return
            for name, values in named.items():
                getattr(self, name).copy_(values)

    def _joined(self, named: dict[str, Any]) -> Any:
        """Return all weights, copied into one flat tensor. Gradients go back to each of them."""
        parts: list[tuple[Region, Any]] = []
        for name, regions in self._places.items():
            parts += zip(regions, named[name].reshape(-1).split([region.size for region in regions]), strict=True)
        return _joined(parts, self._layout.size)

    def _layout_for(self, tensor: Any) -> ParamLayout:
        """Ask the engine of the tensor's device. A device without an engine ("meta") holds no numbers to place."""
        spec = RNNSpec.from_json(self._spec_json).replace(dtype=tensor.dtype)
        if tensor.device.type not in {"cpu", "cuda"}:
            return arithmetic_layout(spec)
        return engine_for(str(tensor.device)).layout(spec)

    def _cast(self, params: Any, dtype: Any) -> Any:
        """Return params in another dtype and in that dtype's layout; gradients come back in this layout."""
        other = _other_layout(self._spec_json, str(params.device), params.dtype, dtype)
        cast = params.to(dtype)
        return cast if other is None else _rearranged(cast, self._layout, other)

    def _place(self, layout: ParamLayout) -> None:
        self._layout = layout
        self._places = _places(RNNSpec.from_json(self._spec_json), layout)

    def _settle(self) -> None:
        """Move the buffer from the layout it was created in to its device's layout, if they differ."""
        old, new = self._layout, self._layout_for(next(weight for _, weight in self.named_weights()))
        if old == new:
            return
        self._place(new)
        if not self.flat:
            return
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
        if self.flat:
            for name, weight in self.named_weights():
                destination[prefix + name] = weight if keep_vars else _with_own_storage(weight.detach())
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.flat:
            del destination[f"{prefix}params"]

    def _load_from_state_dict(self, *arguments: Any) -> None:
        if not self.flat:
            super()._load_from_state_dict(*arguments)
            return
        errors = arguments[-1]
        before = len(errors)
        with self._under_torchs_names() as named:
            super()._load_from_state_dict(*arguments)
        if len({(weight.device, weight.dtype) for weight in named.values()}) > 1:
            errors.append("assign=True replaces one flat buffer: it takes every weight, of one device and dtype.")
        if len(errors) > before:
            return
        first = next(iter(named.values()))
        if (first.device, first.dtype) != (self.params.device, self.params.dtype):
            self._place(self._layout_for(first))
            buffer = first.new_zeros(self._layout.size)
            self.params = torch.nn.Parameter(buffer, requires_grad=self.params.requires_grad)
        self._write(named)

    @contextlib.contextmanager
    def _under_torchs_names(self) -> Iterator[dict[str, Any]]:
        """Let torch's own code see each weight as a separate parameter, in place of `params`."""
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


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _other_layout(spec_json: str, device: str, old: Any, new: Any) -> ParamLayout | None:
    """Return a device's layout in a new dtype, or None if the old dtype has the same; compared once per pair."""
    engine: Any = engine_for(device)
    return _compared(engine, spec_json, old, new)


@functools.lru_cache(maxsize=COMPARED_MAX)
def _compared(engine: Any, spec_json: str, old: Any, new: Any) -> ParamLayout | None:
    spec = RNNSpec.from_json(spec_json)
    before, after = (engine.layout(spec.replace(dtype=dtype)) for dtype in (old, new))
    return None if before == after else after


def _with_own_storage(weight: Any) -> Any:
    """Return the same memory as a tensor with its own storage, if there is memory.

    Code that saves a part of a storage saves all of it, and code that sees two tensors in one storage takes them for
    one weight.
    """
    if type(weight) is not torch.Tensor or weight.device.type == "meta":
        return weight
    with torch.cuda.device_of(weight):  # torch exports from the current device alone
        return torch.from_dlpack(weight)


def _places(spec: RNNSpec, layout: ParamLayout) -> dict[str, tuple[Region, ...]]:
    """Return the regions of each of torch's arrays, in torch's order of names and of gates."""
    first = {"W": 0, "R": spec.num_gates, "P": LSTM_PROJECTION_ID, "bW": 0, "bR": spec.num_gates}
    form = form_of("pytorch", spec.mode, biases=spec.has_input_bias, projection=bool(spec.num_proj))
    return {
        name_of(tensor.name, *divmod(p, spec.num_dirs)): tuple(
            layout.region(p, first[kind] + gate, "bias" if kind.startswith("b") else "weight")
            for kind, gate in tensor.parts
        )
        for p in range(spec.num_pseudo_layers)
        for tensor in form
    }


def _rearranged(params: Any, old: ParamLayout, new: ParamLayout) -> Any:
    """Return a buffer with the same weights in another layout of the same regions."""
    values = (params[region.slice] for region in old.regions)
    return _joined(zip(new.regions, values, strict=True), new.size)


def _joined(parts: Iterable[tuple[Region, Any]], size: int) -> Any:
    """Return a flat tensor of the values of each region, in any order, with zeros between them."""
    pieces: list[Any] = []
    end = 0
    for region, values in sorted(parts, key=lambda part: part[0].offset):
        pieces += [values.new_zeros(region.offset - end), values]
        end = region.slice.stop
    return torch.cat([*pieces, pieces[-1].new_zeros(size - end)])
