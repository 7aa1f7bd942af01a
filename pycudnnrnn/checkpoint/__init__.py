"""Checkpoints: weights in canonical form, in safetensors files that are written whole and read without trust.

A `Saver` restores in place, and what it holds decides what a file must be. `save` and `load` keep one layer with its
description. A file has no layout and no device in it, so it goes from any engine to any other. The hash in it finds
damage; it does not say who wrote the file.
"""

from __future__ import annotations

import json
import os
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from pycudnnrnn import _locks, layers
from pycudnnrnn._atomic import resolve, write_atomically, write_together
from pycudnnrnn._checks import check_bool, check_int, one_of, shorten
from pycudnnrnn._overwriting import write_all
from pycudnnrnn._tf1.tensors import tf_tensors
from pycudnnrnn.checkpoint import _bundle, _file, _tensorflow
from pycudnnrnn.checkpoint._book import BOOK
from pycudnnrnn.checkpoint._bundle import read as read_tensorflow
from pycudnnrnn.checkpoint._file import REASONS, TENSORS_MAX, TensorSpec
from pycudnnrnn.checkpoint._items import DROPOUT_MAX, Item, SavedDropout, check_spec, dropout_states, item_of, of_an_op
from pycudnnrnn.checkpoint._kept import FORMATS, TENSORFLOW, SavedCheckpoint, books, check_name, latest
from pycudnnrnn.checkpoint._own_models import item_states
from pycudnnrnn.checkpoint._refusal import Refusal, refused
from pycudnnrnn.checkpoint._summary import Summary, Summing
from pycudnnrnn.convert._named import some
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, CheckpointError, MissingDependencyError
from pycudnnrnn.layers._layer import RNNLayer
from pycudnnrnn.saveable import CudnnOpaqueParamsSaveable, RNNParamsSaveable
from pycudnnrnn.spec import INT32_MAX, RNNMode, RNNSpec

__all__ = [
    "BOOK",
    "REASONS",
    "CheckpointError",
    "Inspection",
    "Saver",
    "Summary",
    "inspect",
    "latest_checkpoint",
    "load",
    "read_tensorflow",
    "save",
]
__dir__ = __all__.copy


_MODEL: Final = "model"
"""The key of what `save` writes, which is no part of its tensors' names."""

_OWN_SCOPE: Final = (CudnnOpaqueParamsSaveable, RNNParamsSaveable)


