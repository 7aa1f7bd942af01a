"""What reads things that somebody else wrote, a function each: the documented error comes out, or none does.

A target gets one input, and the path of a file that it may write; it raises whatever it finds wrong. Its seeds are made
anew each time. `changed_checkpoint` and `changed_bundle` change inputs whose parts have to agree, which bytes changed
at random never do.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import random
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import onnx.helper
import safetensors.numpy

from pycudnnrnn import CudnnGRU, CudnnLSTM, RNNSpec, Saver, checkpoint, convert
from pycudnnrnn.checkpoint import _models
from pycudnnrnn.checkpoint._bundle import images as bundle_images
from pycudnnrnn.cli import _files
from pycudnnrnn.errors import CheckpointError, PycudnnrnnError
from tests.fuzz import bundle_mutants
from tests.fuzz.json_mutants import with_a_change
from tests.helpers.oracles import random_canonical

Change = Callable[[bytes], bytes]

MODEL_CONFIG = {
    "class_name": "Sequential", "config": {"name": "s", "layers": [
        {"class_name": "Bidirectional", "config": {"name": "b", "merge_mode": "concat", "layer": {
            "class_name": "GRU", "config": {"name": "gru", "activation": "tanh", "recurrent_initializer": None}}}},
        {"class_name": "LSTM", "config": {"name": "lstm", "activation": "tanh", "recurrent_initializer": None}},
    ]},
}  # fmt: skip
"""What Keras writes into a whole model's file, as short as it may be."""

# --- the targets ------------------------------------------------------------------------------------------------------


def checkpoint_file(data: bytes, path: Path) -> None:
    """Every reader of a checkpoint; a restore that is refused changes nothing."""
    path.write_bytes(data)
    check_restores(path)
    for read in (
        checkpoint.load,
        checkpoint.inspect,
        functools.partial(checkpoint.inspect, foreign=True),
        _models.read,
    ):
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
    files = bundle_of(data)
    files.write(path)
    check_restores(path.with_name(f"{path.name}.index"))
    for read in (checkpoint.read_tensorflow, checkpoint.inspect):
        with contextlib.suppress(CheckpointError), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what holds no numbers is named
            read(path.with_name(f"{path.name}.index"))


def checkpoint_list(data: bytes, path: Path) -> None:
    path.with_name(checkpoint.LIST).write_bytes(data)
    with contextlib.suppress(CheckpointError):
        checkpoint.latest_checkpoint(path.parent)


def keras_file(data: bytes, path: Path) -> None:
    converted(data, path.with_suffix(".keras" if data.startswith(b"PK") else ".h5"), "keras")


def onnx_file(data: bytes, path: Path) -> None:
    converted(data, path.with_suffix(".onnx"), "onnx")


def converted(data: bytes, path: Path, framework: str) -> None:
    """Read a file as `pycudnnrnn convert` does."""
    path.write_bytes(data)
    with contextlib.suppress(PycudnnrnnError):
        source = _files.FILE_FORMATS[path.suffix].read(path, None)
        getattr(convert, framework).to_canonical(source.arrays, **source.keywords)


@functools.cache
def things_to_restore() -> list[Any]:
    """Savers, each with the arrays that a restore changes."""
    found = []
    for layer, input_size in ((CudnnLSTM(1, 2, "skip_input", seed=4, name="b"), 2), (small_gru(), 3)):
        layer.build((None, None, input_size))
        step = np.array([5, -7])
        found.append((Saver({"m": layer, "step": step}), (layer.params, step)))
    return found


def small_gru() -> Any:
    return CudnnGRU(1, 2, seed=3, name="a")


def bundle_of(data: bytes) -> Any:
    """Read an input as an index and a shard: the index' length comes first."""
    end = 4 + int.from_bytes(data[:4], "little")
    return bundle_mutants.Files(data[4:end], [data[end:]])


def bundle_bytes(files: Any) -> bytes:
    return b"".join([len(files.index).to_bytes(4, "little"), files.index, *files.shards[:1]])


# --- the inputs to begin with -----------------------------------------------------------------------------------------


