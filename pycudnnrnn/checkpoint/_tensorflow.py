"""Restore a saver's items from a TensorFlow checkpoint, and write them under TensorFlow's names.

TensorFlow puts the variables of an RNN under a scope that only the file records: the layer's own scope if it was built
by a call, or the scope around it if it was built first. So scopes are searched, and a tensor is read only if it can
belong to one item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from pycudnnrnn._arrays import Array
from pycudnnrnn._checks import some, warn
from pycudnnrnn._tf1.tensors import StoredRNN, cell_scope, find_models, is_below, look_up, names_of, tf_tensors
from pycudnnrnn.checkpoint.bundle import Bundle, opened
from pycudnnrnn.checkpoint.items import Item, merged
from pycudnnrnn.checkpoint.safetensors_file import Refusal, check_finite
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.spec import BiasMode, InputMode, RNNMode, RNNSpec


def restoring(path: Path, items: Mapping[str, Item], *, require_finite: bool) -> list[Callable[[], None]]:
    """Check a checkpoint, and return the functions that write its tensors into the items.

    Raises:
        CheckpointError: the checkpoint is damaged, or lacks tensors of an item, or two items would read one tensor.
    """
    with opened(path) as bundle:
        plan, guesses = _plan(bundle, items)
        arrays = {key: {name: bundle.read(in_file) for name, in_file in names.items()} for key, names in plan.items()}
        if require_finite:
            for tensors_of_item in arrays.values():
                check_finite(tensors_of_item)
    for text in guesses:
        warn(f"{path}: {text}")
    return [write for key, item in items.items() for write in item.writes(arrays[key])]


def tensors(items: Mapping[str, Item]) -> dict[str, Array]:
    """Return the tensors that TensorFlow's saver would write if the items were its cells.

    Raises:
        ArgumentError: an RNN that TensorFlow has no cell for, or two tensors with one name.
    """
    parts, summed = [], []
    for key, item in items.items():
        arrays = item.tensors()
        if item.spec is not None:
            spec, biases = item.spec, item.spec.bias_mode
            no_bias = biases is BiasMode.NONE or (spec.mode is RNNMode.GRU and biases is not BiasMode.DOUBLE)
            if no_bias or spec.input_mode is InputMode.SKIP_INPUT:
                got = f"input_mode={str(spec.input_mode)!r} with bias_mode={str(spec.bias_mode)!r}, which none has"
                raise ArgumentError(f"items[{key!r}]", "an RNN that TensorFlow has a cell for", got)
            pairs = {item.scope + tensor.name for tensor in tf_tensors(item.spec) if tensor.kind == "pair"}
            summed += [repr(key)] if _differ(arrays, pairs) else []
            names = item.expected().keys() - pairs  # nor dropout states, which are not variables
            arrays = {name: array for name, array in arrays.items() if name in names}
        parts.append(arrays)
    together = merged(parts)
    if summed:
        text = "TensorFlow's cells have one bias per gate: of two that differ the sum is written, restored in halves"
        warn(f"{text}, in {', '.join(summed)}")
    return together


def _differ(arrays: Mapping[str, Array], pairs: set[str]) -> bool:
    """Return True if halving the sums would give other biases than these."""
    totals = {name: arrays[name[: -len("_cudnn_0")]] for name in pairs}
    return any(
        not np.array_equal(arrays[name], (total / 2).astype(total.dtype), equal_nan=True)
        for name, total in totals.items()
    )


def _plan(bundle: Bundle, items: Mapping[str, Item]) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return the names in the file of each item's tensors, checked except for their bytes, and `_scopes`' guesses."""
    models = find_models({name: entry.shape for name, entry in bundle.entries.items()})
    scopes, guesses = _scopes(bundle, models, items)
    plan: dict[str, dict[str, str]] = {}
    taken: dict[str, str] = {}
    for key, item in items.items():
        expected = item.expected()
        plan[key] = _names_in_file(bundle, key, item, scopes.get(key, ""), expected)
        for name, in_file in plan[key].items():
            if in_file in taken:
                both = f"{taken[in_file]!r} and {key!r} would both read {in_file!r}"
                raise Refusal(
                    "mismatch", f"{both}: give them the scopes of the file as keys; {_choice(bundle, models)}"
                )
            taken[in_file] = key
            if in_file not in bundle.entries:
                raise Refusal("mismatch", f"{in_file!r} is not there, for {name!r}; the file has {bundle.named()}")
            expected[name].check(in_file, bundle.spec(in_file))
    return plan, guesses


