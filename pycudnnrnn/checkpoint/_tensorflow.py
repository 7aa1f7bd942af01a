"""Restore a saver's items from a TensorFlow checkpoint, and write them under TensorFlow's names.

TensorFlow puts the variables of an RNN under a scope that only the file records: the layer's own scope if it was built
by a call, or the scope around it if it was built first. So scopes are searched, and a tensor is read only if it can
belong to one item.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pycudnnrnn._tf1.models import FoundRNN, find_models, is_below
from pycudnnrnn._tf1.tensors import cell_scope, look_up, names_of, tf_tensors
from pycudnnrnn.checkpoint._bundle import Bundle, paths
from pycudnnrnn.checkpoint._file import TensorSpec, check_finite
from pycudnnrnn.checkpoint._items import Item
from pycudnnrnn.checkpoint._refusal import Refusal, refused
from pycudnnrnn.checkpoint._similar_names import nearest
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.spec import BiasMode, InputMode, RNNMode, RNNSpec

Array = npt.NDArray[Any]
Write = Callable[[], None]

NAMED_AT_MOST = 8
"""Most names or RNNs of a file that an error lists."""


PIECE = 1 << 18
"""Elements that `scan` shows at a time."""


class _Own(NamedTuple):
    """The name of an item's tensor in the file, and the shape and dtype that it must have."""

    theirs: str
    spec: TensorSpec


def is_one(path: Path) -> bool:
    """Return True if a path means a TensorFlow checkpoint.

    Raises:
        CheckpointError: the operating system does not allow to look.
    """
    with refused(path):
        return paths.is_one(path)


def scan(path: Path, visit: Callable[[str, Array], None]) -> tuple[dict[str, TensorSpec], dict[str, Any], list[str]]:
    """Walk through a checkpoint, one array in memory at a time. `visit` gets its name with its elements, in pieces.

    Returns the shapes and dtypes of the arrays, the RNNs by scope, and the names of the tensors without numbers.

    Raises:
        CheckpointError: the checkpoint is damaged.
    """
    with refused(path), Bundle(path) as bundle:
        specs = bundle.numbers
        for name in specs:
            flat = bundle.read(name).reshape(-1)
            for at in range(0, flat.size, PIECE):
                visit(name, flat[at : at + PIECE])
        models = find_models({name: spec.shape for name, spec in specs.items()})
        scopes = [model.scope for model in models]
        keys = [scope if scopes.count(scope) == 1 else f"{scope} ({model.cell}, {model.num_dirs} directions)"
                for scope, model in zip(scopes, models, strict=True)]  # fmt: skip
        found = {key: model._asdict() for key, model in zip(keys, models, strict=True)}
        return specs, found, sorted(bundle.others)


def restoring(path: Path, items: Mapping[str, Item], *, require_finite: bool) -> list[Write]:
    """Check a checkpoint, and return the functions that write its tensors into the items.

    Raises:
        CheckpointError: the checkpoint is damaged, or lacks tensors of an item, or two items would read one tensor.
    """
    alone: list[str] = []
    with refused(path), Bundle(path) as bundle:
        plan = _plan(bundle, items, alone)
        arrays = {key: {name: bundle.read(place.theirs) for name, place in own.items()} for key, own in plan.items()}
        if require_finite:
            check_finite({place.theirs: arrays[key][name] for key, own in plan.items() for name, place in own.items()})
    for text in alone:
        warnings.warn(f"{path}: {text}", UserWarning, stacklevel=3)
    return [write for key, item in items.items() for write in item.writes(arrays[key], [])]


def tensors(items: Mapping[str, Item]) -> dict[str, Array]:
    """Return the tensors that TensorFlow's saver would write if the items were its cells.

    Raises:
        ArgumentError: an RNN that TensorFlow has no cell for, or two tensors with one name.
    """
    found: dict[str, Array] = {}
    summed = []
    for key, item in items.items():
        own = item.tensors()
        if item.spec is not None:
            _check_has_a_cell(key, item.spec)
            pairs = {item.scope + tensor.name for tensor in tf_tensors(item.spec) if tensor.kind == "pair"}
            summed += [repr(key)] if _differ(own, pairs) else []
            names = item.expected().keys() - pairs  # nor dropout states, which are not variables
            own = {name: array for name, array in own.items() if name in names}
        both = found.keys() & own.keys()
        if both:
            raise ArgumentError("items", "different names for all tensors", f"{min(both)!r} twice")
        found |= own
    if summed:
        text = "TensorFlow's cells have one bias per gate: of two that differ the sum is written, restored in halves"
        warnings.warn(f"{text}, in {', '.join(summed)}", UserWarning, stacklevel=3)
    return found


def _check_has_a_cell(key: str, spec: RNNSpec) -> None:
    gru_with_one = spec.mode is RNNMode.GRU and spec.bias_mode is not BiasMode.DOUBLE
    odd = {
        "input_mode": spec.input_mode is InputMode.SKIP_INPUT,
        "bias_mode": spec.bias_mode is BiasMode.NONE or gru_with_one,
    }
    for field in (field for field, is_odd in odd.items() if is_odd):
        got = f"{field}={str(getattr(spec, field))!r}, which none has"
        raise ArgumentError(f"items[{key!r}]", "an RNN that TensorFlow has a cell for", got)


def _differ(own: Mapping[str, Array], pairs: set[str]) -> bool:
    """Return True if halving the sums would give other biases than these."""
    for name in pairs:
        total = own[name[: -len("_cudnn_0")]]
        if not np.array_equal(own[name], (total / 2).astype(total.dtype), equal_nan=True):
            return True
    return False