def bundle_seeds(folder: Path) -> Iterator[bytes]:
    """Checkpoints that are right, and one of each kind of mutant."""
    rng = random.Random(0)
    for name, (saver, _) in enumerate(things_to_restore()):
        arrays = safetensors.numpy.load_file(saver.save(folder / str(name)))
        files = bundle_images(folder / "seed", {own: a for own, a in arrays.items() if "dropout" not in own})
        (_, shard), (_, index) = files
        right = bundle_mutants.Files(index, [shard])
        yield bundle_bytes(right)
    for mutation in bundle_mutants.MUTATIONS:
        with contextlib.suppress(Exception):  # one that needs what this checkpoint has not
            yield bundle_bytes(mutation(rng, right))


def changed_bundle(rng: random.Random, data: bytes, change: Change) -> bytes:
    """Change bytes, or entries, blocks and tensors with checksums that fit."""
    if rng.randrange(8) == 0:
        return change(data)
    return bundle_bytes(rng.choice(bundle_mutants.MUTATIONS)(rng, bundle_of(data)))


def checkpoint_seeds(folder: Path) -> Iterator[bytes]:
    """Files that are right, one of another program, and one that is put together from two."""
    right = [saver.save(folder / str(i)).read_bytes() for i, (saver, _) in enumerate(things_to_restore())]
    yield from right
    layer = small_gru()
    layer.build((None, None, 3))
    yield checkpoint.save(folder / "layer", layer).read_bytes()
    yield safetensors.numpy.save({"x": np.ones((2, 3), "f4"), "y": np.zeros(0, "i8")}, {"by": "another program"})
    yield right[0][: len(right[0]) // 2] + right[1][len(right[1]) // 2 :]


def list_seeds(_: Path) -> Iterator[bytes]:
    yield b'model_checkpoint_path: "data"\nall_model_checkpoint_paths: "d\\303\\274"\n'


def keras_seeds(folder: Path) -> Iterator[bytes]:
    for mode, layers, direction in (("lstm", 2, "bidirectional"), ("gru", 1, "unidirectional")):
        arrays = convert.keras.from_canonical(random_canonical(RNNSpec(mode, layers, 4, 3, direction=direction), 0))
        convert.keras.write_h5(folder / "seed.weights.h5", arrays)
        yield (folder / "seed.weights.h5").read_bytes()
    with h5py.File(folder / "seed.h5", "w", libver="latest") as file:
        file.attrs["model_config"] = json.dumps(MODEL_CONFIG)
        for name, array in arrays.items():
            file.create_dataset(name, data=array, chunks=True, compression="gzip", fletcher32=True)
    yield (folder / "seed.h5").read_bytes()
    with zipfile.ZipFile(folder / "seed.keras", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", json.dumps(MODEL_CONFIG))
        archive.write(folder / "seed.h5", "model.weights.h5")
    yield (folder / "seed.keras").read_bytes()


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
    """Change bytes, the header's text or its JSON; most times length and hash fit again."""
    how = rng.randrange(10)
    if how == 0:
        return change(data)
    end = 8 + int.from_bytes(data[:8], "little")
    header, payload = json.loads(data[8:end]), data[end:]
    if how == 1:
        return joined(change(data[8:end]), payload)
    if how < 4:
        payload = change(payload)
    elif how < 6:
        header = with_a_change(rng, header)
    else:  # what things are: the deepest place, where few changes of the whole would come
        header["__metadata__"]["items"] = with_a_change(rng, header["__metadata__"]["items"])
    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
        header["__metadata__"]["sha256"] = hash_of(header, payload)
    return joined(json.dumps(header).encode(), payload)


def joined(header: bytes, payload: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + payload


def hash_of(header: Any, payload: bytes) -> str:
    """Return the hash that fits, as somebody would who wants to get past it: written anew, from the format."""
    names = {"F16": "float16", "F32": "float32", "F64": "float64", "I64": "int64"}
    metadata = {key: value for key, value in header["__metadata__"].items() if key != "sha256"}
    parts: list[Any] = [text for key in sorted(metadata) for text in (key, metadata[key])]
    for name in sorted(header.keys() - {"__metadata__"}):
        first, last = header[name]["data_offsets"]
        parts += [name, names[header[name]["dtype"]], str(tuple(header[name]["shape"])), payload[first:last]]
    found = hashlib.sha256()
    for part in parts:
        raw = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
        found.update(len(raw).to_bytes(8, "little") + raw)
    return found.hexdigest()


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
    "keras": Target(keras_file, keras_seeds),
    "onnx": Target(onnx_file, onnx_seeds),
    "bundle": Target(bundle_files, bundle_seeds, changed_bundle),
}
