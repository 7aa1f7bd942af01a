"""What reads things that somebody else wrote, a function each: the documented error comes out, or none does.

A target gets one input, and the path of a file that it may write; it raises whatever it finds wrong. Its seeds are made
anew each time. `changed_checkpoint` and `changed_bundle` change inputs whose parts have to agree, which bytes changed
at random never do.
"""

from __future__ import annotations

import contextlib
import functools
import json
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import onnx.helper
import safetensors.numpy

from pycudnnrnn import CudnnGRU, CudnnLSTM, RNNSpec, Saver, checkpoint, convert, ops
from pycudnnrnn.checkpoint import bundle, items
from pycudnnrnn.cli import _files
from pycudnnrnn.errors import CheckpointError, ConvertError, PycudnnrnnError
from tests.fuzz import bundle_mutants
from tests.fuzz.json_mutants import parts, rehashed, with_a_change
from tests.helpers.oracles import random_canonical

Change = Callable[[bytes], bytes]


# --- the targets ------------------------------------------------------------------------------------------------------


def checkpoint_file(data: bytes, path: Path) -> None:
    """Every reader of a checkpoint; a restore that is refused changes nothing."""
    path.write_bytes(data)
    check_restores(path)
    foreign = functools.partial(checkpoint.inspect, foreign=True)
    for read in (checkpoint.load, checkpoint.inspect, foreign, items.read):
        with contextlib.suppress(CheckpointError):
            read(path)


def check_restores(path: Path) -> None:
    """Restore a file into what may be in it; a restore that is refused changes nothing."""
    for saver, arrays in things_to_restore():
        before, reason = [array.copy() for array in arrays], None
        try:
            saver.restore(path)
        except CheckpointError as error:
            reason = error.reason
        assert reason in (None, *checkpoint.REASONS)
        assert reason is None or all(map(np.array_equal, arrays, before)), f"refused ({reason}), and half restored"
        for array, value in zip(arrays, before, strict=True):
            array[...] = value


def bundle_files(data: bytes, path: Path) -> None:
    """Every reader of TensorFlow's checkpoints, over an index and a shard; a refused restore changes nothing."""
    files, index = bundle_of(data), path.with_name("data.index")
    index.write_bytes(files.index)
    path.with_name("data.data-00000-of-00001").write_bytes(files.shard)
    check_restores(index)
    for read in (checkpoint.read_tensorflow, checkpoint.inspect):
        with contextlib.suppress(CheckpointError), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what holds no numbers is named
            read(index)


def checkpoint_list(data: bytes, path: Path) -> None:
    path.with_name(checkpoint.LIST).write_bytes(data)
    with contextlib.suppress(CheckpointError):
        checkpoint.latest_checkpoint(path.parent)


def keras_file(data: bytes, path: Path) -> None:
    """The configuration in a whole model's file, which is anybody's JSON; the arrays are those of every layer."""
    with h5py.File(path, "w", libver="latest") as file:
        for key in ("one", "two", "part/inside", "both/forward_layer", "both/backward_layer", "over"):
            for k, shape in enumerate([(2, 8), (2, 8), (8,)]):
                file[f"{key}/cell/vars/{k}"] = np.ones(shape, "f4")
        file.attrs["model_config"] = data.decode("ascii", "replace").replace("\0", " ")
    for layers in (None, ["one"], ["one", "two"], ["part", "two"], ["both", "one"], ["over"]):
        with contextlib.suppress(ConvertError), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what is assumed is named
            convert.keras.to_canonical(convert.keras.read(path), layers=layers)


