"""What stays of a layer in its copies, and of its calls in its records."""

import copy
import gc
import pickle

import numpy as np
import pytest

from pycudnnrnn import CudnnGRU
from pycudnnrnn.testing import use_engine
from tests.helpers.layers import ALL, batch, built
from tests.helpers.layouts import ShuffledEngine

COPIES = [copy.copy, copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))]


class Labelled(CudnnGRU):
    """As Keras has it: copies are made by `__init__`, from what `get_config` returns."""

    def __init__(self, *arguments, label="a", **keywords):
        super().__init__(*arguments, **keywords)
        self.label = label

    def get_config(self):
        return super().get_config() | {"label": self.label}


@pytest.mark.parametrize("make", COPIES)
@pytest.mark.parametrize("kind", [*ALL, Labelled])
def test_copies_carry_weights_other_variables_and_the_dropout_position(kind, make):
    x, layer = batch(4, 3, 5), kind(2, 3, dropout=0.5, seed=1, dtype="float64")
    assert not make(layer).built
    layer(x, scope="outer/rnn")
    layer.add_weight("scale", (2,), initializer="ones", regularizer=sum, constraint=abs, trainable=False)
    layer.activity_regularizer = len
    twin = make(layer)
    assert (type(twin), twin.get_config()) == (kind, layer.get_config())
    for copied, weight in zip(twin.get_weights(), layer.get_weights(), strict=True):
        assert np.array_equal(copied, weight)
    assert not np.shares_memory(twin.params, layer.params)
    assert [v.name for v in twin.variables] == [v.name for v in layer.variables]
    assert twin.variables[1].constraint is abs
    assert twin.saveable.prefix == "outer/rnn/"
    assert twin.inbound_nodes == []
    assert np.array_equal(twin(x)[0], layer(x)[0]), "the same dropout masks come next"
    layer(x)
    assert layer.op.dropout_state() != twin.op.dropout_state(), "and positions move apart"
    twin.variables[1].assign([3, 4])
    assert (twin.losses, layer.losses[-1]) == ([4, 7], 2)


def test_a_layer_pickled_on_one_layout_runs_on_another():
    layer, x = built(direction="bidirectional", input_size=500), batch(4, 3, 500)
    expected, data = layer(x, training=False)[0], pickle.dumps(layer)
    assert len(data) < 1.1 * layer.params.nbytes, "the weights are there once"
    with use_engine(ShuffledEngine(5)):
        twin = pickle.loads(data)
        assert np.allclose(twin(x, training=False)[0], expected, atol=1e-14)
        data = pickle.dumps(twin)
    assert np.array_equal(pickle.loads(data).params, layer.params)


def test_records_of_calls_and_their_losses_do_not_grow():
    """`test_tf_base_layer` has that they keep no array."""
    layer = built()
    layer.activity_regularizer = lambda y: float(np.abs(y).sum())
    layer(batch(4, 3, 5))
    for _ in range(300):
        layer(batch(1, 1, 5))
    assert len(layer.inbound_nodes) == 256
    assert layer.get_input_shape_at(0) == (4, 3, 5)
    assert layer.get_input_shape_at(300) == (1, 1, 5)
    with pytest.raises(RuntimeError, match="dropped"):
        layer.get_input_shape_at(20)
    gc.collect()
    assert layer.losses == []
    assert len(layer._losses._conditional) <= 1