class Saver:
    """Save and restore several things in one file: layers, saveables, variables and arrays.

    With a mapping, each name in the file begins with the thing's key ("" counts as none). With a sequence, saveables
    and layers have their own names, and so have variables. `max_to_keep` checkpoints stay, the latest; None keeps all.

    Raises:
        ArgumentTypeError: something that cannot be saved.
        ArgumentError: two things with one name.
    """

    def __init__(self, items: Mapping[str, Any] | Sequence[Any], max_to_keep: int | None = 5) -> None:
        if not isinstance(items, Iterable):
            one = isinstance(items, (RNNLayer, *_OWN_SCOPE))
            hint = "; one thing is saved by Saver([it])" if one else of_an_op(items, "rnn")
            raise ArgumentTypeError("items", f"a mapping, or a sequence of things that have names{hint}", type(items))
        for key in items if isinstance(items, Mapping) else ():
            if not isinstance(key, str):
                raise ArgumentTypeError("items", "strings as keys", shorten(key))
            if not _file.is_utf8(key):
                raise ArgumentError("items", "keys that UTF-8 has", shorten(key))
        named = items if isinstance(items, Mapping) else _own_names(items)
        bare = () if isinstance(items, Mapping) else _OWN_SCOPE
        self._things = {key: ("" if isinstance(thing, bare) else key, thing) for key, thing in named.items()}
        for prefix, thing in self._things.values():
            if not isinstance(thing, (RNNLayer, *_OWN_SCOPE)):
                item_of(prefix, thing)
        self._max_to_keep = 0 if max_to_keep is None else check_int("max_to_keep", max_to_keep, 0, INT32_MAX)
        self._saved: list[SavedCheckpoint] = []
        self._saving = _locks.lock()

    @property
    def last_checkpoints(self) -> list[Path]:
        """What this saver wrote and that is still there, by their absolute paths, the latest last."""
        return [saved.path for saved in self._saved if saved.is_there]

    def save(
        self,
        path: str | os.PathLike[str],
        global_step: int | None = None,
        *,
        format: str = "safetensors",  # noqa: A002  TF has no such argument; NumPy and Matplotlib have, under this name
    ) -> Path:
        """Write a checkpoint atomically, note it as the folder's latest, delete this saver's oldest; return its path.

        `global_step` goes into the name: "model.safetensors" at 100 is "model-100.safetensors". An old checkpoint that
        cannot be deleted is a warning, and is tried again by the next save.

        With `format="tensorflow"` it is one of TensorFlow's: `path` is the prefix of its files, "model.ckpt" at 100
        "model.ckpt-100". It holds what the cells of TensorFlow have: one bias per gate (a warning says where two that
        differ become one), a projection as `LSTMCell` has it, variables and arrays; neither where dropout stands, nor
        descriptions. The saveable of TensorFlow's Cudnn layer asks for the same, but a saver of that layer's whole
        graph for `opaque_kernel`, too, which is not written: it needs a `var_list` without that. Over a checkpoint of
        this name the tensors take names that are free, then the index takes the place of the old one: at any moment
        one of the two is whole, and processes that save in one folder wait for one another.

        Raises:
            ArgumentError: two tensors with one name, a dtype that the format does not have, an RNN that TensorFlow has
                no cell for, a name that stands for something else, such as "checkpoint", "m.index" or "m.npz", or a
                path to something else than a regular file, such as a symbolic link. Nothing has been written then.
            CheckpointError: the folder's "checkpoint.json", or TensorFlow's "checkpoint", is something else. Nothing
                has been written then.
            OSError: this file cannot be written, or the folder's book beside it: `filename` says which. An older file
                of this name is untouched then, unless a renaming failed that is not the first.
        """
        if format not in FORMATS:
            raise ArgumentError("format", one_of(list(FORMATS)), shorten(format))
        target = _with_step(Path(path), global_step, format)
        place = resolve(target)  # once: the working directory may change, and one file has many names
        check_name(place)
        items, new = self._items(), SavedCheckpoint(place, format)
        data: Any = _tensorflow.tensors(items) if format == TENSORFLOW else _image(items)
        with self._saving:
            saved = [*(saved for saved in self._saved if saved.is_there and saved != new), new]
            too_old = saved[: -self._max_to_keep] if self._max_to_keep else []
            kept = saved[len(too_old) :]
            if format == TENSORFLOW:
                _bundle.write(place, data, books(new, kept))
            else:
                write_together([(place, data), *books(new, kept)])
            self._saved = saved  # an interrupt from here on leaves the old ones to the next save
            errors = {old: old.delete(kept) for old in too_old}
            self._saved = [*(old for old in too_old if errors[old]), *kept]
        for error in filter(None, errors.values()):
            warnings.warn(f"an old checkpoint could not be deleted: {error}", stacklevel=2)
        return target

    def restore(self, path: str | os.PathLike[str], *, require_finite: bool = False) -> None:
        """Read a checkpoint into everything this saver holds, in place: all of it, or nothing.

        An interrupt, too, comes before the first byte is written or after the last.

        A checkpoint of TensorFlow's is named by its prefix ("model.ckpt-1000"), its `.index` or its folder. An RNN is
        looked for under its key as scope, and under its own name there, as TensorFlow would. One that nobody named,
        whose key is "" or what TF calls a layer by itself ("cudnn_lstm"), takes the only one of its kind that is in the
        file and no other's, with a warning. Its one bias per gate is halved, as TensorFlow does. Where dropout stands
        is not in such a file, and stays. The rest of the file is left as it is.

        Raises:
            CheckpointError: the file is damaged, or not what this saver holds.
            ArgumentError: something that this saver holds cannot be written to.
            StateError: a layer that is not built.
        """
        check_bool("require_finite", require_finite)
        if _tensorflow.is_one(Path(path)):
            write_all(_tensorflow.restoring(Path(path), self._items(), require_finite=require_finite))
            return
        items = self._items()
        expected: dict[str, TensorSpec] = {}
        for item in items.values():
            expected |= item.expected()
        states: dict[str, Any] = {}

        def expect(metadata: Mapping[str, str]) -> Mapping[str, TensorSpec]:
            found = item_states(metadata)
            if found.keys() != items.keys():
                raise _of_others(found, items)
            states.update({key: item.check(found[key]) for key, item in items.items()})
            for key, item in items.items():
                expected.update(item.more(states[key]))
            return expected

        layers_in = sum(isinstance(thing, RNNLayer) for _, thing in self._things.values())
        nbytes = sum(spec.nbytes for spec in expected.values()) + layers_in * DROPOUT_MAX
        contents = _file.read(Path(path), expect, data_max=nbytes, require_finite=require_finite)
        writes = []
        for key, item in items.items():
            names = item.expected() | item.more(states[key])
            writes += item.writes({name: contents.tensors[name] for name in names}, states[key])
        write_all(writes)

    def _items(self) -> dict[str, Item]:
        return {key: item_of(prefix, thing) for key, (prefix, thing) in self._things.items()}


