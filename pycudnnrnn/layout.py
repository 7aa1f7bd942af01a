"""The layout of the flat params buffer: where each matrix and bias is, in elements."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Iterator
from typing import Any, Final, Literal, cast, get_args

from pycudnnrnn import _locks
from pycudnnrnn._checks import check_int, check_type, one_of, shorten
from pycudnnrnn.errors import ArgumentError, LayoutError
from pycudnnrnn.spec import GATES, LSTM_PROJECTION_ID, InputMode, RNNSpec

__all__ = ["REGIONS_MAX", "ParamLayout", "Region", "arithmetic_layout", "canonical_shapes", "differences"]
__dir__ = __all__.copy

RegionKind = Literal["weight", "bias"]
"""What a region holds."""

Way = Literal["forward", "backward"]
"""The direction in which a pseudo-layer reads a sequence."""

Side = Literal["input", "recurrent", "projection"]
"""The product that a region takes part in."""

Gate = Literal["input", "forget", "new", "output", "reset", "update", "hidden", "projection"]
"""The gate of a region: the first four of LSTM, "reset", "update" and "new" of GRU, "hidden" of tanh and relu."""

_LETTERS: Final[dict[Side, str]] = {"input": "W", "recurrent": "R", "projection": "P"}
"""A side's letter in the equations. Source: cudnnRNNMode_t in cuDNN's reference; P is this package's."""

_FIRST_IDS: Final = {gate.name.lower(): int(gate) for gates in GATES.values() for gate in gates}
"""The linear-layer id of each gate's input matrix. A gate has the same id in each cell."""

Differences = dict[tuple[int, int, RegionKind] | Literal["size"], tuple[Any, Any]]
"""What differs between two layouts: each region by its key, and the size."""

COLUMNS: Final = ("pseudo-layer", "layer", "direction", "kind", "id", "symbol", "gate", "shape", "offset", "end")
"""The columns of a layout's table."""

NUMBERS: Final = {"pseudo-layer", "layer", "id", "offset", "end"}
"""Columns that plain text aligns to the right."""

ROWS_MAX: Final = 40
"""Most rows of plain text. Longer tables leave out their middle."""

REGIONS_MAX: Final = 1 << 18
"""Most regions of an arithmetic layout: an LSTM of 16,384 layers. They take a second and 60 MB."""


