"""Checkpoints of RNNs that TensorFlow runs: `python -m tests.checkpoint.tensorflow.write_models FOLDER`.

Each holds what a training leaves: the canonical tensors, the opaque buffer beside them, a dense layer, the slots of two
optimizers, moving averages and the step. NAME.npz has an input, and TensorFlow's outputs for it.
"""

import sys
from pathlib import Path

import numpy as np

from tests.checkpoint.tensorflow import process  # noqa: F401  before TensorFlow

import tensorflow as tf  # isort: skip

from tests.checkpoint.tensorflow.models import BUILT, CUDNN, INPUT_SIZE, LENGTHS, NUM_UNITS, OWN_CELLS, REFUSED, B, T

v1 = tf.compat.v1
cells = v1.nn.rnn_cell

PLAIN = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
PLAIN.graph_options.rewrite_options.disable_meta_optimizer = True  # a second per graph, for one run of each


class CudnnCompatibleGRUCell(cells.RNNCell):
    """TF 1.x's, of which TF 2 has nothing: the reset gate comes after the recurrent product.

    Source: the equations of cudnnRNNMode_t's CUDNN_GRU; variables of tensorflow/contrib/cudnn_rnn r1.15.
    """

    state_size = output_size = NUM_UNITS

    def __call__(self, inputs, state, scope=None):
        U = NUM_UNITS
        with v1.variable_scope(scope or "cudnn_compatible_gru_cell"):
            with v1.variable_scope("gates"):
                both = dense(tf.concat([inputs, state], 1), 2 * U)
            reset, update = tf.split(tf.sigmoid(both), 2, 1)
            with v1.variable_scope("candidate"):
                with v1.variable_scope("input_projection"):
                    from_input = dense(inputs, U)
                with v1.variable_scope("hidden_projection"):
                    from_state = dense(state, U)
            new = tf.tanh(from_input + reset * from_state)
            state = (1 - update) * new + update * state
        return state, state


def dense(inputs, columns):
    kernel = v1.get_variable("kernel", (inputs.shape[1], columns))
    return inputs @ kernel + v1.get_variable("bias", (columns,))


def cell_of(model):
    """Return a cell; TF 1.x's compatible LSTM is an LSTMCell that adds nothing to its forget gate."""
    if model.cell:
        own = {"num_proj": model.num_proj, "forget_bias": 1.0}
        return {
            "lstm_cell": lambda: cells.LSTMCell(NUM_UNITS, name="lstm_cell", **own),
            "basic_lstm_cell": lambda: cells.BasicLSTMCell(NUM_UNITS, name="basic_lstm_cell"),
            "peephole": lambda: cells.LSTMCell(NUM_UNITS, use_peepholes=True, name="lstm_cell"),
            "gru_cell": lambda: cells.GRUCell(NUM_UNITS, name="gru_cell"),
        }[model.cell]()
    activation = {"rnn_tanh": tf.tanh, "rnn_relu": tf.nn.relu}.get(model.kind)
    if activation is not None:
        return cells.BasicRNNCell(NUM_UNITS, activation, name="basic_rnn_cell")
    if model.kind == "gru":
        return CudnnCompatibleGRUCell()
    return cells.LSTMCell(NUM_UNITS, num_proj=model.num_proj, forget_bias=0.0, name="cudnn_compatible_lstm_cell")


def run(model, x):
    """Return the output, and the states of the cells in cuDNN's order."""
    more = {"sequence_length": list(LENGTHS), "dtype": tf.float32, "time_major": True}
    if not model.bidirectional:
        own = [cell_of(model) for _ in range(model.num_layers)]
        output, states = v1.nn.dynamic_rnn(cells.MultiRNNCell(own) if model.multi else own[0], x, **more)
        return output, list(states) if model.multi else [states]
    if not model.multi:
        outputs, states = v1.nn.bidirectional_dynamic_rnn(cell_of(model), cell_of(model), x, **more)
        return tf.concat(outputs, 2), list(states)
    found = []
    with v1.variable_scope("stack_bidirectional_rnn"):
        for layer in range(model.num_layers):
            with v1.variable_scope(f"cell_{layer}"):
                outputs, states = v1.nn.bidirectional_dynamic_rnn(cell_of(model), cell_of(model), x, **more)
            x, found = tf.concat(outputs, 2), [*found, *states]
    return x, found


def train(output):
    """Make what a training leaves beside the model's own variables; gradients are nothing that a checkpoint has."""
    v1.layers.dense(output, 2, name="dense")
    own, step = v1.trainable_variables(), v1.train.get_or_create_global_step()
    gradients = [(tf.zeros(variable.shape), variable) for variable in own]
    for optimizer in (v1.train.AdamOptimizer(), v1.train.MomentumOptimizer(0.1, 0.9), v1.train.FtrlOptimizer(0.1)):
        optimizer.apply_gradients(gradients)
    tf.train.ExponentialMovingAverage(0.9, step).apply(own)


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


def main():
    for seed, model in enumerate([*CUDNN, *BUILT, *OWN_CELLS, *REFUSED]):
        write(Path(sys.argv[1]), model, seed)


if __name__ == "__main__":
    main()
