"""Checkpoints: save models to safetensors files, restore them, and read TensorFlow's checkpoints.

`save` writes one model with its description; `load` and `load_op` recreate it from the file alone. A `Saver` writes
several models, variables and arrays into one file, and restores them in place.

A file holds the weights in canonical form. It does not depend on a layout or a device, so any engine reads it. Files
are written atomically, and checked before they are read. Their hash detects damage, but not who wrote them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _arrays, _locks
from pycudnnrnn._assignment import write_all
from pycudnnrnn._checks import check_bool, check_int, check_text, check_type, one_of, shorten, some, warn, with_hints
from pycudnnrnn._files import resolve, write_atomically
from pycudnnrnn._tf1.tensors import find_models
from pycudnnrnn._tf1.variable import value_of
from pycudnnrnn.checkpoint import _tensorflow, bundle, folder, safetensors_file
from pycudnnrnn.checkpoint.bundle import read as read_tensorflow
from pycudnnrnn.checkpoint.folder import LIST, latest_checkpoint
from pycudnnrnn.checkpoint.items import MODEL, Item, ModelItem, item_of, merged, model_of, read_model, states_in
from pycudnnrnn.checkpoint.safetensors_file import REASONS, Refusal, Summary, TensorSpec, parsing, summary_of
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, CheckpointError
from pycudnnrnn.layers import KINDS, RNNLayer
from pycudnnrnn.ops import CudnnRNN, from_spec
from pycudnnrnn.saveable import Saveable
from pycudnnrnn.spec import INT32_MAX

__all__ = [
    "LIST",
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
        Saver({'encoder': CudnnLSTM, 'step': ndarray}, max_to_keep=5)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = saver.save(f"{folder}/model.safetensors", global_step=100)
        ...     step[...] = 0
        ...     saver.restore(path)
        >>> path.name, int(step)
        ('model-100.safetensors', 100)
    """

    @with_hints
    def __init__(self, items: Mapping[str, Any] | Sequence[Any], max_to_keep: int | None = 5) -> None:
        check_type("items", items, Iterable, "a mapping, or a sequence of things that have names, such as [layer]")
        named = items if isinstance(items, Mapping) else _named(items)
        if not named:
            raise ArgumentError("items", "at least one thing to save (a layer has variables once it is built)", "none")
        for key in named:
            check_text("items", key)
        bare = () if isinstance(items, Mapping) else Saveable
        self._things = {key: ("" if isinstance(thing, bare) else key, thing) for key, thing in named.items()}
        for prefix, thing in self._things.values():
            if not isinstance(thing, (RNNLayer, Saveable)):
                item_of(prefix, thing)
        self._max_to_keep = 0 if max_to_keep is None else check_int("max_to_keep", max_to_keep, 0, INT32_MAX)
        self._saved: list[folder.SavedCheckpoint] = []
        self._saving = _locks.lock()

    @property
    def last_checkpoints(self) -> list[Path]:
        """The absolute paths of the checkpoints that this saver wrote and that still exist, the latest last."""
        return [saved.path for saved in self._saved if saved.exists]

    @with_hints
    def save(
        self,
        path: str | os.PathLike[str],
        global_step: int | None = None,
        *,
        format: Literal["safetensors", "tensorflow"] = "safetensors",  # noqa: A002  NumPy and Matplotlib use this name
    ) -> Path:
        """Write a checkpoint atomically, record it as the folder's latest, and delete this saver's oldest ones.

        The folder's list is the file "checkpoint", which is TensorFlow's. It has the checkpoints of both formats.

        With `format="tensorflow"` the file is one that TensorFlow restores. It holds the tensors of
        TensorFlow's plain cells, the variables and the arrays. TensorFlow's cells have one bias per gate: a warning
        names the models whose two biases differ and were added. A projection is written as `LSTMCell` has it.
        Dropout states and specs are left out. The saveable of TensorFlow's Cudnn layer reads the same tensors. A
        TensorFlow saver of that layer's whole graph also asks for `opaque_kernel`, which is not written, so it needs
        a `var_list` without that.

        An existing TensorFlow checkpoint of the same name is replaced in one step: the new tensors get unused file
        names, and the new index then replaces the old one. Processes that save TensorFlow checkpoints in one folder
        wait for each other.

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
                for; a reserved name, such as "checkpoint", "m.index" or "m.pt"; a name that a checkpoint of the other
                format or, with `format="tensorflow"`, a folder has; or a path to something other than a regular file,
                such as a symbolic link. Nothing is written then.
            CheckpointError: the folder's file "checkpoint" is not a list of checkpoints. Nothing is written then.
            StateError: a layer that is not built, or whose dropout states differ between two GPUs.
            MissingDependencyError: `format="tensorflow"` without `google-crc32c`.
            OSError: the checkpoint, or the folder's list "checkpoint", cannot be written; `filename` is that file. An
                older file of this name is unchanged then, unless a later one of several renames failed.

        Warns:
            UserWarning: an old checkpoint could not be deleted (the next `save` tries again), or biases were added.
        """
        if format not in folder.FORMATS:
            raise ArgumentError("format", one_of(list(folder.FORMATS)), shorten(format))
        target = _with_step(_path(path), global_step, format)
        place = resolve(target)  # once: the working directory may change, and a file can have several names
        items, new = self._items(), folder.SavedCheckpoint(place, format)
        data = _tensorflow.tensors(items) if format == folder.TENSORFLOW else _image(items)
        with self._saving:
            saved = [*(one for one in self._saved if one.exists and one != new), new]
            too_old = saved[: -self._max_to_keep] if self._max_to_keep else []
            new.write(data, saved[len(too_old) :])
            self._saved = saved  # after an interrupt from here on, the next save deletes the old ones
            for old in too_old:
                try:
                    old.delete()
                except OSError as error:
                    warn(f"an old checkpoint could not be deleted: {error}")
            self._saved = [one for one in saved if one.exists]
        return target

    @with_hints
    def restore(self, path: str | os.PathLike[str], *, require_finite: bool = False) -> None:
        """Read a checkpoint into this saver's items, in place. Either all items change or none.

        Ctrl-C cannot leave a half-restored model.

        In a TensorFlow checkpoint, an RNN is looked up under its key as scope, then under its own name within that
        scope. A model whose key is "" or TF's default name ("cudnn_lstm") may be under another scope: if the file
        has exactly one RNN of this cell and direction that no other item has claimed, that one is read, with a
        warning. TensorFlow stores one bias per gate. It is halved into the two biases, as TensorFlow does.
        TensorFlow stores no dropout states, so they stay unchanged. Tensors outside of these RNNs that belong to no
        item are ignored; an RNN with more layers or tensors than its item raises an error.

        Args:
            path: a file that a `Saver` wrote; a TensorFlow checkpoint: its prefix ("model.ckpt-1000") or its `.index`
                file; or a folder, whose latest checkpoint is read.
            require_finite: whether to raise an error if a tensor has a NaN or an infinity. Default: False.

        Raises:
            CheckpointError: the file is damaged, or does not match this saver's items.
            MissingDependencyError: a TensorFlow checkpoint without `google-crc32c`, or bfloat16 without `ml_dtypes`.
            ArgumentError: an item that cannot be written to.
            StateError: a layer that is not built.
        """
        check_bool("require_finite", require_finite)
        place, items = folder.latest_in(_path(path)), self._items()
        if folder.is_tensorflow(place):
            write_all(_tensorflow.restoring(place, items, require_finite=require_finite))
            return
        with safetensors_file.opened(place) as file:
            with parsing("the metadata"):
                states = states_in(file.metadata)
                if states.keys() != items.keys():
                    more, less = _some(states.keys() - items.keys()), _some(items.keys() - states.keys())
                    text = f"it holds other things than this saver; not in this saver: {more}; not in the file: {less}"
                    raise Refusal("mismatch", text)
                dropout = {key: item.dropout_in(key, states[key]) for key, item in items.items()}
            expected = {key: item.expected(dropout[key]) for key, item in items.items()}
            file.check({name: spec for of_item in expected.values() for name, spec in of_item.items()})
            tensors = file.tensors(require_finite=require_finite)
        of_item = {key: {name: tensors[name] for name in names} for key, names in expected.items()}
        write_all([write for key, item in items.items() for write in item.writes(of_item[key], dropout[key])])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_saving"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._saved = []  # a copy deletes no checkpoint that the original wrote
        self._saving = _locks.lock()

    def __repr__(self) -> str:
        """Show the items' names and kinds."""
        kinds = [f"{shorten(key)}: {type(thing).__name__}" for key, (_, thing) in self._things.items()]
        return f"Saver({{{some(kinds, str)}}}, max_to_keep={self._max_to_keep or None})"

    def _items(self) -> dict[str, Item]:
        return {key: item_of(prefix, thing) for key, (prefix, thing) in self._things.items()}