@dataclasses.dataclass(frozen=True)
class Region:
    """One matrix or bias in the params buffer.

    - `pseudo_layer`: layer * num_dirs + direction, where direction is 0 (forward) or 1 (backward).
    - `lin_layer_id`: cuDNN's number of the matrix or bias within its pseudo-layer.
    - `gate`: the gate's name, or "projection".
    - `kind`: "weight" or "bias".
    - `offset`: the first element in the buffer.
    - `shape`: (output width, input width) of a weight, (output width,) of a bias.
    - `num_dirs`: number of directions of the RNN, 1 or 2.

    Empty regions (the input matrices of layer 0 with "skip_input") have offset 0, because cuDNN gives them no address.
    """

    pseudo_layer: int
    lin_layer_id: int
    gate: Gate
    kind: RegionKind
    offset: int
    shape: tuple[int, ...]
    num_dirs: int = 1

    @property
    def layer(self) -> int:
        """Number of the layer, from 0."""
        return self.pseudo_layer // self.num_dirs

    @property
    def direction(self) -> Way:
        """The direction in which the pseudo-layer reads a sequence."""
        return "backward" if self.pseudo_layer % self.num_dirs else "forward"

    @property
    def side(self) -> Side:
        """The product it takes part in: of the input, of the previous state h ("recurrent"), or the projection."""
        if self.gate == "projection":
            return "projection"
        return "input" if self.lin_layer_id == _FIRST_IDS.get(self.gate, self.lin_layer_id) else "recurrent"

    @property
    def symbol(self) -> str:
        """Its letters in the equations: W or bW of the input, R or bR of the state, P of the projection."""
        return ("b" if self.kind == "bias" else "") + _LETTERS[self.side]

    @property
    def key(self) -> tuple[int, int, RegionKind]:
        """Pseudo-layer, linear-layer id and kind: unique within a layout."""
        return self.pseudo_layer, self.lin_layer_id, self.kind

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def slice(self) -> slice:
        """The slice of the flat buffer that holds the region."""
        return slice(self.offset, self.offset + self.size)

    @property
    def cells(self) -> list[str]:
        """Its row in a layout's table, in the order of `COLUMNS`."""
        numbers = [str(self.pseudo_layer), str(self.layer), self.direction]
        names = [self.kind, str(self.lin_layer_id), self.symbol, self.gate]
        shape = " x ".join(map(str, self.shape))
        return [*numbers, *names, shape, f"{self.offset:,}", f"{self.offset + self.size:,}"]

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Print one line in a failing example of Hypothesis."""
        printer.text(repr(self))


@dataclasses.dataclass(frozen=True, repr=False)
class ParamLayout:
    """The layout of a flat params buffer: where each matrix and bias is.

    Printing a layout shows a table of its regions: W and bW belong to the product of the input, R and bR to that of the
    state h, P is the projection. Layouts of equal size with equal regions are equal.

    `op.layout()` returns a layout.

    Args:
        size: number of elements of the buffer, padding included.
        regions: the matrices and biases, in canonical order: all weights, then all biases; in each, pseudo-layer by
            pseudo-layer, then by linear-layer id. Elements outside of all regions are padding.

    Raises:
        LayoutError: regions that overlap or leave the buffer, that are not in canonical order, or of which two are the
            same matrix or bias; or a region with an impossible word, number or shape.
        ArgumentTypeError: a size that is no integer, or something other than a `Region`.

    Example:
        >>> from pycudnnrnn import ops
        >>> ops.CudnnGRU(1, num_units=3, input_size=2, bias_mode="none").layout()
        ParamLayout: 45 elements, 6 regions
        pseudo-layer  layer  direction  kind    id  symbol  gate    shape  offset  end
                   0      0  forward    weight   0  W       reset   3 x 2       0    6
                   0      0  forward    weight   1  W       update  3 x 2       6   12
                   0      0  forward    weight   2  W       new     3 x 2      12   18
                   0      0  forward    weight   3  R       reset   3 x 3      18   27
                   0      0  forward    weight   4  R       update  3 x 3      27   36
                   0      0  forward    weight   5  R       new     3 x 3      36   45
    """

    size: int
    regions: tuple[Region, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", check_int("size", self.size, 0, sys.maxsize))
        check_type("regions", self.regions, (tuple, list), "a tuple of Region")
        object.__setattr__(self, "regions", tuple(self.regions))
        for region in self.regions:
            _check_region(region)
        if len({region.num_dirs for region in self.regions}) > 1:
            raise LayoutError("its regions must all have the same num_dirs")
        order = [(region.kind == "bias", *region.key[:2]) for region in self.regions]
        for one, other, region in zip(order, order[1:], self.regions[1:], strict=False):
            if one >= other:
                which = "listed twice" if one == other else "not in canonical order"
                raise LayoutError(f"{region} is {which}: all weights, then all biases, each by pseudo-layer and id")
        end, last = 0, None
        for region in sorted((r for r in self.regions if r.size), key=lambda r: r.offset):
            if region.offset < end:
                raise LayoutError(f"{region} overlaps {last}")
            end, last = region.offset + region.size, region
        if end > self.size:
            raise LayoutError(f"{last} ends at {end}, past the buffer's {self.size} elements")

    def __hash__(self) -> int:
        return hash(self.size)  # cheap: each call looks layouts up in caches

    def __repr__(self) -> str:
        left_out = len(self.regions) - ROWS_MAX
        shown = self.regions if left_out <= 0 else self.regions[: ROWS_MAX // 2] + self.regions[-(ROWS_MAX // 2) :]
        rows = [list(COLUMNS), *(region.cells for region in shown)]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        columns = [
            f"{{:{'>' if name in NUMBERS else '<'}{width}}}" for name, width in zip(COLUMNS, widths, strict=True)
        ]
        lines = ["  ".join(columns).format(*cells).rstrip() for cells in rows]
        if left_out > 0:
            lines.insert(1 + ROWS_MAX // 2, f"... {left_out:,} more regions ...")
        return "\n".join([f"ParamLayout: {self.size:,} elements, {len(self.regions):,} regions", *lines])

    @_locks.cached_property
    def weights(self) -> tuple[Region, ...]:
        """The regions of weights, in canonical order."""
        return tuple(r for r in self.regions if r.kind == "weight")

    @_locks.cached_property
    def biases(self) -> tuple[Region, ...]:
        """The regions of biases, in canonical order."""
        return tuple(r for r in self.regions if r.kind == "bias")

    def region(
        self,
        pseudo_layer: int | None = None,
        lin_layer_id: int | None = None,
        kind: RegionKind | None = None,
        *,
        layer: int | None = None,
        direction: Way | None = None,
        gate: Gate | None = None,
        side: Side | None = None,
    ) -> Region:
        """Return the single region that matches all given criteria: cuDNN's numbers, words, or both.

        Args:
            pseudo_layer: layer * num_dirs + direction, where direction is 0 (forward) or 1 (backward).
            lin_layer_id: cuDNN's number of the matrix or bias within its pseudo-layer.
            kind: "weight" or "bias".
            layer: number of the layer, from 0.
            direction: "forward" or "backward".
            gate: "input", "forget", "new" or "output" of LSTM; "reset", "update" or "new" of GRU; "hidden" of tanh and
                relu; or "projection".
            side: "input" for the product of the layer's input, "recurrent" for that of the state h, or "projection".

        Raises:
            ArgumentError: no region matches, or several do.

        Example:
            >>> from pycudnnrnn import ops
            >>> layout = ops.CudnnLSTM(num_layers=1, num_units=3, input_size=2).layout()
            >>> region = layout.region(gate="forget", kind="bias", side="input")
            >>> region.slice
            slice(63, 66, None)
        """
        criteria = {
            "pseudo_layer": pseudo_layer, "layer": layer, "direction": direction, "lin_layer_id": lin_layer_id,
            "gate": gate, "kind": kind, "side": side,
        }  # fmt: skip
        matching, asked = self.regions, ""
        for name, value in criteria.items():
            if value is not None:
                before, matching = matching, tuple(r for r in matching if getattr(r, name) == value)
                if not matching:
                    where = f"where {asked}" if asked else "in this layout"
                    raise ArgumentError(name, f"{_values(before, name)} {where}", shorten(value))
                asked += f"{', ' if asked else ''}{name}={value!r}"
        if len(matching) == 1:
            return matching[0]
        words = ("layer", "direction", "gate", "kind", "side")
        open_names = [name for name in words if len({getattr(r, name) for r in matching}) > 1]
        more = ", ".join(f"{name} ({_values(matching, name)})" for name in open_names)
        expected = f"criteria for one region; {len(matching)} match: add {more}"
        raise ArgumentError("region", expected, asked or "no criteria")


def _check_region(region: Region) -> None:
    """Raise if no RNN has such a region."""
    check_type("regions", region, Region, "a Region each")
    numbers = (region.pseudo_layer, region.lin_layer_id, region.offset, *region.shape)
    if not all(isinstance(n, int) and n >= 0 for n in numbers):
        raise LayoutError(f"{region} has a number that is not an integer from 0")
    if region.kind not in get_args(RegionKind) or region.gate not in get_args(Gate) or region.num_dirs not in {1, 2}:
        raise LayoutError(f"{region} has a kind, a gate or a num_dirs that no RNN has")
    if len(region.shape) != (2 if region.kind == "weight" else 1) or (region.offset and not region.size):
        raise LayoutError(f"{region} must have two widths as a weight, one as a bias, and offset 0 without elements")


def _values(regions: tuple[Region, ...], name: str) -> str:
    """List the values of one attribute, for an error text."""
    values = list(dict.fromkeys(getattr(region, name) for region in regions))
    return one_of(values) if values else "nothing"


def differences(layout: ParamLayout, other: ParamLayout) -> Differences:
    """Compare two layouts: their sizes, and each region of both.

    Args:
        layout: the layout whose values come first.
        other: the layout to compare it with.

    Returns:
        A dict with the pair of values (of `layout`, of `other`) for everything that differs; it is empty if the layouts
        are equal. The key of a region is its `key`, and its value is a pair of regions; None for a layout that does not
        have it. The key of the size is "size".

    Raises:
        ArgumentTypeError: something other than two layouts.

    Example:
        >>> from pycudnnrnn import RNNSpec
        >>> layout = arithmetic_layout(RNNSpec("gru", 1, 3, 2))
        >>> differences(layout, ParamLayout(99, layout.regions))
        {'size': (63, 99)}
    """
    for name, each in (("layout", layout), ("other", other)):
        check_type(name, each, ParamLayout, "a ParamLayout")
    pairs: Differences = {} if layout.size == other.size else {"size": (layout.size, other.size)}
    one, two = ({region.key: region for region in each.regions} for each in (layout, other))
    return pairs | {key: (one.get(key), two.get(key)) for key in one | two if one.get(key) != two.get(key)}


@functools.lru_cache(maxsize=256)
def arithmetic_layout(spec: RNNSpec) -> ParamLayout:
    """Return the layout of a spec by arithmetic: in canonical order, without padding.

    The NumPy engine uses this layout. For cuDNN it is a prediction; `op.layout("cuda")` asks cuDNN.

    Args:
        spec: the RNN to lay out.

    Raises:
        ArgumentError: more than 2**63 - 1 elements.
        ArgumentTypeError: something other than an `RNNSpec`.
        LayoutError: more than 262,144 regions.

    Example:
        >>> from pycudnnrnn import RNNSpec
        >>> arithmetic_layout(RNNSpec("lstm", num_layers=2, num_units=8, input_size=4)).size
        1024

    Source: jax.experimental.rnn and MXNet's fused RNN op rely on this order for cuDNN.
    """
    check_type("spec", spec, RNNSpec, "an RNNSpec (of an op, op.spec)")
    count = spec.num_layers * sum(1 for _ in canonical_shapes(spec.replace(num_layers=1)))
    if count > REGIONS_MAX:
        raise LayoutError(f"{spec.num_layers} layers have {count} regions, and a layout has at most {REGIONS_MAX}")
    regions, end = [], 0
    for pseudo_layer, lin_layer_id, gate, kind, shape in canonical_shapes(spec):
        region = Region(pseudo_layer, lin_layer_id, gate, kind, end if math.prod(shape) else 0, shape, spec.num_dirs)
        end += region.size
        regions.append(region)
    return ParamLayout(end, tuple(regions))


def canonical_shapes(spec: RNNSpec) -> Iterator[tuple[int, int, Gate, RegionKind, tuple[int, ...]]]:
    """Yield (pseudo_layer, lin_layer_id, gate, kind, shape) of each region of a spec, in canonical order.

    Args:
        spec: the RNN to describe.

    Example:
        >>> from pycudnnrnn import RNNSpec
        >>> next(canonical_shapes(RNNSpec("gru", num_layers=1, num_units=3, input_size=2)))
        (0, 0, 'reset', 'weight', (3, 2))

    Source: cudnnGetRNNWeightParams (cudnn_adv.h, 9.x) for the ids.
    """
    gates = [cast("Gate", gate.name.lower()) for gate in GATES[spec.mode]]
    units, state = spec.num_units, spec.state_size
    for pseudo_layer in range(spec.num_pseudo_layers):
        layer = pseudo_layer // spec.num_dirs
        skip = layer == 0 and spec.input_mode is InputMode.SKIP_INPUT
        columns = 0 if skip else spec.layer_input_size(layer)
        for first, width in ((0, columns), (len(gates), state)):
            for gate_id, gate in enumerate(gates, first):
                yield pseudo_layer, gate_id, gate, "weight", (units, width)
        if spec.num_proj:
            yield pseudo_layer, LSTM_PROJECTION_ID, "projection", "weight", (state, units)
    for pseudo_layer in range(spec.num_pseudo_layers):
        for first, has_bias in ((0, spec.has_input_bias), (len(gates), spec.has_recurrent_bias)):
            for gate_id, gate in enumerate(gates if has_bias else (), first):
                yield pseudo_layer, gate_id, gate, "bias", (units,)
