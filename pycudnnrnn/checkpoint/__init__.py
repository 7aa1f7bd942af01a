"""Checkpoints: save models to safetensors files, restore them, and read TensorFlow's checkpoints.

`save` writes one model with its description; `load` and `load_op` recreate it from the file alone. A `Saver` writes
several models, variables and arrays into one file, and restores them in place.

A file holds the weights in canonical form. It does not depend on a layout or a device, so any engine reads it. Files
are written atomically, and checked before they are read. Their hash detects damage, but not who wrote them.
"""

from __future__ import annotations

import json
import os
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _arrays, _locks, layers
from pycudnnrnn._atomic import resolve, write_atomically, write_together
from pycudnnrnn._checks import check_bool, check_int, one_of, shorten
from pycudnnrnn._overwriting import write_all
from pycudnnrnn._tf1.tensors import tf_tensors
from pycudnnrnn.checkpoint import _bundle, _file, _tensorflow
from pycudnnrnn.checkpoint._bundle import read as read_tensorflow
from pycudnnrnn.checkpoint._file import REASONS, TENSORS_MAX, TensorSpec
from pycudnnrnn.checkpoint._items import (
    DROPOUT_MAX,
    Item,
    ModelItem,
    SavedDropout,
    check_spec,
    dropout_states,
    item_of,
    model_of,
    of_an_op,
)
from pycudnnrnn.checkpoint._latest import BOOK
from pycudnnrnn.checkpoint._models import item_states
from pycudnnrnn.checkpoint._refusal import Refusal, refused
from pycudnnrnn.checkpoint._saved_files import FORMATS, TENSORFLOW, SavedCheckpoint, books, check_name, latest
from pycudnnrnn.checkpoint._summary import Summary, Summing
from pycudnnrnn.convert._named import some
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, CheckpointError, MissingDependencyError
from pycudnnrnn.layers._layer import RNNLayer
from pycudnnrnn.ops import CudnnRNN, from_spec
from pycudnnrnn.saveable import CudnnOpaqueParamsSaveable, RNNParamsSaveable
from pycudnnrnn.saveable._format_converters import value_of
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
    "load_op",
    "read_tensorflow",
    "save",
]
__dir__ = __all__.copy


_MODEL: Final = "model"
"""The key of the one model that `save` writes. The names of its tensors do not contain it."""

SHOWN_MAX: Final = 16
"""Most items that a saver's repr shows."""

_OWN_SCOPE: Final = (CudnnOpaqueParamsSaveable, RNNParamsSaveable)