def _image(items: Mapping[str, Item]) -> bytes:
    states = json.dumps({key: item.state() for key, item in items.items()}, sort_keys=True)
    return safetensors_file.image(merged(item.tensors() for item in items.values()), {"items": states})


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
        ArgumentError: `params` do not fit the op, or were given for a layer; a reserved name, or one that a TensorFlow
            checkpoint has; or a path to something other than a regular file.
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
    if isinstance(layer, RNNLayer):
        if params is not None:
            raise ArgumentError("params", "None with a layer, which has its own", type(params))
        item = ModelItem("", *model_of(layer))
    elif not isinstance(layer, CudnnRNN):
        raise ArgumentTypeError("layer", "a layer, or an op with its params: save(path, op, params)", type(layer))
    elif params is None:
        raise ArgumentTypeError("params", "the op's params: save(path, op, params)", None)
    else:
        buffer = value_of(params, "params")
        layer.params_to_canonical(buffer, copy=False)  # a check against the op
        item = ModelItem("", layer, buffer, f"cudnn_{layer.rnn_mode}", _arrays.kind_of("params", buffer).device)
    place = resolve(Path(path))
    folder.check_name(place, folder.SAFETENSORS)
    write_atomically(place, _image({MODEL: item}))
    return Path(path)


def load(path: str | os.PathLike[str], *, require_finite: bool = False) -> RNNLayer:
    """Recreate the layer in a file that `save` wrote. An op becomes a layer with TF's default name.

    Args:
        path: the file to read.
        require_finite: whether to raise an error if a tensor has a NaN or an infinity. Default: False.

    Returns:
        A built layer on the CPU, with the saved weights and dropout state. `layer.to("cuda")` moves it to a GPU.

    Raises:
        CheckpointError: the file is damaged, or was not written by `save`.
        MissingDependencyError: a bfloat16 model, without `ml_dtypes`.

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
    spec, name, put_into = read_model(Path(path), require_finite)
    layer = KINDS[spec.mode].from_spec(spec, name)
    put_into(layer.op, layer.params)
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
        MissingDependencyError: a bfloat16 model, without `ml_dtypes`.

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
    spec, _, put_into = read_model(Path(path), require_finite)
    op = from_spec(spec)
    params = np.zeros(op.params_size(), spec.dtype.numpy)
    put_into(op, params)
    return op, params


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

    def __repr__(self) -> str:
        return f"Inspection({len(self.tensors)} tensors, items {[*self.items]}, verified={self.verified})"

    @property
    def non_finite(self) -> dict[str, int]:
        """The number of NaN and infinite elements of each tensor that has any."""
        counts = {name: summary.nan + summary.infinite for name, summary in self.summaries.items()}
        return {name: count for name, count in counts.items() if count}


def inspect(path: str | os.PathLike[str], *, foreign: bool = False) -> Inspection:
    """Describe the contents of a checkpoint without restoring it.

    One tensor at a time is in memory. The hash is checked. For a TensorFlow checkpoint, the items are its RNNs by
    scope, each with cell, layers, directions and units.

    Args:
        path: a file that `save` or a `Saver` wrote; a TensorFlow checkpoint: its prefix or its `.index` file; or a
            folder, whose latest checkpoint is described.
        foreign: whether to accept safetensors files of other programs. Default: False.

    Returns:
        The shape, dtype and a summary of each tensor, and the saved states by item.

    Raises:
        CheckpointError: the file is damaged, or was written by another program.
        MissingDependencyError: a TensorFlow checkpoint without `google-crc32c`, or bfloat16 without `ml_dtypes`.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from pycudnnrnn import Saver, checkpoint
        >>> saver = Saver({"a": np.array([1.0, 3.0, np.nan])})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = saver.save(f"{folder}/model")
        ...     contents = checkpoint.inspect(path)
        >>> contents.tensors
        {'a': TensorSpec(shape=(3,), dtype=dtype('float64'))}
        >>> contents.summaries["a"].mean, contents.non_finite, contents.verified
        (2.0, {'a': 1}, True)
    """
    check_bool("foreign", foreign)
    place = folder.latest_in(Path(path))
    if folder.is_tensorflow(place):
        with bundle.opened(place) as reader:
            specs = reader.numbers
            summaries = {name: summary_of(reader.read(name)) for name in specs}
        models: dict[str, Any] = {}
        for model in find_models({name: spec.shape for name, spec in specs.items()}):
            more = f" ({model.cell}, {model.num_dirs} directions)" if model.scope in models else ""
            models[model.scope + more] = model._asdict()
        about = {"format": folder.TENSORFLOW} | ({"left out": ", ".join(reader.others)} if reader.others else {})
        return Inspection(specs, summaries, models, about, verified=True)
    with safetensors_file.opened(place, foreign=foreign) as file:
        with parsing("the metadata"):
            items = states_in(file.metadata) if file.is_ours else {}
        return Inspection(file.specs, file.read(summary_of), items, file.metadata, verified=file.is_ours)


def _some(keys: Iterable[str]) -> str:
    return some(sorted(keys), shorten) or "nothing"


def _named(things: Sequence[Any]) -> dict[str, Any]:
    """Return things by their own names: a layer's is its scope, a saveable's its scope or name."""
    named: dict[str, Any] = {}
    for thing in things:
        name = getattr(thing, "scope_name", "") or getattr(thing, "scope", "") or getattr(thing, "name", None)
        if not isinstance(name, str):
            raise ArgumentTypeError("items", "a mapping, or a sequence of things that have names", type(thing))
        if name in named:
            raise ArgumentError("items", "different names, or a mapping", f"{name!r} twice")
        named[name] = thing
    return named


def _path(path: Any) -> Path:
    check_type("path", path, (str, os.PathLike), "a path (there is no session here)")
    return Path(path)


def _with_step(path: Path, global_step: Any, form: str) -> Path:
    if global_step is None or path.name in {"", ".."}:  # not the name of a file: the writer raises an error
        return path
    array = np.asarray(global_step)
    step = check_int("global_step", array.item() if array.size == 1 else global_step, 0, 2**63 - 1)
    stem, suffix = (path.name, "") if form == folder.TENSORFLOW else (path.stem, path.suffix)
    return path.with_name(f"{stem}-{step}{suffix}")
