"""The kinds of items in a checkpoint. Each knows its tensors' names, shapes and dtypes, and restores them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _arrays, _overwriting
from pycudnnrnn._tf1.variable import Variable
from pycudnnrnn.checkpoint._file import TensorSpec
from pycudnnrnn.checkpoint._refusal import Refusal
from pycudnnrnn.engines import POSITION_MAX, DropoutState, engine_for
from pycudnnrnn.errors import ArgumentTypeError, StateError
from pycudnnrnn.layers._layer import OPAQUE_KERNEL, RNNLayer
from pycudnnrnn.ops import CudnnRNN
from pycudnnrnn.saveable import CudnnOpaqueParamsSaveable, RNNParamsSaveable
from pycudnnrnn.spec import SEED_MAX, RNNSpec

Array = npt.NDArray[Any]

STRUCTURE = (
    "mode", "num_layers", "num_units", "input_size", "input_mode", "direction", "num_proj", "bias_mode",
)  # fmt: skip
"""The fields of a spec that decide the meaning of its tensors. Names and shapes do not distinguish tanh from relu."""


DROPOUT = "dropout_states/"
"""The prefix of the names of dropout's tensors, within their layer."""

DROPOUT_MAX = 16 << 20
"""Most bytes of a layer's dropout states. cuDNN's grow with the number of threads that a GPU can hold."""


class Item:
    """One item of a checkpoint. All names are full names.

    `prefix` is the beginning of all names. An RNN under TF's names also has a `spec`, the `scope` that its cells' names
    begin with (slash included), and its own name, `own_scope`.
    """

    prefix = scope = own_scope = ""
    spec: RNNSpec | None = None

    def expected(self) -> dict[str, TensorSpec]:
        """The tensors that a file must have for this item."""
        raise NotImplementedError

    def tensors(self) -> dict[str, Array]:
        """The current tensors of this item."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """The item's entry in the metadata, as JSON."""
        raise NotImplementedError

    def check(self, state: Any) -> Any:
        """Parse an entry of the metadata, for `more` and `writes`. Raise `Refusal` if it does not fit this item."""
        raise NotImplementedError

    def more(self, _: Any, /) -> dict[str, TensorSpec]:
        """Further tensors that the file must have, given the result of `check`."""
        return {}

    def writes(self, tensors: Mapping[str, Array], state: Any, /) -> list[Callable[[], None]]:
        """Return functions that write checked tensors and the result of `check` into the item, and do not fail."""
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
    if isinstance(thing, (CudnnOpaqueParamsSaveable, RNNParamsSaveable)):
        return _SaveableItem(scope, thing)
    if not isinstance(thing, Variable) and not _arrays.library_of(thing):
        expected = "a layer, a saveable, a variable or an array" + of_an_op(thing, name)
        raise ArgumentTypeError(f"items[{name!r}]", expected, type(thing))
    return _ArrayItem(name, thing)


def of_an_op(thing: Any, name: str) -> str:
    """Return a hint for an error about an op: its weights are in the params, which the caller has."""
    if not isinstance(thing, CudnnRNN):
        return ""
    saveable = f"saveable.CudnnOpaqueParamsSaveable.of(params, op.spec, None, {name!r})"
    ways = f"checkpoint.save(path, op, params), or by Saver({{{name!r}: {saveable}}})"
    return f"; an op has no weights: its params are saved by {ways}"


class _ArrayItem(Item):
    def __init__(self, name: str, thing: Any) -> None:
        self.name = name
        self.array: Any = thing.value if isinstance(thing, Variable) else thing
        self.host: Array = _arrays.to_host(name, self.array)

    def expected(self) -> dict[str, TensorSpec]:
        return {self.name: TensorSpec(self.host.shape, self.host.dtype)}

    def tensors(self) -> dict[str, Array]:
        return {self.name: self.host}

    def state(self) -> dict[str, Any]:
        return {}

    def check(self, state: Any) -> None:
        if state != {}:
            raise Refusal("metadata", f"{self.name!r} was not an array")

    def writes(self, tensors: Mapping[str, Array], _: Any) -> list[Callable[[], None]]:
        return [_overwriting.overwriting(self.name, self.array, tensors[self.name])]


