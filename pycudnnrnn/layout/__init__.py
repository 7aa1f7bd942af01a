"""Where every matrix and bias of every gate sits in the opaque params buffer: pure arithmetic, in elements."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any, Final, Literal

from pycudnnrnn._checks import shorten
from pycudnnrnn.errors import ArgumentError, LayoutError
from pycudnnrnn.layout._html import html
from pycudnnrnn.spec import GATES, LSTM_PROJECTION_ID, InputMode, RNNSpec

__all__ = ["REGIONS_MAX", "ParamLayout", "Region", "arithmetic_layout", "canonical_shapes", "differences"]
__dir__ = __all__.copy

RegionKind = Literal["weight", "bias"]
Way = Literal["forward", "backward"]
Side = Literal["input", "recurrent", "projection"]

_SYMBOLS: Final[dict[tuple[Side, RegionKind], str]] = {
    ("input", "weight"): "W",
    ("recurrent", "weight"): "R",
    ("projection", "weight"): "P",
    ("input", "bias"): "bW",
    ("recurrent", "bias"): "bR",
}
"""What the equations call a region, by side and kind. Source: cudnnRNNMode_t in cuDNN's reference; P is ours."""

_FIRST_IDS: Final = {gate.name.lower(): int(gate) for gates in GATES.values() for gate in gates}
"""The linear-layer id of each gate's input matrix: a gate has the same one in every cell that has it."""

_WORDS: Final = ("layer", "direction", "gate", "kind", "side")
"""What names a region without cuDNN's numbers."""

REGIONS_MAX: Final = 1 << 18
"""Most regions of an arithmetic layout: an LSTM of 16,384 layers. They take a second and 60 MB; nobody runs more."""


@dataclasses.dataclass(frozen=True)
class Region:
    """One matrix or bias in the params buffer.

    `pseudo_layer` is layer * num_dirs + direction; `lin_layer_id` and `kind` are cuDNN's; `gate` is the gate's name, or
    "projection". `offset` counts elements. `shape` is (rows, cols) of a weight, rows = output, or (rows,) of a bias.
    `num_dirs` is the RNN's: 1, or 2 where it runs in both directions.

    A region without elements (layer 0's input matrices under skip_input) has offset 0: cuDNN gives it no address.
    """

    pseudo_layer: int
    lin_layer_id: int
    gate: str
    kind: RegionKind
    offset: int
    shape: tuple[int, ...]
    num_dirs: int = 1

    @property
    def layer(self) -> int:
        """The layer, from 0 on."""
        return self.pseudo_layer // self.num_dirs

    @property
    def direction(self) -> Way:
        """The direction in which its pseudo-layer reads the sequence."""
        return "backward" if self.pseudo_layer % self.num_dirs else "forward"

    @property
    def side(self) -> Side:
        """What it works on: the layer's input, its own last state, or the output that a projection makes narrower."""
        if self.gate == "projection":
            return "projection"
        return "input" if self.lin_layer_id == _FIRST_IDS.get(self.gate, self.lin_layer_id) else "recurrent"

    @property
    def symbol(self) -> str:
        """Its letters in the equations: W or bW of the input, R or bR of the recurrence, P of the projection."""
        return _SYMBOLS[self.side, self.kind]

    @property
    def key(self) -> tuple[int, int, RegionKind]:
        """What names it: pseudo-layer, linear-layer id and kind."""
        return self.pseudo_layer, self.lin_layer_id, self.kind

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def slice(self) -> slice:
        """The region in the flat buffer."""
        return slice(self.offset, self.offset + self.size)


@dataclasses.dataclass(frozen=True)
class ParamLayout:
    """The regions of a params buffer of `size` elements, in canonical order.

    Canonical order is cuDNN's: all weights, then all biases; each pseudo-layer by pseudo-layer, in linear-layer id
    order. Layouts with the same regions in the same places compare equal. Elements that no region covers are padding.

    The regions of an arithmetic layout are made when somebody asks for them: its size alone is known at once.

    Raises:
        LayoutError: regions that overlap or leave the buffer, or more than 262,144 of them by arithmetic.
    """

    size: int
    regions: tuple[Region, ...]

    def __post_init__(self) -> None:
        end, last = 0, None
        for region in sorted((r for r in self.regions if r.size), key=lambda r: r.offset):
            if region.offset < end:
                raise LayoutError(f"{region} overlaps {last}" if last else f"{region} starts before the buffer")
            end, last = region.offset + region.size, region
        if end > self.size:
            raise LayoutError(f"{last} ends at {end}, past the buffer's {self.size} elements")

    @classmethod
    def _arithmetic(cls, spec: RNNSpec) -> ParamLayout:
        made = object.__new__(cls)
        made.__dict__.update(size=_size(spec), _spec=spec)
        return made

    def __getattr__(self, name: str) -> Any:
        spec = self.__dict__.get("_spec")
        if name != "regions" or spec is None:
            raise AttributeError(f"ParamLayout has no attribute {name!r}")
        return self.__dict__.setdefault("regions", _regions(spec))

    def __hash__(self) -> int:
        return hash(self.size)  # cheap: a layout is a key of caches on the hot path

    def _repr_html_(self) -> str:
        return html(self)

    @functools.cached_property
    def weights(self) -> tuple[Region, ...]:
        """The weight regions, in canonical order."""
        return tuple(r for r in self.regions if r.kind == "weight")

    @functools.cached_property
    def biases(self) -> tuple[Region, ...]:
        """The bias regions that exist, in canonical order."""
        return tuple(r for r in self.regions if r.kind == "bias")

    @functools.cached_property
    def _index(self) -> dict[tuple[int, int, str], Region]:
        return {(r.pseudo_layer, r.lin_layer_id, r.kind): r for r in self.regions}

    def region(
        self,
        pseudo_layer: int | None = None,
        lin_layer_id: int | None = None,
        kind: RegionKind | None = None,
        *,
        layer: int | None = None,
        direction: Way | None = None,
        gate: str | None = None,
        side: Side | None = None,
    ) -> Region:
        """Return the one region that is all of what is given: cuDNN's numbers, or words, or both.

        Raises:
            ArgumentError: no region of this layout is, or several are.
        """
        if pseudo_layer is not None and lin_layer_id is not None and kind is not None:
            key = pseudo_layer, lin_layer_id, kind
            if (layer, direction, gate, side) == (None, None, None, None):  # the usual call is one look-up
                try:
                    return self._index[key]
                except KeyError:
                    raise ArgumentError("region", "a (pseudo_layer, lin_layer_id, kind) of this layout", key) from None
        return _only(
            self.regions, pseudo_layer=pseudo_layer, layer=layer, direction=direction, lin_layer_id=lin_layer_id,
            gate=gate, kind=kind, side=side,
        )  # fmt: skip


