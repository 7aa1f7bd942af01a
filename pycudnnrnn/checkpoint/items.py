"""The kinds of items in a checkpoint. Each knows its tensors' names, shapes and dtypes, and restores them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from pycudnnrnn import _arrays, _assignment
from pycudnnrnn._arrays import Array
from pycudnnrnn._checks import check_bool, check_text, shorten, some
from pycudnnrnn._tf1.tensors import find_models, tf_tensors
from pycudnnrnn._tf1.variable import OPAQUE_KERNEL, Variable
from pycudnnrnn.checkpoint.folder import is_tensorflow, latest_in
from pycudnnrnn.checkpoint.safetensors_file import OpenFile, Refusal, TensorSpec, opened, parsing
from pycudnnrnn.engines import DropoutState, engine_for
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, CheckpointError, StateError
from pycudnnrnn.layers import RNNLayer
from pycudnnrnn.ops import CudnnRNN
from pycudnnrnn.saveable import CudnnOpaqueParamsSaveable, Saveable
from pycudnnrnn.spec import RNNSpec

STRUCTURE: Final = (
    "mode", "num_layers", "num_units", "input_size", "input_mode", "direction", "num_proj", "bias_mode",
)  # fmt: skip
"""The fields of a spec that decide the meaning of its tensors. Names and shapes do not distinguish tanh from relu."""


class SavedDropout(NamedTuple):
    """A model's dropout state on one engine, as the metadata has it. `nbytes` of data are in a separate tensor."""

    engine: str
    seed: int
    position: int
    nbytes: int

    def name(self, prefix: str) -> str:
        return f"{prefix}dropout_states/{self.engine}"

    def read(self, prefix: str, tensors: Mapping[str, Array]) -> DropoutState:
        data = tensors[self.name(prefix)].tobytes() if self.nbytes else b""
        return DropoutState(self.engine, self.seed, self.position, data)


def dropout_specs(prefix: str, dropout: Sequence[SavedDropout]) -> dict[str, TensorSpec]:
    """Return the tensors that hold the data of dropout states."""
    return {saved.name(prefix): TensorSpec((saved.nbytes,), np.dtype(np.uint8)) for saved in dropout if saved.nbytes}


class Item:
    """One item of a checkpoint. All names are full names.

    `prefix` is the beginning of all names. An RNN under TF's names also has a `spec`, the `scope` that its cells' names
    begin with (slash included), and its name below the prefix, `inner_scope`.
    """

    prefix = scope = inner_scope = ""
    spec: RNNSpec | None = None
    state_keys: frozenset[str] = frozenset()
    """The keys of `state()`."""

    def expected(self, _: Sequence[SavedDropout] = (), /) -> dict[str, TensorSpec]:
        """The tensors that a file must have for this item. The argument has the dropout states in it."""
        return {name: TensorSpec(array.shape, array.dtype) for name, array in self.tensors().items()}

    def tensors(self) -> dict[str, Array]:
        """The current tensors of this item."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """The item's entry in the metadata, as JSON."""
        return {} if self.spec is None else {"spec": self.spec.to_json()}

    def dropout_in(self, key: str, state: dict[str, Any]) -> list[SavedDropout]:
        """Return the dropout states in an item's entry of the metadata, which must be of the same kind of item.

        Raises:
            Refusal: it is another kind of item, or another model.
        """
        if state.keys() != self.state_keys:
            raise Refusal("mismatch", f"{key!r} was another kind of item")
        saved = spec_in(state) if self.spec else None
        for field in STRUCTURE:
            got, expected = getattr(saved, field, None), getattr(self.spec, field, None)
            if got != expected:
                raise Refusal("mismatch", f"{field} of {key!r} is {got}, expecting {expected}")
        return dropout_in(state)

    def writes(self, tensors: Mapping[str, Array], dropout: Sequence[SavedDropout] = (), /) -> list[Callable[[], None]]:
        """Return functions that write checked tensors and dropout states into the item, and do not fail."""
        raise NotImplementedError


def item_of(name: str, thing: Any) -> Item:
    """Return the item for a layer, a saveable, a variable or an array. `name` is the prefix of its names.

    Raises:
        ArgumentTypeError: an object of another kind.
        StateError: a layer that is not built.
    """
    scope = name.removesuffix("/")  # errors and `inspect` show scopes with a slash at the end
    if isinstance(thing, RNNLayer):
        return _LayerItem(scope, thing)
    if isinstance(thing, Saveable):
        return _SaveableItem(scope, thing)
    if not isinstance(thing, Variable) and not _arrays.library_of(thing):
        hint = "; an op's params are saved by checkpoint.save(path, op, params)" if isinstance(thing, CudnnRNN) else ""
        raise ArgumentTypeError(f"items[{name!r}]", f"a layer, a saveable, a variable or an array{hint}", type(thing))
    return _ArrayItem(name, thing)