class Saver:
    """Save several models, variables and arrays to one file, and restore them in place.

    Args:
        items: layers, saveables, variables and arrays of any library. In a mapping, every name in the file begins
            with the item's key; "" adds nothing. In a sequence, each item goes by its own name, so arrays need a
            mapping. An op has no weights: its params are saved by a saveable, or by `checkpoint.save`.
        max_to_keep: how many checkpoints stay on disk, the latest ones. None or 0 keeps all. Default: 5.

    Raises:
        ArgumentTypeError: an item that cannot be saved, or a key that is not a string.
        ArgumentError: two items with one name.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from pycudnnrnn import CudnnLSTM, Saver
        >>> layer, step = CudnnLSTM(1, num_units=3, seed=1), np.array(100)
        >>> layer.build((None, None, 2))
        >>> saver = Saver({"encoder": layer, "step": step})
        >>> saver
        Saver({'encoder': CudnnLSTM, 'step': ndarray int64[]}, max_to_keep=5)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = saver.save(f"{folder}/model.safetensors", global_step=100)
        ...     step[...] = 0
        ...     saver.restore(path)
        >>> path.name, int(step)
        ('model-100.safetensors', 100)
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
        """The absolute paths of the checkpoints that this saver wrote and that still exist, the latest last."""
        return [saved.path for saved in self._saved if saved.is_there]

    def save(
        self,
        path: str | os.PathLike[str],
        global_step: int | None = None,
        *,
        format: Literal["safetensors", "tensorflow"] = "safetensors",  # noqa: A002  NumPy and Matplotlib use this name
    ) -> Path:
        """Write a checkpoint atomically, record it as the folder's latest, and delete this saver's oldest ones.

        With `format="tensorflow"` the file is one that TensorFlow restores. It holds the tensors of
        TensorFlow's plain cells, the variables and the arrays. TensorFlow's cells have one bias per gate: a warning
        names the models whose two biases differ and were added. A projection is written as `LSTMCell` has it.
        Dropout states and specs are left out. The saveable of TensorFlow's Cudnn layer reads the same tensors. A
        TensorFlow saver of that layer's whole graph also asks for `opaque_kernel`, which is not written, so it needs
        a `var_list` without that.

        An existing TensorFlow checkpoint of the same name is replaced in one step: the new tensors get unused file
        names, and the new index then replaces the old one. Processes that save in one folder wait for each other.

        Args:
            path: the file to write. With `format="tensorflow"` it is the prefix of several files, such as
                "model.ckpt".
            global_step: a number of training steps to add to the name: "model.safetensors" at step 100 is
                "model-100.safetensors", and "model.ckpt" is "model.ckpt-100". An integer, or an array with one.
                Default: None, the name as it is.
            format: "safetensors" or "tensorflow". Default: "safetensors".

        Returns:
            The path of the checkpoint, with the step in its name.

        Raises:
            ArgumentError: two tensors with one name; a dtype that the format lacks; an RNN that TensorFlow has no cell
                for; a reserved name, such as "checkpoint", "m.index" or "m.npz"; or a path to something other than a
                regular file, such as a symbolic link. Nothing is written then.
            CheckpointError: the folder's "checkpoint.json", or TensorFlow's "checkpoint", is some other file. Nothing
                is written then.
            StateError: a layer that is not built, or whose dropout states differ between two GPUs.
            OSError: the checkpoint, or the folder's "checkpoint.json", cannot be written; `filename` is that file. An
                older file of this name is unchanged then, unless a later one of several renames failed.

        Warns:
            UserWarning: an old checkpoint could not be deleted (the next `save` tries again), or biases were added.
        """
        if format not in FORMATS:
            raise ArgumentError("format", one_of(list(FORMATS)), shorten(format))
        target = _with_step(Path(path), global_step, format)
        place = resolve(target)  # once: the working directory may change, and a file can have several names
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
            self._saved = saved  # after an interrupt from here on, the next save deletes the old ones
            errors = {old: old.delete(kept) for old in too_old}
            self._saved = [*(old for old in too_old if errors[old]), *kept]
        for error in filter(None, errors.values()):
            warnings.warn(f"an old checkpoint could not be deleted: {error}", stacklevel=2)
        return target

    def restore(self, path: str | os.PathLike[str], *, require_finite: bool = False) -> None:
        """Read a checkpoint into this saver's items, in place. Either all items change or none.

        Ctrl-C cannot leave a half-restored model.

        In a TensorFlow checkpoint, an RNN is looked up under its key as scope, then under its own name within that
        scope. A model whose key is "" or TF's default name ("cudnn_lstm") may be under another scope: if the file
        has exactly one RNN of this cell and direction that no other item has claimed, that one is read, with a
        warning. TensorFlow stores one bias per gate. It is halved into the two biases, as TensorFlow does.
        TensorFlow stores no dropout states, so they stay unchanged. Other tensors in the file are ignored.

        Args:
            path: a file that a `Saver` wrote; or a TensorFlow checkpoint: its prefix ("model.ckpt-1000"), its
                `.index` file or its folder.
            require_finite: whether to raise an error if a tensor has a NaN or an infinity. Default: False.

        Raises:
            CheckpointError: the file is damaged, or does not match this saver's items.
            ArgumentError: an item that cannot be written to.
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

    def __repr__(self) -> str:
        """Show each item's name and kind, and of arrays the dtype and shape."""
        kinds = [f"{shorten(key)}: {_kind(thing)}" for key, (_, thing) in self._things.items()]
        more = f", and {len(kinds) - SHOWN_MAX} more" if len(kinds) > SHOWN_MAX else ""
        return f"Saver({{{', '.join(kinds[:SHOWN_MAX])}{more}}}, max_to_keep={self._max_to_keep or None})"

    def _items(self) -> dict[str, Item]:
        return {key: item_of(prefix, thing) for key, (prefix, thing) in self._things.items()}


def _kind(thing: Any) -> str:
    name = type(thing).__name__
    if isinstance(thing, (RNNLayer, *_OWN_SCOPE)):
        return name
    return f"{name} {str(thing.dtype).removeprefix('torch.')}{list(thing.shape)}"


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


@overload
def save(path: str | os.PathLike[str], layer: RNNLayer) -> Path: ...


@overload
def save(path: str | os.PathLike[str], layer: CudnnRNN, params: Any) -> Path: ...