def onnx_file(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    with contextlib.suppress(PycudnnrnnError), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what is assumed is named
        convert.onnx.to_canonical(_files.FILE_FORMATS[".onnx"].read(path, None).arrays)


@functools.cache
def things_to_restore() -> list[Any]:
    """Savers, each with the arrays that a restore changes."""
    pairs = []
    for layer in (CudnnLSTM(1, 2, "skip_input", seed=4, name="b"), CudnnGRU(1, 2, seed=3, name="a")):
        layer.build((None, None, 2))
        step = np.array([5, -7])
        pairs.append((Saver({"m": layer, "step": step}), (layer.params, step)))
    return pairs


def bundle_of(data: bytes) -> Any:
    """Read an input as an index and a shard: the index' length comes first."""
    end = 4 + int.from_bytes(data[:4], "little")
    return bundle_mutants.Files(data[4:end], data[end:])


def bundle_bytes(files: Any) -> bytes:
    return len(files.index).to_bytes(4, "little") + files.index + files.shard


# --- the inputs to begin with -----------------------------------------------------------------------------------------


def bundle_seeds(folder: Path) -> Iterator[bytes]:
    """Checkpoints that are right."""
    for name, (saver, _) in enumerate(things_to_restore()):
        arrays = safetensors.numpy.load_file(saver.save(folder / str(name)))
        encoded = bundle.encoded({n: a for n, a in arrays.items() if "dropout" not in n})
        (_, shard), (_, index) = bundle.images(folder / "seed", *encoded, 1)
        yield bundle_bytes(bundle_mutants.Files(index, shard))


def changed_bundle(rng: random.Random, data: bytes, change: Change) -> bytes:
    """Change bytes, or entries, blocks and tensors with checksums that fit."""
    if rng.randrange(8) == 0:
        return change(data)
    return bundle_bytes(rng.choice(bundle_mutants.MUTATIONS)(rng, bundle_of(data)))


def checkpoint_seeds(folder: Path) -> Iterator[bytes]:
    """Files that are right, one of another program, and one that is put together from two."""
    right = [saver.save(folder / str(i)).read_bytes() for i, (saver, _) in enumerate(things_to_restore())]
    yield from right
    op = ops.CudnnGRU(1, 2, 3)
    yield checkpoint.save(folder / "op", op, op.init_params(1)).read_bytes()
    yield safetensors.numpy.save({"x": np.ones((2, 3), "f4"), "y": np.zeros(0, "i8")}, {"by": "another program"})
    yield right[0][: len(right[0]) // 2] + right[1][len(right[1]) // 2 :]


def list_seeds(_: Path) -> Iterator[bytes]:
    yield b'model_checkpoint_path: "data"\nall_model_checkpoint_paths: "d\\303\\274"\n'


def keras_seeds(_: Path) -> Iterator[bytes]:
    """Configurations of models that have everything that a reader looks at, and one of the oldest kind."""
    import keras

    L, more = keras.layers, {"return_sequences": True}
    x, h = keras.Input((6, 2), name="x"), keras.Input((2,), name="h")
    part = keras.Sequential([keras.Input((6, 2)), L.LSTM(2, name="inside", **more)], name="part")
    one = L.LSTM(2, name="one", **more)(part(x), mask=x[..., 0] > 0)
    two = L.LSTM(2, name="two", **more)(one, initial_state=[h, h])
    both = L.Bidirectional(L.LSTM(2, name="f", **more), name="both")
    over = L.RNN(L.LSTMCell(2), name="over", **more)
    models = keras.Model([x, h], two), keras.Sequential([x, both, L.Activation("linear"), L.Dropout(0.5), over])
    functional, sequential = (json.loads(model.to_json()) for model in models)
    for config in (functional, sequential, sequential | {"config": sequential["config"]["layers"]}):
        yield json.dumps(config).encode()


def onnx_seeds(_: Path) -> Iterator[bytes]:
    for mode in ("lstm", "gru", "rnn_relu"):
        c = random_canonical(RNNSpec(mode, 2, 3, 2, direction="bidirectional"), 0)
        yield convert.onnx.to_model(c, sequence_lens=True).SerializeToString()
    constants = [onnx.helper.make_node("Constant", [], names, value=onnx.helper.make_tensor("x", 1, [1], [1.0]))
                 for names in ([], ["W"], ["W", "R"])]  # fmt: skip
    graph = onnx.helper.make_graph([*constants, onnx.helper.make_node("LSTM", ["X", "W", "R"], ["Y"])], "g", [], [])
    yield onnx.helper.make_model(graph).SerializeToString()


# --- changing inputs whose parts have to agree ------------------------------------------------------------------------


def changed_checkpoint(rng: random.Random, data: bytes, change: Change) -> bytes:
    """Change bytes, the header's JSON or the payload; most times length and hash fit again."""
    how = rng.randrange(10)
    if how == 0:
        return change(data)
    header, payload = parts(data)
    if how < 4:
        payload = change(payload)
    elif how < 6:
        header = with_a_change(rng, header)
    else:  # what things are: the deepest place, where few changes of the whole would come
        header["__metadata__"]["items"] = with_a_change(rng, header["__metadata__"]["items"])
    return rehashed(header, payload)


def changed_json(rng: random.Random, data: bytes, _: Change) -> bytes:
    return json.dumps(with_a_change(rng, json.loads(data))).encode()


class Target(NamedTuple):
    """A reader, what to begin with, and how to change it where bytes at random lead nowhere."""

    run: Callable[[bytes, Path], None]
    seeds: Callable[[Path], Iterator[bytes]]
    change: Callable[[random.Random, bytes, Change], bytes] | None = None

    def changed(self, rng: random.Random, data: bytes, change: Change) -> bytes:
        """Change an input, by its bytes alone where earlier changes have left nothing of its structure."""
        try:
            return self.change(rng, data, change) if self.change else change(data)
        except Exception:  # noqa: BLE001
            return change(data)


TARGETS = {
    "checkpoint": Target(checkpoint_file, checkpoint_seeds, changed_checkpoint),
    "list": Target(checkpoint_list, list_seeds),
    "keras": Target(keras_file, keras_seeds, changed_json),
    "onnx": Target(onnx_file, onnx_seeds),
    "bundle": Target(bundle_files, bundle_seeds, changed_bundle),
}
