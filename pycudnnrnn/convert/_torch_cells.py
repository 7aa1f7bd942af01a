"""The recurrent cells in a state dict of PyTorch's, found by the names of their arrays."""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

from pycudnnrnn._messages import Assumption, warn
from pycudnnrnn.convert._cells import Cell, Layers, Stack, bare, choose_under, grouped, stacks_of
from pycudnnrnn.convert._named import Named

JOINT: Final = "."

_KEY: Final = re.compile(
    r"(?P<scope>(?s:.*?))(?P<part>weight_ih|weight_hh|weight_hr|bias_ih|bias_hh)"
    r"(?:_l(?P<layer>[0-9]{1,6})(?P<back>_reverse)?)?"
)
"""An array of a module (weight_ih_l0) or of a cell (weight_ih), after the name of the module."""

_NUMBERED: Final = re.compile(r"(?P<stack>(?s:.*?))(?P<number>[0-9]{1,6})\.")
"""The scope of a cell in an `nn.ModuleList`."""

_DERIVED: Final = re.compile(
    r"(?P<scope>(?s:.*?))(?:(?:weight|bias)_(?:ih|hh|hr)\w*(?:(?P<dropped>_raw)|(?P<normed>_[gv]))"
    r"|(?P<parametrized>parametrizations\.(?s:.+))|(?P<quantized>(?:_all_weight_values|_packed_weight)(?s:.*)))"
)
"""An array from which the module computes a weight."""

_PLAIN: Final = {
    "dropped": "is the weight before dropout: name it without _raw, in place of any array of that name",
    "normed": "is of weight_norm: call torch.nn.utils.remove_weight_norm(module, name) before state_dict()",
    "parametrized": "is of a parametrization: call torch.nn.utils.parametrize.remove_parametrizations(module, name) "
    "before state_dict()",
    "quantized": "holds quantized weights: save the state dict of the module before it is quantized",
}


def stacks(arrays: Any) -> list[Stack]:
    """Return the RNNs of a state dict, for a list to choose from."""
    return stacks_of(_cells_in(_entered(arrays)))


def chosen_cells(arrays: Any, prefix: str, layers: Any) -> tuple[Named, Layers]:
    """Return the cells that the caller means, and the keys of their module.

    Raises:
        ConvertError: there are no such cells, they are not one stack, or the module computes their weights from others.
    """
    named = _entered(arrays)
    cells = _cells_in(named)
    derived = [match for key in named if (match := _DERIVED.fullmatch(key))]
    if not cells and derived:
        _refuse(named, derived[0])
    chosen = choose_under(named, cells, prefix, JOINT, layers)
    if layers is None and len(chosen) > 1 and chosen[0][0].alone is not None:
        warn(f"read as one stack, in the order of their numbers: {', '.join(c.scope for [c] in chosen)}", Assumption)
    keys = {key for row in chosen for cell in row for key in cell.keys.values()}
    modules = {match["scope"] for key in keys if (match := _KEY.fullmatch(key))}
    for match in derived:
        if not modules.isdisjoint({match["scope"], f"{match['scope']}module."}):
            _refuse(named, match)
    if others := named.leave_out(lambda key: key not in keys and _KEY.fullmatch(key) is not None):
        warn(f"left out, since they are of other cells: {others}")
    return named, chosen


def _entered(arrays: Any) -> Named:
    """Return the keys of a state dict, without the names of the dicts that all cells are in."""
    named = Named("pytorch", arrays)
    above = {key.rpartition("/")[0] for key in named if _KEY.fullmatch(key)}
    if len(above) == 1 and above != {""}:
        named.enter(f"{above.pop()}/")
    return named


def _place(key: str) -> tuple[Any, str] | None:
    match = _KEY.fullmatch(key)
    return ((match["scope"], match["layer"], match["back"]), match["part"]) if match else None


def _cells_in(named: Named) -> list[Cell]:
    groups = grouped(named, _place)
    numbers: dict[str, set[int]] = {}
    for scope, layer, _ in groups:
        if not layer and (match := _NUMBERED.fullmatch(scope)):
            numbers.setdefault(match["stack"], set()).add(int(match["number"]))
    lists = {scope for scope, found in numbers.items() if len(found) > 1 and found == {*range(len(found))}}
    cells = []
    for (scope, layer, back), keys in groups.items():
        match = None if layer else _NUMBERED.fullmatch(scope)
        if match and match["stack"] in lists:
            stack, number = match["stack"], match["number"]
            cells.append(Cell(bare(scope), keys, stack, int(number), False, (stack,), scope))
        elif layer:
            name = f"{scope}l{layer}{back or ''}"
            cells.append(Cell(name, keys, scope, int(layer), bool(back), (scope,), None))
        else:
            cells.append(Cell(bare(scope), keys, scope, 0, False, (), scope))
    return cells


def _refuse(named: Named, match: re.Match[str]) -> NoReturn:
    named.refuse(match[0], _PLAIN[str(match.lastgroup)])
