"""Checkpoints that TensorFlow itself writes: `python -m tests.tensorflow.write_files FOLDER`.

TensorFlow has a process of its own: it takes the machine's devices, threads and Keras' backend for itself.
"""

import sys
from pathlib import Path

from tests.tensorflow import process  # noqa: F401  before TensorFlow

import tensorflow as tf  # isort: skip

from tests.tensorflow.arrays import PARTS, arrays, part


def save(prefix, tensors, slices=None):
    """Write a checkpoint, under any names, as TensorFlow's `Saver` does under those of variables."""
    names, values = zip(*tensors, strict=True)
    slices = slices or [""] * len(names)
    tensors = [tf.constant(value) for value in values]
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=slices, tensors=tensors)


def save_shards(prefix, tensors, count):
    parts = [prefix.with_name(f"{prefix.name}-part-{i}") for i in range(count)]
    for i, own in enumerate(parts):
        save(own, list(tensors.items())[i::count])
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=list(map(str, parts)), destination_prefix=str(prefix))


def save_v1(path, tensors):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        data = [tf.constant(value) for value in tensors.values()]
        session.run(tf.raw_ops.Save(filename=str(path), tensor_names=list(tensors), data=data))


def main():
    folder, contents = Path(sys.argv[1]), arrays()
    for name in ("dtypes", "names", "many", "large"):
        save(folder / name, contents[name].items())
    save_shards(folder / "shards", contents["shards"], 3)
    cut = [(name, words, part(contents["partitioned"][name], words)) for name in PARTS for words in PARTS[name]]
    save(folder / "partitioned", [(name, own) for name, _, own in cut], [words for _, words, _ in cut])
    save(folder / "strings", [("s", [b"a", b"bc"]), *contents["strings"].items()])
    save_v1(folder / "v1", contents["v1"])
    (variable,) = contents["object-1"].values()
    tf.train.Checkpoint(v=tf.Variable(variable)).save(str(folder / "object"))


if __name__ == "__main__":
    main()
