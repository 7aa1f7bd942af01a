"""The models in a file of this package, each with its spec and the scope of its tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt

from pycudnnrnn._checks import shorten
from pycudnnrnn._tf1.models import find_models
from pycudnnrnn._tf1.tensors import tf_tensors
from pycudnnrnn.checkpoint._file import FORMAT, TENSORS_MAX, Contents, read_foreign
from pycudnnrnn.checkpoint._items import spec_in
from pycudnnrnn.checkpoint._refusal import Refusal, refused
from pycudnnrnn.spec import RNNSpec


class Model(NamedTuple):
    """An RNN in a file. `scope` is the prefix of its cells' names, with the slash."""

    spec: RNNSpec
    scope: str

    def take(self, tensors: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Return its tensors by their names within its scope."""
        return {tensor.name: tensors[self.scope + tensor.name] for tensor in tf_tensors(self.spec)}


def item_states(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the saved state of each item in a file, by key.

    Raises:
        Refusal: the metadata has no such states.
    """
    try:
        states = json.loads(metadata["items"])
    except (KeyError, ValueError, RecursionError) as error:
        raise Refusal("metadata", f"it does not say what it holds: {error!r}") from error
    if not isinstance(states, dict):
        raise Refusal("metadata", "it does not say what it holds by name")
    return states


def read(path: Path) -> tuple[Contents, dict[str, Model | None] | None]:
    """Read any safetensors file. For one of this package, return its models by key, too: None for other items.

    Raises:
        CheckpointError: the file is damaged, or its metadata does not match its tensors.
    """
    contents = read_foreign(path)
    with refused(path):
        return contents, _models_in(contents)


def _models_in(contents: Contents) -> dict[str, Model | None] | None:
    if contents.metadata.get("format") != FORMAT:
        return None
    states = item_states(contents.metadata)
    shapes = {name: array.shape for name, array in contents.tensors.items()}
    scopes = [found.scope for found in find_models(shapes)]
    keys = {_prefix(key) for key in states}
    found: dict[str, Model | None] = {}
    for key, state in states.items():
        found[key] = None
        if isinstance(state, dict) and "spec" in state:
            # A saveable adds its own scope to its key. In a file of `save`, or of a sequence of items, the names do
            # not contain the key.
            inner = [scope for scope in scopes if scope.startswith(_prefix(key)) and scope not in keys]
            found[key] = _model(key, spec_in(state), [_prefix(key), *inner, ""], shapes)
    return found


def _prefix(key: str) -> str:
    return f"{key}/" if key else ""


def _model(key: str, spec: RNNSpec, scopes: list[str], shapes: Mapping[str, tuple[int, ...]]) -> Model:
    if spec.num_pseudo_layers > TENSORS_MAX:
        raise Refusal("spec", f"{spec.num_pseudo_layers} pseudo-layers; the cap is {TENSORS_MAX} tensors")
    expected = tf_tensors(spec)
    for scope in scopes:
        if all(shapes.get(scope + tensor.name) == tensor.shape for tensor in expected):
            return Model(spec, scope)
    raise Refusal("missing tensor", f"the tensors of {shorten(key)} are not there, or not as its spec has them")
