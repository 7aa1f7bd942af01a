"""Layers in the order of the numbers in their names: 2 before 10, as people count."""

import random

import numpy as np
import pytest

from pycudnnrnn import RNNSpec, convert
from pycudnnrnn._messages import Assumption
from tests.helpers.oracles import random_canonical

LAYERS = 12


@pytest.mark.filterwarnings("ignore:the arrays do not contain how their layers were made", "ignore:read as one stack")
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


@pytest.mark.parametrize(("framework", "layers"), [("flax", 2), ("flax", 3), ("equinox", 2), ("chainer", 2)])
def test_cells_that_only_numbers_order_are_read_as_layers_with_a_warning(framework, layers):
    c = random_canonical(RNNSpec("lstm", layers, 3, 3), 1)
    reader = getattr(convert, framework)
    arrays = {name.replace("layers_", "LSTMCell_"): array for name, array in reader.from_canonical(c).items()}
    twins = "; if they are two directions, give bidirectional=True" if layers == 2 else ""
    with pytest.warns(Assumption, match=f"read as one stack, in the order of their numbers: .*[^e]{twins}$"):
        assert reader.to_canonical(arrays).spec.num_layers == layers
    assert reader.to_canonical(arrays, bidirectional=False).spec.num_layers == layers
    if layers == 2:
        assert reader.to_canonical(arrays, bidirectional=True).spec.num_dirs == 2
