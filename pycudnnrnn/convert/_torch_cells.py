"""The recurrent cells in a state dict of PyTorch's, found by the names of their arrays."""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

from pycudnnrnn._messages import Assumption, warn
from pycudnnrnn.convert._cells import Cell, Layers, Stack, bare, choose, nearest, stacks_of
from pycudnnrnn.convert._named import Named, completed
from pycudnnrnn.errors import ConvertError

JOINT: Final = "."
_MODES: Final = {4: "LSTM", 3: "GRU", 1: "RNN"}

_KEY: Final = re.compile(
    r"(?P<scope>(?s:.*?))(?P<own>weight_ih|weight_hh|weight_hr|bias_ih|bias_hh)"
    r"(?:_l(?P<layer>[0-9]{1,6})(?P<back>_reverse)?)?"
)
"""An array of a module (weight_ih_l0) or of a cell (weight_ih), after the name of the module."""

_NUMBERED: Final = re.compile(r"(?P<stack>(?s:.*?))(?P<number>[0-9]{1,6})\.")
"""The scope of a cell in an `nn.ModuleList`."""

_DERIVED: Final = re.compile(
    r"(?P<scope>(?s:.*?))(?:(?P<name>(?:weight|bias)_(?:ih|hh|hr)(?:_l[0-9]+(?:_reverse)?)?)_(?P<mark>raw|g|v)"
    r"|(?P<mark2>parametrizations)\.(?P<name2>[^.]+)\.(?s:.+)|(?P<mark3>_all_weight_values|_packed_weight)(?s:.*))"
)
"""An array from which the module computes a weight."""

_RAW: Final = (
    "{k.replace('module.', '').removesuffix('_raw'): v for k, v in "
    "sorted(state_dict.items(), key=lambda item: item[0].endswith('_raw'))}"
)
_PLAIN: Final = {
    "raw": "is the weight before weight dropout, of AWD-LSTM: a plain state dict is {raw}",
    "g": "is of weight_norm: a plain state dict has torch.nn.utils.remove_weight_norm(module, {name!r}) done before it",
    "parametrizations": "is of a parametrization: a plain state dict has "
    "torch.nn.utils.parametrize.remove_parametrizations(module, {name!r}) done before it",
    "quantized": "holds quantized weights: save the state dict of the module before it is quantized",
}
_PLAIN_OF: Final = {"v": "g", "_all_weight_values": "quantized", "_packed_weight": "quantized"}


def stacks(arrays: Any) -> list[Stack]:
    """Return the RNNs of a state dict, for a list to choose from."""
    named = _entered(arrays)
    return _stacks_in(named, _cells_in(named))


def chosen_cells(arrays: Any, prefix: str, layers: Any) -> tuple[Named, Layers]:
    """Return the cells that the caller means, and the keys of their module.

    Raises:
        ConvertError: there are no such cells, they are not one stack, or the module computes their weights from others.
    """
    named = _entered(arrays)
    cells = _cells_in(named)
    derived = [match for key in named if (match := _DERIVED.fullmatch(key))]
    if not cells and derived:
        _refuse_derived(named, derived[0])
    if not cells:
        raise ConvertError("pytorch", "arrays", nearest(named))
    prefix = completed("pytorch", prefix, JOINT)
    chosen = choose("pytorch", cells, prefix, layers, _stacks_in(named, cells))
    keys = {key for row in chosen for cell in row for key in cell.keys.values()}
    if layers is None and len(chosen) > 1 and chosen[0][0].alone is not None:
        names = ", ".join(cell.scope for row in chosen for cell in row)
        warn(f"read as one stack, in the order of their numbers: {names}", Assumption)
    _check_plain(named, derived, keys)
    named.keep_only(lambda key: key in keys or (layers is None and key.startswith(prefix)))
    _leave_out_copies(named, keys)
    return named, chosen


def _entered(arrays: Any) -> Named:
    """Return the keys of a state dict, without the names of the dicts that all cells are in."""
    named = Named("pytorch", arrays, "", JOINT)
    above = {key.rpartition("/")[0] for key in named if _KEY.fullmatch(key)}
    return Named("pytorch", arrays, f"{above.pop()}/", JOINT) if len(above) == 1 and above != {""} else named


def _cells_in(named: Named) -> list[Cell]:
    groups: dict[tuple[str, str | None, str | None], dict[str, str]] = {}
    for key in named:
        if match := _KEY.fullmatch(key):
            groups.setdefault((match["scope"], match["layer"], match["back"]), {})[match["own"]] = key
    numbers: dict[str, set[int]] = {}
    for scope, layer, _ in groups:
        if not layer and (match := _NUMBERED.fullmatch(scope)):
            numbers.setdefault(match["stack"], set()).add(int(match["number"]))
    lists = {scope for scope, own in numbers.items() if len(own) > 1 and own == {*range(len(own))}}
    cells = []
    for (scope, layer, back), keys in groups.items():
        match = None if layer else _NUMBERED.fullmatch(scope)
        if match and match["stack"] in lists:
            stack, number = match["stack"], match["number"]
            cells.append(Cell(bare(scope), keys, stack, int(number), False, (stack,), scope))
        elif layer:
            own = f"{scope}l{layer}{back or ''}"
            cells.append(Cell(own, keys, scope, int(layer), bool(back), (scope,), None))
        else:
            cells.append(Cell(bare(scope), keys, scope, 0, False, (), scope))
    return cells


def _stacks_in(named: Named, cells: list[Cell]) -> list[Stack]:
    def describe(cell: Cell) -> tuple[str, int, int, str]:
        W, R = cell.keys.get("weight_ih", ""), cell.keys.get("weight_hr", cell.keys.get("weight_hh", ""))
        rows, inputs, _, units = (*named.shape_of(W), *named.shape_of(R), 0, 0, 0, 0)[:4]
        kind = _MODES.get(rows // units if units and rows % units == 0 else 0, "incomplete")
        return kind, inputs, units, named.dtype_of(W)

    return stacks_of(cells, lambda cell: cell.stack, describe)


def _refuse_derived(named: Named, match: re.Match[str]) -> NoReturn:
    mark = match["mark"] or match["mark2"] or match["mark3"]
    name = match["name"] or match["name2"]
    named.refuse(match[0], _PLAIN[_PLAIN_OF.get(mark, mark)].format(name=name, raw=_RAW))


def _check_plain(named: Named, derived: list[re.Match[str]], keys: set[str]) -> None:
    """Check that the module does not compute these weights from others. Warn if the result is there as well.

    Raises:
        ConvertError: it computes one that is not there.
    """
    modules = {match["scope"] for key in keys if (match := _KEY.fullmatch(key))}
    for match in derived:
        module = next((m for m in modules if m in {match["scope"], f"{match['scope']}module."}), None)
        if module is not None:
            plain = f"{module}{match['name'] or match['name2']}"
            if plain not in keys:
                _refuse_derived(named, match)
            warn(f"{plain!r} was read; it may be a dropped-out copy of {match[0]!r}")


def _leave_out_copies(named: Named, keys: set[str]) -> None:
    """Leave out arrays of other cells that are the same as those of `keys`, as Paddle has under two names."""

    def content(key: str) -> tuple[tuple[int, ...], bytes]:
        array = named.array(key)
        return array.shape, array.tobytes()

    others = [key for key in named if key not in keys and _KEY.fullmatch(key)]
    contents = set(map(content, keys if others else ()))
    if copies := named.leave_out(lambda key: key in others and content(key) in contents):
        warn(f"left out, since they are the same arrays under other names: {copies}")
