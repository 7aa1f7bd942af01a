"""Read a file from a `Saver` or `checkpoint.save`, for `pycudnnrnn convert`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pycudnnrnn._checks import some
from pycudnnrnn._messages import warn
from pycudnnrnn._tf1.tensors import from_tf
from pycudnnrnn.checkpoint._items import Model
from pycudnnrnn.convert import Canonical
from pycudnnrnn.errors import ConvertError

NAME: Final = "pycudnnrnn"
"""The name that takes the place of a framework's name."""


def to_canonical(models: dict[str, Model | None], arrays: dict[str, Any], *, prefix: str = "") -> Canonical:
    """Read one model with its spec. `models` are by the keys of their saver, None for an item that is not an RNN.

    `prefix` is the model's key; a file with one model does not need it.

    Raises:
        ConvertError: no such model, or several and no prefix.
    """
    key, model = _chosen(models, prefix)
    others = [other for other in models if other != key]
    if others:
        warn(f"left out, since one model is converted at a time: {_names(others)}")
    weights, biases = from_tf(model.spec, model.take(arrays))
    return Canonical(model.spec, tuple(map(np.array, weights)), tuple(map(np.array, biases)))


def _chosen(items: dict[str, Model | None], prefix: str) -> tuple[str, Model]:
    models = {key: model for key, model in items.items() if model is not None}
    if not models:
        raise ConvertError(NAME, "arrays", f"there is no RNN in this file, only {_names(list(items))}")
    for key, model in models.items():
        if prefix in {key, f"{key}/"} or (not prefix and len(models) == 1):
            return key, model
    there = f"the models of this file are {_names(list(models))}"
    why = f"none is called {prefix!r}" if prefix else "one is converted at a time"
    raise ConvertError(NAME, "prefix", f"{there}: {why}, so give -s prefix=, with one of these names")


def _names(keys: list[str]) -> str:
    return some(sorted(keys), repr) or "nothing"