def save(path: str | os.PathLike[str], layer: RNNLayer | CudnnRNN, params: Any = None) -> Path:
    """Save one model with its spec and its dropout state: a layer, or an op with its params.

    `load` and `load_op` recreate the model from the file alone. A layer's extra variables are not saved.

    Args:
        path: the file to write.
        layer: a built layer, or an op. An op needs `params`.
        params: the op's params buffer: an array of any library on any device, or a `Variable`. Leave it out for a
            layer, which has its own. Default: None.

    Returns:
        The path that was given.

    Raises:
        ArgumentTypeError: `layer` is neither a layer nor an op, or an op comes without `params`.
        ArgumentError: `params` do not fit the op, or were given for a layer; a reserved name; or a path to something
            other than a regular file.
        StateError: a layer that is not built, or a model whose dropout states differ between two GPUs.
        OSError: the file cannot be written. An older file of this name is unchanged then.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from pycudnnrnn import checkpoint, ops
        >>> op = ops.CudnnLSTM(2, num_units=3, input_size=2, dropout=0.5)
        >>> params = op.init_params(seed=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = checkpoint.save(f"{folder}/model.safetensors", op, params)
        ...     loaded, loaded_params = checkpoint.load_op(path)
        >>> loaded
        ops.CudnnLSTM(2, 3, 2, dropout=0.5)
        >>> np.array_equal(loaded_params, params)
        True
    """
    item = ModelItem("", *_model_to_save(path, layer, params))
    data = _file.image(item.tensors(), {"items": json.dumps({_MODEL: item.state()}, sort_keys=True)})
    place = resolve(Path(path))
    check_name(place)
    write_atomically(place, data)
    return Path(path)


def _model_to_save(path: Any, layer: Any, params: Any) -> tuple[CudnnRNN, Any, str, str]:
    """Return an op with its params, its name in the file and its device, from the arguments of `save`."""
    if isinstance(layer, RNNLayer):
        if params is not None:
            raise ArgumentError("params", "None with a layer, which has its own", type(params))
        return model_of(layer)
    if not isinstance(layer, CudnnRNN):
        ways = {RNNLayer: ": save(path, layer)", CudnnRNN: ": save(path, op, params)"}
        hint = next((text for kind, text in ways.items() if isinstance(path, kind) or isinstance(params, kind)), "")
        raise ArgumentTypeError("layer", f"a layer, or an op with its params{hint}", type(layer))
    if params is None:
        raise ArgumentTypeError("params", "the op's params: save(path, op, params)", None)
    buffer = value_of(params)
    layer.params_to_canonical(buffer, copy=False)  # a check against the op
    return layer, buffer, f"cudnn_{layer.rnn_mode}", _arrays.kind_of("params", buffer).device


def load(path: str | os.PathLike[str], *, require_finite: bool = False) -> RNNLayer:
    """Recreate the layer in a file that `save` wrote. An op becomes a layer with TF's default name.

    Args:
        path: the file to read.
        require_finite: whether to raise an error if a tensor has a NaN or an infinity. Default: False.

    Returns:
        A built layer with the saved weights and dropout state. Its first input decides its device.

    Raises:
        CheckpointError: the file is damaged, or was not written by `save`.

    Example:
        >>> import tempfile
        >>> from pycudnnrnn import CudnnGRU, checkpoint
        >>> layer = CudnnGRU(1, num_units=3, seed=1, name="encoder")
        >>> layer.build((None, None, 2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = checkpoint.save(f"{folder}/model.safetensors", layer)
        ...     loaded = checkpoint.load(path)
        >>> loaded.name, loaded.num_units, loaded.input_size
        ('encoder', 3, 2)
    """
    model = _read_model(Path(path), require_finite)
    layer = _layer_of(model.spec, model.name)
    model.put_into(layer.op, layer.params)
    return layer


def load_op(path: str | os.PathLike[str], *, require_finite: bool = False) -> tuple[CudnnRNN, npt.NDArray[Any]]:
    """Recreate the op in a file that `save` wrote, and its params. A layer becomes an op.

    Args:
        path: the file to read.
        require_finite: whether to raise an error if a tensor has a NaN or an infinity. Default: False.

    Returns:
        The op with the saved dropout state, and its params as a NumPy array. `op.move_params(params, "cuda")` copies
        them to a GPU.

    Raises:
        CheckpointError: the file is damaged, or was not written by `save`.

    Example:
        >>> import tempfile
        >>> from pycudnnrnn import checkpoint, ops
        >>> op = ops.CudnnGRU(1, num_units=3, input_size=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = checkpoint.save(f"{folder}/model", op, op.init_params(seed=1))
        ...     loaded, params = checkpoint.load_op(path)
        >>> loaded, params.shape
        (ops.CudnnGRU(1, 3, 2), (63,))
    """
    model = _read_model(Path(path), require_finite)
    op = from_spec(model.spec)
    params = np.zeros(op.params_size(), model.spec.dtype.numpy)
    model.put_into(op, params)
    return op, params