def _scopes(bundle: Bundle, models: list[StoredRNN], items: Mapping[str, Item]) -> tuple[dict[str, str], list[str]]:
    """Return the scope of each RNN in the file: the one that the item's key or name gives.

    An RNN with TF's default name, or none, gets the only matching scope that is left. Such a guess needs a warning,
    whose text is returned, too.
    """
    scopes: dict[str, str] = {}
    for key, item in items.items():
        named = [scope for scope in _names_of_scopes(item) if item.spec and _first(item.spec, scope) in bundle.entries]
        if named:
            scopes[key] = named[0]
    taken, guesses = set(scopes.values()), []
    for key, item in items.items():
        if item.spec is None or key in scopes:
            continue
        left = [m.scope for m in models if m.scope not in taken and _first(item.spec, m.scope) in bundle.entries]
        cell, name = cell_scope(item.spec, 0).rstrip("/"), item.prefix.rstrip("/") or item.inner_scope
        if len(left) != 1 or name not in {"", f"cudnn_{item.spec.mode}"}:  # TF's default name
            which = "none is under that name: give its scope as key" if left else "none of these is one"
            if any(name.endswith("opaque_kernel") for name in bundle.entries) and not left:
                which = "a saveable's restore_opaque reads a raw buffer"
            raise Refusal("mismatch", f"{key!r} needs a {cell}; {which}; {_choice(bundle, models)}")
        guesses.append(f"nothing names {key!r}, which takes the only {cell} that is left: {left[0].rstrip('/')!r}")
        scopes[key] = left[0]
    return scopes, guesses


def _names_of_scopes(item: Item) -> list[str]:
    """Return the scopes that an item can be under, with their slashes: its key, and its own name below the key."""
    inner = f"{item.inner_scope}/" if item.inner_scope else ""
    return [item.prefix or item.scope, item.prefix + inner]


def _first(spec: RNNSpec, scope: str) -> str:
    return scope + tf_tensors(spec)[0].name


def _names_in_file(bundle: Bundle, key: str, item: Item, scope: str, names: Iterable[str]) -> dict[str, str]:
    """Return the name in the file for each of an item's names, after checking that its cells have no other tensors."""
    in_file: dict[str, str] = {}
    if item.spec is not None:
        cells = look_up(item.spec, bundle.entries, scope.__add__)
        in_file = {item.scope + tensor.name: name for tensor, name in cells}
        taken, around = set(in_file.values()), scope + cell_scope(item.spec, 0).partition("cell_")[0]
        for name in bundle.entries:
            if name.startswith(around) and name not in taken and not is_below(name, taken):
                raise Refusal("mismatch", f"{name!r} is a part of that RNN, for which {key!r} has no place")
        names = set(names) - {item.scope + tensor.name for tensor in tf_tensors(item.spec)}
    for name in names:
        bare = name.removeprefix(item.prefix)
        candidates, usual = [*names_of(name), *names_of(bare)], bare
        if item.spec is not None:
            candidates, usual = [prefix + bare for prefix in (scope, *_names_of_scopes(item))], scope + bare
        in_file[name] = next((c for c in candidates if c in bundle.entries), usual)
    return in_file


def _choice(bundle: Bundle, models: list[StoredRNN]) -> str:
    return f"the file has {some(list(map(str, models)), str) or f'no RNN, but {bundle.named()}'}"
