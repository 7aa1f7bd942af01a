"""Restore into a graph that has a Cudnn layer: `python -m tests.checkpoint.tensorflow.restore_graph PREFIX SCOPE`.

TensorFlow 2 has no Cudnn layer. What a saver sees of one is built here: the variable `opaque_kernel`, and in the
graph's collection a saveable that asks for the tensors whose names and shapes PREFIX-canonical.npz has. Printed is
what the saver of the whole graph says; PREFIX.npz gets what the one without `opaque_kernel` restored.

Source: `_create_saveable` of tensorflow/contrib/cudnn_rnn/python/layers/cudnn_rnn.py (r1.15).
"""

import sys

import numpy as np

from tests.checkpoint.tensorflow.write_models import PLAIN, tf, v1

from tensorflow.python.training.saving.saveable_object import SaveableObject, SaveSpec  # isort: skip

OPAQUE = "opaque_kernel"


class Canonical(SaveableObject):
    """What TF's layers put into `GraphKeys.SAVEABLE_OBJECTS`: it has names of its own, and no variable under them."""

    def __init__(self, name, tensors):
        self.found = {n: v1.Variable(tf.zeros_like(a), collections=["restored"]) for n, a in tensors.items()}
        super().__init__(None, [SaveSpec(variable, "", n) for n, variable in self.found.items()], name)

    def restore(self, restored_tensors, restored_shapes):
        pairs = zip(self.found.values(), restored_tensors, strict=True)
        return tf.group(*(v1.assign(variable, tensor) for variable, tensor in pairs))


def main():
    prefix, scope = sys.argv[1:]
    tensors = dict(np.load(f"{prefix}-canonical.npz"))
    with tf.Graph().as_default(), v1.Session(config=PLAIN) as session:
        with v1.variable_scope(scope):
            v1.get_variable(OPAQUE, (7,))
        step = v1.get_variable("global_step", (), tf.int64)
        saveable = Canonical(f"{scope}/{OPAQUE}_saveable", tensors)
        v1.add_to_collection(v1.GraphKeys.SAVEABLE_OBJECTS, saveable)
        try:
            v1.train.Saver().restore(session, prefix)
        except tf.errors.NotFoundError as error:
            print(error.message)
        others = [variable for variable in v1.global_variables() if OPAQUE not in variable.op.name]
        v1.train.Saver(others + v1.get_collection(v1.GraphKeys.SAVEABLE_OBJECTS)).restore(session, prefix)
        found = session.run(saveable.found) | {"global_step": session.run(step)}
    np.savez(f"{prefix}.npz", **found)


if __name__ == "__main__":
    main()