def merged(parts: Iterable[Mapping[str, Array]]) -> dict[str, Array]:
    """Return the tensors of several items together.

    Raises:
        ArgumentError: two of them have one name.
    """
    all_tensors: dict[str, Array] = {}
    for tensors in parts:
        if both := all_tensors.keys() & tensors.keys():
            raise ArgumentError("items", "different names for all tensors", f"{min(both)!r} twice")
        all_tensors |= tensors
    return all_tensors


class _ArrayItem(Item):
    def __init__(self, name: str, thing: Any) -> None:
        self.name = name
        self.array: Any = thing.value if isinstance(thing, Variable) else thing
        self.host: Array = _arrays.to_host(name, self.array)

    def tensors(self) -> dict[str, Array]:
        return {self.name: self.host}

    def writes(self, tensors: Mapping[str, Array], _: Sequence[SavedDropout] = ()) -> list[Callable[[], None]]:
        return [_assignment.assignment(self.name, self.array, tensors[self.name])]


class _SaveableItem(Item):
    def __init__(self, name: str, saveable: Saveable) -> None:
        self.prefix = f"{name}/" if name else ""
        self.saveable = saveable
        if isinstance(saveable, CudnnOpaqueParamsSaveable):
            self.spec, self.inner_scope, self.state_keys = saveable.spec, saveable.scope, frozenset({"spec"})
        self.scope = f"{self.prefix}{self.inner_scope}/" if self.inner_scope else self.prefix

    def expected(self, _: Sequence[SavedDropout] = ()) -> dict[str, TensorSpec]:
        if self.spec is None:
            return super().expected()
        dtype = self.spec.dtype.numpy
        return {self.prefix + name: TensorSpec(shape, dtype) for name, shape in self.saveable.shapes().items()}

    def tensors(self) -> dict[str, Array]:
        return {self.prefix + name: array for name, array in self.saveable.tensors().items()}

    def writes(self, tensors: Mapping[str, Array], _: Sequence[SavedDropout] = ()) -> list[Callable[[], None]]:
        return [self.saveable.restoring({name.removeprefix(self.prefix): array for name, array in tensors.items()})]


class ModelItem(_SaveableItem):
    """A model: an op's weights under TF's names, and its dropout state on each engine that ran it."""

    def __init__(self, prefix: str, op: CudnnRNN, params: Any, name: str, device: str) -> None:
        # The tensors are named by `prefix`, not by the model's name: two models may have the same name.
        super().__init__(prefix, CudnnOpaqueParamsSaveable.of(params, op.spec, None, name))
        self.op, self.name, self.device, self.spec = op, name, device, op.spec
        self.state_keys = frozenset({"spec", "name", "dropout"})

    def expected(self, dropout: Sequence[SavedDropout] = ()) -> dict[str, TensorSpec]:
        return super().expected() | dropout_specs(self.prefix, dropout)

    def tensors(self) -> dict[str, Array]:
        data = {saved.name(self.prefix): state.data for saved, state in self._dropout() if state.data}
        return super().tensors() | {name: np.frombuffer(raw, np.uint8) for name, raw in data.items()}

    def state(self) -> dict[str, Any]:
        return super().state() | {"name": self.name, "dropout": [saved for saved, _ in self._dropout()]}

    def _dropout(self) -> list[tuple[SavedDropout, DropoutState]]:
        """Return the dropout state of each engine that ran the model, and the first one of the model's own engine."""
        engine = engine_for(self.device).name
        states = {engine: DropoutState(engine, self.op.spec.seed)} | {s.engine: s for s in self.op.dropout_states()}
        return [(SavedDropout(s.engine, s.seed, s.position, len(s.data)), s) for s in states.values()]

    def writes(self, tensors: Mapping[str, Array], dropout: Sequence[SavedDropout] = ()) -> list[Callable[[], None]]:
        states = (saved.read(self.prefix, tensors) for saved in dropout)
        return [*super().writes(tensors), *(partial(self.op.set_dropout_state, state) for state in states)]


class _LayerItem(ModelItem):
    """A layer: a model with a name, and the layer's other variables."""

    def __init__(self, prefix: str, layer: RNNLayer) -> None:
        super().__init__(prefix, *model_of(layer))
        self.inner_scope = layer.scope_name
        self.others = {
            self.prefix + name: variable
            for name, variable in layer.variables_by_name().items()
            if name != OPAQUE_KERNEL
        }

    def expected(self, dropout: Sequence[SavedDropout] = ()) -> dict[str, TensorSpec]:
        return super().expected(dropout) | {name: TensorSpec(v.shape, v.dtype) for name, v in self.others.items()}

    def tensors(self) -> dict[str, Array]:
        return super().tensors() | {name: _arrays.to_host(name, v.value) for name, v in self.others.items()}

    def writes(self, tensors: Mapping[str, Array], dropout: Sequence[SavedDropout] = ()) -> list[Callable[[], None]]:
        others = [variable.assigning(name, tensors[name]) for name, variable in self.others.items()]
        return [*super().writes(tensors, dropout), *others]