class _Model(NamedTuple):
    """The model in a file of `save`."""

    spec: RNNSpec
    name: str
    dropout: list[SavedDropout]
    tensors: dict[str, Any]

    def put_into(self, op: CudnnRNN, params: Any) -> None:
        CudnnOpaqueParamsSaveable.of(params, self.spec, None, self.name).restore(self.tensors)
        for state in self.dropout:
            op.set_dropout_state(state.read("", self.tensors))


def _read_model(path: Path, require_finite: bool) -> _Model:
    """Read a file of `save`. The spec in it is validated before anything of its size is allocated.

    Raises:
        CheckpointError: the file is damaged, or not one model.
    """
    check_bool("require_finite", require_finite)
    if _tensorflow.is_one(path):
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

    contents = _file.read(path, expect, data_max=None, require_finite=require_finite)
    return _Model(*found[0], contents.tensors)


class Inspection(NamedTuple):
    """The contents of a checkpoint, as `inspect` returns them.

    `tensors` has the shape and dtype of each tensor, and `summaries` describe the numbers in it. `items` are the saved
    states by item: an RNN's spec, name and dropout state. `metadata` are the strings in the file's header. `verified`
    is True if the file has a hash and the hash is right; files of other programs have none.
    """

    tensors: dict[str, TensorSpec]
    summaries: dict[str, Summary]
    items: dict[str, Any]
    metadata: dict[str, str]
    verified: bool

    @property
    def non_finite(self) -> dict[str, int]:
        """The number of NaN and infinite elements of each tensor that has any."""
        counts = {name: summary.nan + summary.infinite for name, summary in self.summaries.items()}
        return {name: count for name, count in counts.items() if count}


def inspect(path: str | os.PathLike[str], *, foreign: bool = False) -> Inspection:
    """Describe the contents of a checkpoint without restoring it.

    Memory use is small: a few MB, or one tensor of a TensorFlow checkpoint at a time. The hash is checked. For a
    TensorFlow checkpoint, the items are its RNNs by scope, each with cell, layers, directions and units.

    Args:
        path: a file that `save` or a `Saver` wrote, or a TensorFlow checkpoint: its prefix, its `.index` file or its
            folder.
        foreign: whether to accept safetensors files of other programs. Default: False.

    Returns:
        The shape, dtype and a summary of each tensor, and the saved states by item.

    Raises:
        CheckpointError: the file is damaged, or was written by another program.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from pycudnnrnn import Saver, checkpoint
        >>> saver = Saver({"a": np.array([1.0, 3.0, np.nan])})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = saver.save(f"{folder}/model")
        ...     found = checkpoint.inspect(path)
        >>> found.tensors
        {'a': TensorSpec(shape=(3,), dtype=dtype('float64'))}
        >>> found.summaries["a"].mean, found.non_finite, found.verified
        (2.0, {'a': 1}, True)
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
    """Return the checkpoint that was saved last in a folder, in either format.

    The folder's "checkpoint.json" lists what a `Saver` wrote there, and TensorFlow's "checkpoint" what TensorFlow
    wrote. The file that changed last decides.

    Args:
        folder: the folder to look in. It need not exist.

    Returns:
        The path of the checkpoint, or None if there is none.

    Raises:
        CheckpointError: the list of checkpoints is damaged.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from pycudnnrnn import Saver, checkpoint
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(checkpoint.latest_checkpoint(folder))
        ...     path = Saver({"a": np.ones(3)}).save(f"{folder}/model", global_step=7)
        ...     print(checkpoint.latest_checkpoint(folder).name)
        None
        model-7
    """
    return latest(Path(folder))


def _of_others(found: Mapping[str, Any], own: Mapping[str, Any]) -> Refusal:
    """Return the error for a file with other keys than the saver: it lists the keys that only one side has."""
    theirs, ours = found.keys() - own.keys(), own.keys() - found.keys()
    sides = [f"only {side} has {_some(keys)}" for side, keys in (("the file", theirs), ("this saver", ours)) if keys]
    hint = "; what checkpoint.save wrote, checkpoint.load reads" if found.keys() == {_MODEL} else ""
    return Refusal("metadata", f"does not hold the same things as this saver: {', '.join(sides)}{hint}")


def _of_a_saver(states: Mapping[str, Any]) -> Refusal:
    """Return the error of `load` for a file of a Saver: it names the items and the call that restores them."""
    if not states:
        return Refusal("metadata", "written by a Saver that held nothing")
    key, state = next(iter(states.items()))
    how = "build what it held, and restore it with a Saver of the same keys"
    if len(states) == 1 and isinstance(state, dict) and "spec" in state:
        thing = "layer" if "name" in state else "saveable"
        how = f"build the {thing} and restore it with Saver({{{shorten(key)}: {thing}}})"
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
    if global_step is None or path.name in {"", ".."}:  # not the name of a file: the writer raises an error
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
