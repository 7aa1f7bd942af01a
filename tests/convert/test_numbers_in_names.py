"""Layers in the order of the numbers in their names: 2 before 10, as people count."""

import random

import numpy as np
import pytest

from pycudnnrnn import RNNSpec, convert
from tests.helpers.oracles import random_canonical

LAYERS = 12


@pytest.mark.filterwarnings("ignore:the arrays do not contain how their layers were made")
@pytest.mark.parametrize("framework", ["pytorch", "keras", "flax", "tensorflow", "equinox", "gluon", "chainer"])
def test_layer_10_comes_after_layer_2_in_whichever_order_a_file_has_them(framework):
    c = random_canonical(RNNSpec("lstm", LAYERS, 3, 3, dtype="float64"), 1)
    reader = getattr(convert, framework)
    arrays = reader.from_canonical(c)
    names = sorted(arrays)
    random.Random(1).shuffle(names)
    read = reader.to_canonical({name: arrays[name] for name in names})
    assert read.spec.num_layers == LAYERS
    assert all(map(np.array_equal, read.weights, c.weights))