def _only(regions: tuple[Region, ...], **asked: Any) -> Region:
    """Return the one of `regions` that has all the values asked for; None asks for nothing."""
    left, so_far = list(regions), ""
    for name, value in asked.items():
        if value is None:
            continue
        there = _values(left, name)
        left = [region for region in left if getattr(region, name) == value]
        if not left:
            raise ArgumentError(name, f"{there} {f'where {so_far}' if so_far else 'in this layout'}", shorten(value))
        so_far += f"{', ' if so_far else ''}{name}={value!r}"
    if len(left) == 1:
        return left[0]
    unsaid = [f"{name} ({_values(left, name)})" for name in _WORDS if len({getattr(r, name) for r in left}) > 1]
    expected = f"what only one region is, not {len(left)}: give its {', its '.join(unsaid)} as well"
    raise ArgumentError("region", expected, so_far or "nothing asked for")


def _values(regions: list[Region], name: str) -> str:
    """List the values of one attribute, for an error text."""
    found = dict.fromkeys(getattr(region, name) for region in regions)
    words = [repr(value) for value in found] or ["nothing"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def differences(layout: ParamLayout, other: ParamLayout) -> dict[tuple[int, int, RegionKind], Region | None]:
    """Return what `other` has for each region of `layout` that differs there, by key; None where it has none."""
    theirs = {region.key: region for region in other.regions}
    return {r.key: theirs.get(r.key) for r in layout.regions if theirs.get(r.key) != r}


def arithmetic_layout(spec: RNNSpec) -> ParamLayout:
    """Predict the layout of `spec`: tightly packed, weights before biases, in canonical order.

    This is the NumPy engine's layout. For cuDNN it is a prediction: ask the engine for its own.

    Source: jax.experimental.rnn and MXNet's fused RNN op rely on this order for cuDNN.
    """
    return ParamLayout._arithmetic(spec)  # noqa: SLF001


def _size(spec: RNNSpec) -> int:
    """Count elements: every layer above the first has as many as the second."""
    one, two = (
        sum(math.prod(shape) for *_, shape in canonical_shapes(spec.replace(num_layers=layers))) for layers in (1, 2)
    )
    return one + (spec.num_layers - 1) * (two - one)


def _regions(spec: RNNSpec) -> tuple[Region, ...]:
    count = sum(1 for _ in canonical_shapes(spec.replace(num_layers=1))) * spec.num_layers
    if count > REGIONS_MAX:
        raise LayoutError(f"{spec.num_layers} layers have {count} regions, and at most {REGIONS_MAX} are listed")
    regions = []
    end = 0
    for pseudo_layer, lin_layer_id, gate, kind, shape in canonical_shapes(spec):
        region = Region(pseudo_layer, lin_layer_id, gate, kind, end if math.prod(shape) else 0, shape, spec.num_dirs)
        end += region.size
        regions.append(region)
    return tuple(regions)


def canonical_shapes(spec: RNNSpec) -> Iterator[tuple[int, int, str, RegionKind, tuple[int, ...]]]:
    """Yield (pseudo_layer, lin_layer_id, gate, kind, shape) of every region of `spec`, in canonical order.

    Source: cudnnGetRNNWeightParams (cudnn_adv.h, 9.x) for the ids.
    """
    gates = [gate.name.lower() for gate in GATES[spec.mode]]
    units, state = spec.num_units, spec.state_size
    for pseudo_layer in range(spec.num_pseudo_layers):
        layer = pseudo_layer // spec.num_dirs
        skip = layer == 0 and spec.input_mode is InputMode.SKIP_INPUT
        columns = 0 if skip else spec.layer_input_size(layer)
        for gate_id, gate in enumerate(gates):
            yield pseudo_layer, gate_id, gate, "weight", (units, columns)
        for gate_id, gate in enumerate(gates, len(gates)):
            yield pseudo_layer, gate_id, gate, "weight", (units, state)
        if spec.num_proj:
            yield pseudo_layer, LSTM_PROJECTION_ID, "projection", "weight", (state, units)
    for pseudo_layer in range(spec.num_pseudo_layers):
        if spec.has_input_bias:
            for gate_id, gate in enumerate(gates):
                yield pseudo_layer, gate_id, gate, "bias", (units,)
        if spec.has_recurrent_bias:
            for gate_id, gate in enumerate(gates, len(gates)):
                yield pseudo_layer, gate_id, gate, "bias", (units,)
