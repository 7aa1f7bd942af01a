"""TensorFlow's own saver restores what ours wrote: `python -m tests.checkpoint.tensorflow.restore_models FOLDER`.

For each checkpoint in the folder that `tests.checkpoint.tensorflow.models.WRITTEN` names, NAME.npz gets the outputs of
TensorFlow's cells for the input in NAME-x.npy. The folder's latest checkpoint is printed, as TensorFlow sees it.
"""

import sys
from pathlib import Path

import numpy as np

from tests.checkpoint.tensorflow.write_models import PLAIN, run, save_outputs, tf, v1

from tests.checkpoint.tensorflow.models import WRITTEN  # isort: skip


def restore(folder, model):
    x = np.load(folder / f"{model.name}-x.npy")
    with tf.Graph().as_default(), v1.Session(config=PLAIN) as session:
        with v1.variable_scope(model.scope):
            found = run(model, tf.constant(x))
        step = v1.get_variable("global_step", (), tf.int64)
        v1.train.Saver().restore(session, str(folder / model.name))
        assert session.run(step) == model.num_layers
        save_outputs(folder, model, x, *session.run(found))


def main():
    folder = Path(sys.argv[1])
    for model in WRITTEN:
        restore(folder, model)
    print(v1.train.latest_checkpoint(str(folder)))


if __name__ == "__main__":
    main()
