"""The models in a file of this package, each with its spec and the scope of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt

from pycudnnrnn._checks import shorten
from pycudnnrnn._tf1.models import find_models
from pycudnnrnn._tf1.tensors import tf_tensors
from pycudnnrnn.checkpoint._file import OpenFile, TensorSpec, opened
from pycudnnrnn.checkpoint._items import check_has_room, spec_in, states_in
from pycudnnrnn.checkpoint._refusal import Refusal, parsing
from pycudnnrnn.spec import RNNSpec

Array = npt.NDArray[Any]


class Model(NamedTuple):
    """An RNN in a file. `scope` is the prefix of its cells' names, with the slash."""

    spec: RNNSpec
    scope: str

    def take(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """Return its tensors by their names within its scope."""
        return {tensor.name: tensors[self.scope + tensor.name] for tensor in tf_tensors(self.spec)}


def read(path: Path) -> tuple[dict[str, Array], dict[str, str], dict[str, Model | None] | None]:
    """Read the tensors and metadata of any safetensors file, and the models of one of this package by their keys.

    A key has None if its item is not an RNN; a file of another program has None instead of models.

    Raises:
        CheckpointError: the file is damaged, or its metadata does not match its tensors.
    """
    with opened(path, foreign=True) as file:
        with parsing("the metadata"):
            models = _models_in(file) if file.is_ours else None
        return file.tensors(), file.metadata, models


def _models_in(file: OpenFile) -> dict[str, Model | None]:
    states = states_in(file.metadata)
    scopes = [found.scope for found in find_models({name: spec.shape for name, spec in file.specs.items()})]
    keys = {_prefix(key) for key, state in states.items() if "spec" in state}
    found: dict[str, Model | None] = {}
    for key, state in states.items():
        # A saveable adds its own scope to its key. In a file of `save`, or of a sequence of items, the names do not
        # contain the key. A scope that is below a longer key, too, is tried last.
        below = [scope for scope in scopes if scope.startswith(_prefix(key))]
        inner = sorted(below, key=lambda scope: _owner(scope, keys) != _prefix(key))
        own = [_prefix(key), *inner, ""]
        found[key] = _model(key, spec_in(state), own, file.specs) if "spec" in state else None
    return found


def _owner(scope: str, prefixes: set[str]) -> str:
    """Return the longest of the prefixes that a scope begins with."""
    return max(filter(scope.startswith, prefixes), key=len, default="")


def _prefix(key: str) -> str:
    return f"{key}/" if key else ""


def _model(key: str, spec: RNNSpec, scopes: list[str], specs: Mapping[str, TensorSpec]) -> Model:
    check_has_room(specs, spec)
    for scope in scopes:
        if all((found := specs.get(scope + t.name)) and found.shape == t.shape for t in tf_tensors(spec)):
            return Model(spec, scope)
    raise Refusal("mismatch", f"the tensors of {shorten(key)} are not there, or not as its spec has them")
