"""TensorFlow writes and reads: `python -m tests.checkpoint.tensorflow.child files|models FOLDER`, in one process each.

It has a process of its own: it takes the machine's devices, threads and Keras' backend for itself. Its own checkpoints
are in FOLDER; what it reads of ours is in FOLDER/ours.

- files: each prefix in FOLDER/ours is read; PREFIX.npz gets the arrays, PREFIX.json their names, types and shapes.
- models: each checkpoint of a training has the canonical tensors, the opaque buffer beside them, a dense layer, the
  slots of optimizers, averages and the step. NAME.npz has an input, and TensorFlow's outputs for it.
"""

import json
import os
import sys
from pathlib import Path

os.environ |= {  # before TensorFlow: quiet, one thread, and the cells of TF 1.x by tf_keras
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_USE_LEGACY_KERAS": "1",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
}

import numpy as np
import tensorflow as tf

from tests.checkpoint.tensorflow.arrays import PARTS, arrays, part
from tests.checkpoint.tensorflow.models import CUDNN, INPUT_SIZE, LENGTHS, NUM_UNITS, OWN_CELLS, WRITTEN, B, T


def save(prefix, tensors):
    """Write a checkpoint, under any names, as TensorFlow's `Saver` does under those of variables."""
    cut = [(name, words, part(value, words)) for name, value in tensors.items() for words in PARTS.get(name, [""])]
    names, slices, values = zip(*cut, strict=True)
    tensors = [tf.constant(value) for value in values]
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=slices, tensors=tensors)


def save_shards(prefix, tensors, count):
    """Write as the machines of a cluster do, each its own."""
    parts = [prefix.with_name(f"{prefix.name}-part-{i}") for i in range(count)]
    for i, path in enumerate(parts):
        save(path, dict(list(tensors.items())[i::count]))
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=list(map(str, parts)), destination_prefix=str(prefix))


def read(prefix):
    reader = tf.train.load_checkpoint(str(prefix))
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    names = sorted(shapes)
    np.savez(f"{prefix}.npz", *[np.ascontiguousarray(reader.get_tensor(n)).reshape(-1).view(np.uint8) for n in names])
    Path(f"{prefix}.json").write_text(json.dumps([[name, dtypes[name].name, shapes[name]] for name in names]))


def files(folder):
    contents = arrays()
    for name in ("dtypes", "names", "many", "large", "partitioned"):
        save(folder / name, contents[name])
    save(folder / "strings", contents["strings"] | {"s": [b"a", b"bc"]})
    for name, count in (("shards", 3), ("mixed", 2)):
        save_shards(folder / name, contents[name], count)
    (variable,) = contents["object-1"].values()
    tf.train.Checkpoint(v=tf.Variable(variable)).save(str(folder / "object"))
    for index in sorted((folder / "ours").glob("*.index")):
        read(index.with_suffix(""))


v1 = tf.compat.v1
cells = v1.nn.rnn_cell

PLAIN = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
PLAIN.graph_options.rewrite_options.disable_meta_optimizer = True  # a second per graph, for one run of each


def cell_of(model):
    """Return a cell; TF 1.x's compatible LSTM is an LSTMCell that adds nothing to its forget gate."""
    if model.cell:
        more = {"num_proj": model.num_proj} if model.num_proj else {}
        return {"lstm_cell": cells.LSTMCell, "basic_lstm_cell": cells.BasicLSTMCell}[model.cell](
            NUM_UNITS, name=model.cell, **more
        )
    activation = {"rnn_tanh": tf.tanh, "rnn_relu": tf.nn.relu}.get(model.kind)
    if activation is not None:
        return cells.BasicRNNCell(NUM_UNITS, activation, name="basic_rnn_cell")
    return cells.LSTMCell(NUM_UNITS, num_proj=model.num_proj, forget_bias=0.0, name="cudnn_compatible_lstm_cell")


def run(model, x):
    """Return the output, and the states of the cells in cuDNN's order."""
    more = {"sequence_length": list(LENGTHS), "dtype": tf.float32, "time_major": True}
    if not model.bidirectional:
        stack = [cell_of(model) for _ in range(model.num_layers)]
        output, states = v1.nn.dynamic_rnn(cells.MultiRNNCell(stack) if model.multi else stack[0], x, **more)
        return output, list(states) if model.multi else [states]
    if not model.multi:
        outputs, states = v1.nn.bidirectional_dynamic_rnn(cell_of(model), cell_of(model), x, **more)
        return tf.concat(outputs, 2), list(states)
    all_states = []
    with v1.variable_scope("stack_bidirectional_rnn"):
        for layer in range(model.num_layers):
            with v1.variable_scope(f"cell_{layer}"):
                outputs, states = v1.nn.bidirectional_dynamic_rnn(cell_of(model), cell_of(model), x, **more)
            x, all_states = tf.concat(outputs, 2), [*all_states, *states]
    return x, all_states


def train(output):
    """Make what a training leaves beside the model's own variables; gradients are nothing that a checkpoint has."""
    v1.layers.dense(output, 2, name="dense")
    weights, step = v1.trainable_variables(), v1.train.get_or_create_global_step()
    v1.train.AdamOptimizer().apply_gradients([(tf.zeros(variable.shape), variable) for variable in weights])
    tf.train.ExponentialMovingAverage(0.9, step).apply(weights)


def write(folder, model, seed):
    rng = np.random.default_rng(seed)
    with tf.Graph().as_default(), v1.Session(config=PLAIN) as session:
        x = rng.normal(size=(T, B, INPUT_SIZE)).astype("f4")
        with v1.variable_scope(model.scope):
            output, states = run(model, tf.constant(x))
            v1.get_variable("opaque_kernel", (7,))
        train(output)
        variables = v1.global_variables()
        values = {
            v.initializer.inputs[1]: rng.normal(scale=0.5, size=v.shape).astype(v.dtype.base_dtype.as_numpy_dtype)
            for v in variables
        }
        session.run([variable.initializer for variable in variables], values)
        path = v1.train.Saver().save(session, str(folder / model.name), write_meta_graph=False)
        output, states = session.run((output, states))
    assert path == str(folder / model.name)
    save_outputs(folder, model, x, output, states)


def save_outputs(folder, model, x, output, states):
    """Write an input, and what TensorFlow makes of it, with the states in cuDNN's order."""
    if model.kind == "lstm":
        c, h = (np.stack(part) for part in zip(*states, strict=True))
    else:
        c, h = None, np.stack(states)
    np.savez(folder / f"{model.name}.npz", x=x, output=output, output_h=h, **({} if c is None else {"output_c": c}))


def restore(folder, model):
    x = np.load(folder / f"{model.name}-x.npy")
    with tf.Graph().as_default(), v1.Session(config=PLAIN) as session:
        with v1.variable_scope(model.scope):
            outputs = run(model, tf.constant(x))
        step = v1.get_variable("global_step", (), tf.int64)
        v1.train.Saver().restore(session, str(folder / model.name))
        assert session.run(step) == model.num_layers
        save_outputs(folder, model, x, *session.run(outputs))


def models(folder):
    for seed, model in enumerate([*CUDNN, *OWN_CELLS]):
        write(folder, model, seed)
    ours = folder / "ours"
    for model in WRITTEN:
        restore(ours, model)
    (ours / "latest.txt").write_text(v1.train.latest_checkpoint(str(ours)))


if __name__ == "__main__":
    {"files": files, "models": models}[sys.argv[1]](Path(sys.argv[2]))