def model_of(layer: RNNLayer) -> tuple[CudnnRNN, Any, str, str]:
    """Return the op, params, name and device of a layer.

    Raises:
        StateError: a layer that is not built.
    """
    if not layer.built:
        how = "call it once, or build(input_shape)"
        raise StateError(f"the layer {layer.name!r} is not built, and has no weights yet: {how}")
    return layer.op, layer.params, layer.name, layer.device or "cpu"


def states_in(metadata: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the saved state of each item in a file, by key."""
    states: dict[str, dict[str, Any]] = json.loads(metadata["items"])
    for key, state in states.items():
        if not isinstance(state, dict):
            raise TypeError(f"the state of {shorten(key)} is {shorten(state)}")
    return states


def spec_in(state: Mapping[str, Any]) -> RNNSpec:
    """Read and validate the spec in an item's state."""
    return RNNSpec.from_json(check_text("spec", state["spec"]))


def dropout_in(state: Mapping[str, Any]) -> list[SavedDropout]:
    """Read and validate the dropout states in an item's state; items other than models have none."""
    states = [SavedDropout(*row) for row in state.get("dropout", [])]
    for saved in states:
        DropoutState(saved.engine, saved.seed, saved.position)
    return states


def check_has_room(specs: Mapping[str, TensorSpec], spec: RNNSpec) -> None:
    """Refuse a model with more layers than the file has tensors, before work is done for each layer."""
    if spec.num_pseudo_layers > len(specs):
        raise Refusal("mismatch", f"a spec of {spec.num_pseudo_layers} pseudo-layers, in {len(specs)} tensors")


MODEL: Final = "model"
"""The key of the one model that `save` writes. The names of its tensors do not contain it."""


def read_model(path: Path, require_finite: bool) -> tuple[RNNSpec, str, Callable[[CudnnRNN, Any], None]]:
    """Read a file of `save`. Return the model's spec and name, and what writes its state into an op and its params.

    The spec in the file is compared with the tensors before anything of its size is allocated.

    Raises:
        CheckpointError: the file is damaged, or not one model.
    """
    check_bool("require_finite", require_finite)
    place = latest_in(path)
    if is_tensorflow(place):
        why = "a TensorFlow checkpoint describes no layer: build it, and restore it with Saver({scope: layer})"
        raise CheckpointError(path, "mismatch", f"{why}; inspect(path).items has the scopes")
    with opened(place) as file:
        with parsing("the metadata"):
            states = states_in(file.metadata)
            if states.keys() != {MODEL}:
                keys = some(sorted(states), shorten) or "nothing"
                raise Refusal("mismatch", f"of a Saver of {keys}, not of checkpoint.save: restore it there")
            spec, dropout = spec_in(states[MODEL]), dropout_in(states[MODEL])
            name = check_text("name", states[MODEL]["name"])
            if not name:
                raise ValueError("the layer's name is empty")
            check_has_room(file.specs, spec)
        expected = {tensor.name: TensorSpec(tensor.shape, spec.dtype.numpy) for tensor in tf_tensors(spec)}
        file.check(expected | dropout_specs("", dropout))
        tensors = file.tensors(require_finite=require_finite)

    def put_into(op: CudnnRNN, params: Any) -> None:
        CudnnOpaqueParamsSaveable.of(params, spec, None, name).restore(tensors)
        for saved in dropout:
            op.set_dropout_state(saved.read("", tensors))

    return spec, name, put_into


class Model(NamedTuple):
    """An RNN in a file. `scope` is the prefix of its cells' names, with the slash."""

    spec: RNNSpec
    scope: str


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
    shapes = {name: spec.shape for name, spec in file.specs.items()}
    free = [model.scope for model in find_models(shapes)]
    models: dict[str, Model | None] = dict.fromkeys(states)
    for key in sorted((key for key, state in states.items() if "spec" in state), key=len, reverse=True):
        # A saveable adds its own scope to its key, below which a longer key may be. In a file of `save`, or of a
        # sequence of items, the names do not contain the key.
        spec, prefix = spec_in(states[key]), f"{key.removesuffix('/')}/" if key else ""
        check_has_room(file.specs, spec)
        inner = [scope for scope in free if scope.startswith(prefix)]
        fitting = [
            scope
            for scope in (prefix, *inner, "")
            if all(shapes.get(scope + tensor.name) == tensor.shape for tensor in tf_tensors(spec))
        ]
        if not fitting:
            raise Refusal("mismatch", f"the tensors of {shorten(key)} are not there, or not as its spec has them")
        if fitting[0] != prefix and len({*fitting} - {""}) > 1:
            scopes = f"{shorten(fitting[0])} or {shorten(fitting[1])}"
            raise Refusal("mismatch", f"the tensors of {shorten(key)} may be at {scopes}: restore them by a Saver")
        models[key] = Model(spec, fitting[0])
        free = [scope for scope in free if scope != fitting[0]]
    return models