def _plan(bundle: Bundle, items: Mapping[str, Item], alone: list[str]) -> dict[str, dict[str, _Own]]:
    """Return the place of each item's tensors. Everything except their bytes is checked. `alone`: see `_scopes`."""
    models = find_models({name: entry.shape for name, entry in bundle.entries.items()})
    scopes = _scopes(bundle, models, items, alone)
    plan = {key: _places(bundle, key, item, scopes.get(key, "")) for key, item in items.items()}
    taken: dict[str, str] = {}
    for key, own in plan.items():
        for name, (theirs, spec) in own.items():
            if theirs in taken:
                both = f"{taken[theirs]!r} and {key!r} would both read {theirs!r}"
                raise Refusal("missing tensor", f"{both}: give them the scopes of the file as keys; {_there(models)}")
            taken[theirs] = key
            if theirs not in bundle.entries:
                raise Refusal("missing tensor", f"{theirs!r} is not there, for {name!r}; {_near(bundle, theirs)}")
            found = bundle.spec(theirs)
            if found.dtype != spec.dtype:
                raise Refusal("dtype", f"{theirs!r} is {found.dtype}, expecting {spec.dtype}, as {key!r} has it")
            if found.shape != spec.shape:
                raise Refusal("shape", f"{theirs!r} is {list(found.shape)}, expecting {list(spec.shape)} for {key!r}")
    return plan


def _scopes(bundle: Bundle, models: list[FoundRNN], items: Mapping[str, Item], alone: list[str]) -> dict[str, str]:
    """Return the scope of each RNN in the file: the one that the item's key or name gives.

    An RNN with TF's default name, or none, gets the only matching scope that is left; `alone` gets a warning about it.
    """
    found: dict[str, str] = {}
    open_: dict[str, RNNSpec] = {}
    for key, item in items.items():
        if item.spec is None:
            continue
        named = [scope for scope in _names_of_scopes(item) if _first(item.spec, scope) in bundle.entries]
        if named:
            found[key] = named[0]
        else:
            open_[key] = item.spec
    taken = set(found.values())
    for key, spec in open_.items():
        left = [m.scope for m in models if m.scope not in taken and _first(spec, m.scope) in bundle.entries]
        cell, item = cell_scope(spec, 0).rstrip("/"), items[key]
        if len(left) != 1 or _name(item) not in {"", f"cudnn_{spec.mode}"}:  # TF's default name
            which = "none is under that name: give its scope as key" if left else "none of these is one"
            there = _there(models) if models else _near(bundle, key)
            raise Refusal("missing tensor", f"{key!r} needs a {cell}; {which}; {there}")
        alone.append(f"nothing names {key!r}, which takes the only {cell} that is left: {left[0].rstrip('/')!r}")
        found[key] = left[0]
    return found


def _name(item: Item) -> str:
    """Return the name of an RNN: its key, or its own name."""
    return item.prefix.rstrip("/") or item.own_scope


def _names_of_scopes(item: Item) -> list[str]:
    """Return the scopes that an item can be under, with their slashes: its key, and its own name below the key."""
    own = f"{item.own_scope}/" if item.own_scope else ""
    return [item.prefix or item.scope, item.prefix + own]


def _first(spec: RNNSpec, scope: str) -> str:
    return scope + tf_tensors(spec)[0].name


def _places(bundle: Bundle, key: str, item: Item, scope: str) -> dict[str, _Own]:
    expected = item.expected()
    if item.spec is None:
        places = {}
        for own, spec in expected.items():
            bare = own.removeprefix(item.prefix)
            theirs = next((name for name in (*names_of(own), *names_of(bare)) if name in bundle.entries), bare)
            places[own] = _Own(theirs, spec)
        return places
    found = dict(_cells(bundle, key, item, item.spec, scope, expected))
    for name in expected.keys() - {item.scope + tensor.name for tensor in tf_tensors(item.spec)}:
        own = name.removeprefix(item.prefix)
        candidates = [scope + own, *(prefix + own for prefix in _names_of_scopes(item))]
        theirs = next((candidate for candidate in candidates if candidate in bundle.entries), candidates[0])
        found[name] = _Own(theirs, expected[name])
    return found


def _cells(
    bundle: Bundle, key: str, item: Item, spec: RNNSpec, scope: str,
    expected: Mapping[str, TensorSpec],
) -> Iterator[tuple[str, _Own]]:  # fmt: skip
    """Yield the places of the tensors of an RNN's cells, after checking that the cells have no others."""
    taken: set[str] = set()
    for tensor, theirs in look_up(spec, bundle.entries, scope.__add__):
        taken.add(theirs)
        own = item.scope + tensor.name
        yield own, _Own(theirs, expected[own])
    around = scope + cell_scope(spec, 0).partition("cell_")[0]
    for name in bundle.entries:
        if name.startswith(around) and name not in taken and not is_below(name, taken):
            raise Refusal("spec", f"{name!r} is a part of that RNN, for which {key!r} has no place")


def _there(models: list[FoundRNN]) -> str:
    named = "; ".join(map(str, models[:NAMED_AT_MOST]))
    more = f" and {len(models) - NAMED_AT_MOST} more" if len(models) > NAMED_AT_MOST else ""
    return f"the file has {named}{more}" if models else "the file has no RNN"


def _near(bundle: Bundle, name: str) -> str:
    near = nearest(name, bundle.entries, NAMED_AT_MOST)
    more = f" and {len(bundle.entries) - len(near)} more" if len(bundle.entries) > len(near) else ""
    return f"the file has {', '.join(map(repr, near))}{more}" if near else "the file has no tensors"
