"""Checkpoints that TensorFlow itself writes: `python -m tests.checkpoint.tensorflow.write_files FOLDER`.

TensorFlow has a process of its own: it takes the machine's devices, threads and Keras' backend for itself.
"""

import sys
from pathlib import Path

from tests.checkpoint.tensorflow import process  # noqa: F401  before TensorFlow

import tensorflow as tf  # isort: skip

from tests.checkpoint.tensorflow.arrays import PARTS, arrays, part


def save(prefix, tensors):
    """Write a checkpoint, under any names, as TensorFlow's `Saver` does under those of variables."""
    cut = [(name, words, part(value, words)) for name, value in tensors.items() for words in PARTS.get(name, [""])]
    names, slices, values = zip(*cut, strict=True)
    tensors = [tf.constant(value) for value in values]
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=slices, tensors=tensors)


def save_shards(prefix, tensors, count):
    """Write as the machines of a cluster do, each its own."""
    parts = [prefix.with_name(f"{prefix.name}-part-{i}") for i in range(count)]
    for i, own in enumerate(parts):
        save(own, dict(list(tensors.items())[i::count]))
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=list(map(str, parts)), destination_prefix=str(prefix))


def save_v1(path, tensors):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        data = [tf.constant(value) for value in tensors.values()]
        session.run(tf.raw_ops.Save(filename=str(path), tensor_names=list(tensors), data=data))


def main():
    folder, contents = Path(sys.argv[1]), arrays()
    for name in ("dtypes", "names", "many", "large", "partitioned"):
        save(folder / name, contents[name])
    save(folder / "strings", contents["strings"] | {"s": [b"a", b"bc"]})
    for name, count in (("shards", 3), ("mixed", 2)):
        save_shards(folder / name, contents[name], count)
    save_v1(folder / "v1", contents["v1"])
    (variable,) = contents["object-1"].values()
    tf.train.Checkpoint(v=tf.Variable(variable)).save(str(folder / "object"))


if __name__ == "__main__":
    main()
