"""Layers for TensorFlow's models, and how far what they compute is from what TensorFlow computed."""

import numpy as np
import pytest

from tests.checkpoint.tensorflow.models import INPUT_SIZE, LENGTHS, NUM_UNITS
from tests.helpers.layers import OF_MODE
from tests.helpers.oracles import worst

TOLERANCE = 1e-6
"""Of float32, in a small model whose outputs are about 1."""

DIRECTIONS = ("unidirectional", "bidirectional")


def by_name(models):
    return pytest.mark.parametrize("model", models, ids=lambda model: model.name)


def layer_for(model, **keywords):
    direction = DIRECTIONS[model.bidirectional]
    layer = OF_MODE[model.kind](model.num_layers, NUM_UNITS, direction=direction, dtype="float32", **keywords)
    layer.build((None, None, INPUT_SIZE))
    return layer


def error_of(folder, model, layer):
    """Return the worst difference of a layer from TensorFlow's own outputs and states."""
    theirs = np.load(folder / f"{model.name}.npz")
    output, states = layer(theirs["x"], training=False, sequence_lengths=list(LENGTHS))
    ours = [output, *states, *[None] * (2 - len(states))]
    return worst(ours, [theirs.get(name) for name in ("output", "output_h", "output_c")])