class _SaveableItem(Item):
    def __init__(self, name: str, saveable: CudnnOpaqueParamsSaveable | RNNParamsSaveable) -> None:
        self.prefix = f"{name}/" if name else ""
        self.saveable = saveable
        if isinstance(saveable, CudnnOpaqueParamsSaveable):
            self.spec, self.own_scope = saveable.spec, saveable.scope
        self.scope = f"{self.prefix}{self.own_scope}/" if self.own_scope else self.prefix

    def expected(self) -> dict[str, TensorSpec]:
        if self.spec is None:
            return {name: TensorSpec(array.shape, array.dtype) for name, array in self.tensors().items()}
        dtype = self.spec.dtype.numpy
        return {self.prefix + name: TensorSpec(shape, dtype) for name, shape in self.saveable.shapes().items()}

    def tensors(self) -> dict[str, Array]:
        return {self.prefix + name: array for name, array in self.saveable.tensors().items()}

    def state(self) -> dict[str, Any]:
        return {} if self.spec is None else {"spec": self.spec.to_json()}

    def check(self, state: Any) -> None:
        check_spec(state, self.spec)

    def writes(self, tensors: Mapping[str, Array], state: Any) -> list[Callable[[], None]]:  # noqa: ARG002
        cut = len(self.prefix)
        own = {name[cut:]: array for name, array in tensors.items() if name.startswith(self.prefix)}
        return [self.saveable.restoring(own)]


class ModelItem(Item):
    """A model: an op's weights under TF's names, and its dropout state on each engine that ran it."""

    def __init__(self, prefix: str, op: CudnnRNN, params: Any, name: str, device: str) -> None:
        self.op, self.name, self.device, self.spec = op, name, device, op.spec
        # The tensors are named by `prefix`, not by the model's name: two models may have the same name.
        self.weights = CudnnOpaqueParamsSaveable.of(params, op.spec, prefix, name)
        self.prefix = self.scope = f"{prefix}/" if prefix else ""

    def expected(self) -> dict[str, TensorSpec]:
        dtype = self.op.spec.dtype.numpy
        return {name: TensorSpec(shape, dtype) for name, shape in self.weights.shapes().items()}

    def more(self, state: list[SavedDropout]) -> dict[str, TensorSpec]:
        return {dropout.name(self.prefix): dropout.expected for dropout in state if dropout.nbytes}

    def tensors(self) -> dict[str, Array]:
        found = self.weights.tensors()
        for state in self._dropout():
            if state.data:
                found[f"{self.prefix}{DROPOUT}{state.engine}"] = np.frombuffer(state.data, np.uint8)
        return found

    def state(self) -> dict[str, Any]:
        rows = [[s.engine, s.seed, s.position, len(s.data)] for s in self._dropout()]
        return {"spec": self.op.spec.to_json(), "name": self.name, "dropout": rows}

    def _dropout(self) -> list[DropoutState]:
        """Return the dropout state of each engine that ran the model, and the first one of the model's own engine."""
        engine = engine_for(self.device).name
        states = {state.engine: state for state in self.op.dropout_states()}
        return list(({engine: DropoutState(engine, self.op.spec.seed)} | states).values())

    def check(self, state: Any) -> list[SavedDropout]:
        check_spec(state, self.op.spec, {"name", "dropout"})
        if not isinstance(state["name"], str):
            raise Refusal("metadata", "a layer's name is not a string")
        return dropout_states(state)

    def writes(self, tensors: Mapping[str, Array], state: list[SavedDropout]) -> list[Callable[[], None]]:
        states = [dropout.read(self.prefix, tensors) for dropout in state]
        return [
            self.weights.restoring(tensors),
            *(functools.partial(self.op.set_dropout_state, own) for own in states),
        ]