def _image(items: Mapping[str, Item]) -> bytes:
    tensors: dict[str, Any] = {}
    for item in items.values():
        found = item.tensors()
        both = tensors.keys() & found.keys()
        if both:
            raise ArgumentError("items", "different names for all tensors", f"{min(both)!r} twice")
        tensors |= found
    states = json.dumps({key: item.state() for key, item in items.items()}, sort_keys=True)
    return _file.image(tensors, {"items": states})


def save(path: str | os.PathLike[str], layer: RNNLayer) -> Path:
    """Write one layer with its spec, its other variables left out; `load` makes it anew from nothing but the file.

    Raises:
        ArgumentTypeError: not a layer.
        StateError: a layer that is not built.
        ArgumentError: a name that stands for something else, or a path to something else than a regular file.
        OSError: it cannot be written. An older file of this name is untouched then.
    """
    if not isinstance(layer, RNNLayer):
        hint = ": save(path, layer)" if isinstance(path, RNNLayer) else of_an_op(layer, "rnn")
        raise ArgumentTypeError("layer", f"a layer{hint}", type(layer))
    item = item_of("", layer)
    others = layer.variables_by_name()
    tensors = {name: array for name, array in item.tensors().items() if name not in others}
    data = _file.image(tensors, {"items": json.dumps({_MODEL: item.state()}, sort_keys=True)})
    place = resolve(Path(path))
    check_name(place)
    write_atomically(place, data)
    return Path(path)


def load(path: str | os.PathLike[str], *, require_finite: bool = False) -> RNNLayer:
    """Return the layer that `save` wrote.

    The spec in the file is validated as any spec, and what it asks for has to be there before anything is allocated.

    Raises:
        CheckpointError: the file is damaged, or not one model.
    """
    check_bool("require_finite", require_finite)
    if _tensorflow.is_one(Path(path)):
        why = "a checkpoint of TensorFlow's describes no layer: build it, and restore it with Saver({scope: layer})"
        raise CheckpointError(path, "metadata", f"{why}; inspect(path).items has the scopes")
    found: list[tuple[RNNSpec, str, list[SavedDropout]]] = []

    def expect(metadata: Mapping[str, str]) -> Mapping[str, TensorSpec]:
        states = item_states(metadata)
        if states.keys() != {_MODEL}:
            raise _of_a_saver(states)
        state = states[_MODEL]
        spec = check_spec(state, None, {"name", "dropout"})
        if spec is None or not isinstance(state["name"], str) or not state["name"]:
            raise Refusal("metadata", "the model has no name")
        if spec.num_pseudo_layers > TENSORS_MAX:
            raise Refusal("spec", f"{spec.num_pseudo_layers} pseudo-layers; the cap is {TENSORS_MAX} tensors")
        try:
            dtype = spec.dtype.numpy
        except MissingDependencyError as error:
            raise Refusal("spec", str(error)) from error
        dropout = dropout_states(state)
        found.append((spec, state["name"], dropout))
        expected = {tensor.name: TensorSpec(tensor.shape, dtype) for tensor in tf_tensors(spec)}
        return expected | {own.name(""): own.expected for own in dropout if own.nbytes}

    contents = _file.read(Path(path), expect, data_max=None, require_finite=require_finite)
    spec, name, dropout = found[0]
    layer = _layer_of(spec, name)
    weights = CudnnOpaqueParamsSaveable.of(layer.params, spec, None, name)
    weights.restore(contents.tensors)
    for state in dropout:
        layer.op.set_dropout_state(state.read("", contents.tensors))
    return layer


class Inspection(NamedTuple):
    """What a file holds: tensors by name, what is in each, its items' states and its metadata.

    `verified` says that the file has a hash, which is right; a file of another program has none.
    """

    tensors: dict[str, TensorSpec]
    summaries: dict[str, Summary]
    items: dict[str, Any]
    metadata: dict[str, str]
    verified: bool

    @property
    def non_finite(self) -> dict[str, int]:
        """How many elements are not finite, by tensor, where there are any."""
        counts = {name: summary.nan + summary.infinite for name, summary in self.summaries.items()}
        return {name: count for name, count in counts.items() if count}


def inspect(path: str | os.PathLike[str], *, foreign: bool = False) -> Inspection:
    """Return what a file holds, without anything to restore into, and with little of it in memory at a time.

    Its hash is checked. With `foreign`, a safetensors file of another program will do. Of a checkpoint of TensorFlow's,
    the items are its RNNs by their scopes: cell, layers, directions and units.

    Raises:
        CheckpointError: the file is damaged, or not written by this package.
    """
    check_bool("foreign", foreign)
    summing: dict[str, Summing] = defaultdict(Summing)
    if _tensorflow.is_one(Path(path)):
        specs, models, others = _tensorflow.scan(Path(path), lambda name, piece: summing[name].add(piece))
        about = {"format": TENSORFLOW} | ({"left out": ", ".join(others)} if others else {})
        return Inspection(specs, {name: summing[name].summary() for name in specs}, models, about, verified=True)
    tensors, metadata = _file.scan(Path(path), lambda name, piece: summing[name].add(piece), foreign=foreign)
    verified = metadata.get("format") == _file.FORMAT
    with refused(path):
        items = item_states(metadata) if verified else {}
    return Inspection(tensors, {name: summing[name].summary() for name in tensors}, items, metadata, verified)


def latest_checkpoint(folder: str | os.PathLike[str]) -> Path | None:
    """Return the checkpoint that was saved last in a folder, of either format, or None where it is not there.

    The folder's books say which: "checkpoint.json" of all that a `Saver` saved, "checkpoint" of TensorFlow's. Where
    TensorFlow wrote its own after that, it is the latest.

    Raises:
        CheckpointError: the book is damaged.
    """
    return latest(Path(folder))


def _of_others(found: Mapping[str, Any], own: Mapping[str, Any]) -> Refusal:
    """Return why a saver refuses a file with things under other keys: which are on which side alone."""
    theirs, ours = found.keys() - own.keys(), own.keys() - found.keys()
    sides = [f"only {side} has {_some(keys)}" for side, keys in (("the file", theirs), ("this saver", ours)) if keys]
    hint = "; what checkpoint.save wrote, checkpoint.load reads" if found.keys() == {_MODEL} else ""
    return Refusal("metadata", f"does not hold the same things as this saver: {', '.join(sides)}{hint}")


def _of_a_saver(states: Mapping[str, Any]) -> Refusal:
    """Return why `load` refuses a file: who wrote it, what is in it, and what reads it."""
    if not states:
        return Refusal("metadata", "written by a Saver that held nothing")
    key, state = next(iter(states.items()))
    how = "build what it held, and restore it with a Saver of the same keys"
    if len(states) == 1 and isinstance(state, dict) and "spec" in state:
        how = f"build the layer and restore it with Saver({{{shorten(key)}: layer}})"
    return Refusal("metadata", f"not one model of checkpoint.save's, but of a Saver, under {_some(states)}: {how}")


def _some(keys: Iterable[str]) -> str:
    return some(sorted(keys), shorten)


def _own_names(things: Sequence[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for thing in things:
        if isinstance(thing, RNNLayer):
            name = thing.scope_name
        elif isinstance(thing, CudnnOpaqueParamsSaveable):
            name = thing.scope or thing.name
        elif getattr(thing, "name", None) is not None and not isinstance(thing, np.ndarray):
            name = thing.name
        else:
            raise ArgumentTypeError("items", "a mapping, or a sequence of things that have names", type(thing))
        if name in found:
            word = "scope" if isinstance(thing, _OWN_SCOPE) else "name"
            expected = f"different names: make one with {word}={name + '_1'!r}, as TF would, or give a mapping"
            raise ArgumentError("items", expected, f"{name!r} twice")
        found[name] = thing
    return found


def _with_step(path: Path, global_step: Any, form: str) -> Path:
    if global_step is None or path.name in {"", ".."}:  # no name of a file, which the writer refuses
        return path
    array = np.asarray(global_step)
    if array.size != 1:
        raise ArgumentError("global_step", "one integer", array.shape, aspect="shape")
    step = check_int("global_step", array.item(), 0, 2**63 - 1)
    if form == TENSORFLOW:
        return path.with_name(f"{path.name}-{step}")
    return path.with_name(f"{path.stem}-{step}{path.suffix}")


def _layer_of(spec: RNNSpec, name: str) -> RNNLayer:
    kinds: dict[RNNMode, Any] = {
        RNNMode.LSTM: layers.CudnnLSTM,
        RNNMode.GRU: layers.CudnnGRU,
        RNNMode.RNN_TANH: layers.CudnnRNNTanh,
        RNNMode.RNN_RELU: layers.CudnnRNNRelu,
    }
    lstm_only = {"num_proj": spec.num_proj, "cell_clip": spec.cell_clip} if spec.mode is RNNMode.LSTM else {}
    layer: RNNLayer = kinds[spec.mode](
        spec.num_layers, spec.num_units, spec.input_mode, spec.direction, spec.dropout, spec.seed, spec.dtype,
        "zeros", "zeros", name, bias_mode=spec.bias_mode, algo=spec.algo, math_type=spec.math_type,
        compute_dtype=spec.compute_dtype, **lstm_only,
    )  # fmt: skip
    layer.build((None, None, spec.input_size))
    return layer