class _LayerItem(ModelItem):
    """A layer: a model with a name, and the layer's other variables."""

    def __init__(self, prefix: str, layer: RNNLayer) -> None:
        super().__init__(prefix, *model_of(layer))
        self.own_scope = layer.scope_name
        self.others = {
            self.prefix + own: variable for own, variable in layer.variables_by_name().items() if own != OPAQUE_KERNEL
        }

    def expected(self) -> dict[str, TensorSpec]:
        return super().expected() | {name: TensorSpec(v.shape, v.dtype) for name, v in self.others.items()}

    def tensors(self) -> dict[str, Array]:
        return super().tensors() | {name: _arrays.to_host(name, v.value) for name, v in self.others.items()}

    def writes(self, tensors: Mapping[str, Array], state: list[SavedDropout]) -> list[Callable[[], None]]:
        others = [variable.assigning(name, tensors[name]) for name, variable in self.others.items()]
        return [*super().writes(tensors, state), *others]


def model_of(layer: RNNLayer) -> tuple[CudnnRNN, Any, str, str]:
    """Return the op, params, name and device of a layer.

    Raises:
        StateError: a layer that is not built.
    """
    if not layer.built:
        raise StateError(f"the layer {layer.name!r} is not built, so what belongs to it is not known yet: build it")
    return layer.op, layer.params, layer.name, layer.device or "cpu"


def check_spec(state: Any, own: RNNSpec | None, others: set[str] | None = None) -> RNNSpec | None:
    """Read the spec from an item's state. It must agree with `own` in the fields of `STRUCTURE`; None: any spec."""
    if not isinstance(state, dict) or state.keys() != ({"spec"} if own or others else set()) | (others or set()):
        raise Refusal("metadata", "an item's state does not have the fields that it should")
    if "spec" not in state:
        return None
    spec = spec_in(state)
    for field in STRUCTURE if own else ():
        if getattr(spec, field) != getattr(own, field):
            raise Refusal("spec", f"{field} is {getattr(spec, field)}, expecting {getattr(own, field)}")
    return spec


def spec_in(state: Mapping[str, Any]) -> RNNSpec:
    """Read and validate the spec in an item's state."""
    try:
        if not isinstance(state["spec"], str):
            raise ArgumentTypeError("spec", "a string", type(state["spec"]))
        return RNNSpec.from_json(state["spec"])
    except (ValueError, TypeError) as error:
        raise Refusal("spec", f"not a spec: {error}") from error


class SavedDropout(NamedTuple):
    """A model's dropout state on one engine, as the metadata has it. `nbytes` of data are in a separate tensor."""

    engine: str
    seed: int
    position: int
    nbytes: int

    def name(self, prefix: str) -> str:
        return f"{prefix}{DROPOUT}{self.engine}"

    @property
    def expected(self) -> TensorSpec:
        return TensorSpec((self.nbytes,), np.dtype(np.uint8))

    def read(self, prefix: str, tensors: Mapping[str, Array]) -> DropoutState:
        data = tensors[self.name(prefix)].tobytes() if self.nbytes else b""
        return DropoutState(self.engine, self.seed, self.position, data)


def dropout_states(state: Mapping[str, Any]) -> list[SavedDropout]:
    """Read a model's dropout state on each engine that ran it."""
    rows = state["dropout"]
    if not isinstance(rows, list) or len(rows) > 16 or not all(map(_is_dropout, rows)):
        raise Refusal("metadata", "dropout is not a list of engine, seed, position and bytes")
    found = [SavedDropout(*row) for row in rows]
    if len({dropout.engine for dropout in found}) < len(found) or sum(d.nbytes for d in found) > DROPOUT_MAX:
        raise Refusal("metadata", f"dropout of one engine twice, or of more than {DROPOUT_MAX} bytes")
    return found


_ROW_MAX = (SEED_MAX, POSITION_MAX, DROPOUT_MAX)
"""Largest values of a row's seed, position and bytes."""


def _is_dropout(row: Any) -> bool:
    return (
        isinstance(row, list)
        and len(row) == 4
        and isinstance(row[0], str)
        and re.fullmatch(r"[a-z0-9_]{1,32}", row[0]) is not None
        and all(type(n) is int and 0 <= n <= most for n, most in zip(row[1:], _ROW_MAX, strict=True))
    )
