"""What stays of a layer in its copies, and of its calls in its records."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

from pycudnnrnn import CudnnCompatibleGRUCell, CudnnGRU, CudnnRNNTanh
from pycudnnrnn.testing import PermutedLayoutEngine, use_engine
from tests.helpers.layers import ALL, batch, built


@pytest.mark.parametrize("make", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
@pytest.mark.parametrize("kind", ALL)
def test_copies_carry_weights_other_variables_and_the_dropout_position(kind, make):
    layer, x = built(kind, dropout=0.5), batch(4, 3, 5)
    layer.add_weight("scale", (2,), initializer="ones", trainable=False)
    layer(x)
    twin = make(layer)
    assert twin.get_config() == layer.get_config()
    assert np.array_equal(twin.params, layer.params)
    assert not np.shares_memory(twin.params, layer.params)
    assert [v.name for v in twin.variables] == [v.name for v in layer.variables]
    assert twin.inbound_nodes == []
    assert np.array_equal(twin(x)[0], layer(x)[0]), "the same dropout masks come next"
    layer(x)
    assert layer.op.dropout_state() != twin.op.dropout_state(), "and positions move apart"
    assert not make(kind(1, 2)).built


@pytest.mark.parametrize("make", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_copies_carry_regularizers_constraints_and_the_scope(make):
    layer, x = CudnnGRU(1, 2, dtype="float64"), batch(4, 3, 5)
    layer(x, scope="outer/gru")
    layer.add_weight("scale", (2,), initializer="ones", regularizer=sum, constraint=abs)
    layer.activity_regularizer = len
    twin = make(layer)
    twin(x)
    assert twin.losses == [4, 2]
    variables = twin.variables_by_name()
    assert variables["scale"].constraint is abs
    assert twin.saveable.prefix == "outer/gru/"
    assert [v.name for v in variables.values()] == ["outer/gru/opaque_kernel", "outer/gru/scale"]
    variables["scale"].assign([3, 4])
    assert twin.losses == [4, 7]
    assert layer.losses == [2]


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
@pytest.mark.parametrize(
    ("kind", "arguments"), [(CudnnRNNTanh, [batch(4, 3, 5)]), (CudnnCompatibleGRUCell, [batch(3, 5), batch(3, 2)])]
)
def test_a_variable_from_before_the_first_call_fixes_the_scope_and_its_place_in_copies(kind, arguments, make):
    one = kind(1, 2, dtype="float64") if kind is CudnnRNNTanh else kind(2, dtype="float64")
    scope = one.scope_name
    one.add_weight("extra", (2,), initializer="ones", regularizer=sum)
    one(*arguments, scope="outer/z")
    assert one.scope_name == scope
    assert [v.name for v in one.variables] == [f"{scope}/{name}" for name in one.variables_by_name()]
    assert one.variables[0].name == f"{scope}/extra"
    one.variables[1].trainable, one.variables[1].constraint = False, abs
    twin = make(one)
    assert [(v.name, v.trainable, v.constraint) for v in twin.variables] == [
        (v.name, v.trainable, v.constraint) for v in one.variables
    ]
    assert list(twin.variables_by_name()) == list(one.variables_by_name())
    twin.set_weights([array + 1 for array in one.get_weights()])
    assert (twin.losses, one.losses) == ([4], [2])
    if kind is CudnnRNNTanh:
        assert twin.saveable.prefix == f"{scope}/"
        assert np.array_equal(twin.params, one.params + 1)


def test_a_layer_pickled_on_one_layout_runs_on_another():
    with use_engine(PermutedLayoutEngine(5)):
        layer, x = built(direction="bidirectional"), batch(4, 3, 5)
        expected = layer(x, training=False)[0]
        data = pickle.dumps(layer)
    plain = pickle.loads(data)
    assert np.allclose(plain(x, training=False)[0], expected, atol=1e-14)
    data = pickle.dumps(plain)
    with use_engine(PermutedLayoutEngine(6)):
        assert np.allclose(pickle.loads(data)(x, training=False)[0], expected, atol=1e-14)


def test_records_of_calls_keep_no_array_alive_and_do_not_grow():
    layer = built()
    x = batch(4, 3, 5)
    outputs, states = layer(x)
    alive = [weakref.ref(array) for array in (x, outputs, *states)]
    del x, outputs, states
    gc.collect()
    assert [reference() for reference in alive] == [None] * 4
    assert layer.input_shape == (4, 3, 5)
    with pytest.raises(RuntimeError, match="gone"):
        _ = layer.input
    for _ in range(300):
        layer(batch(1, 1, 5))
    assert len(layer.inbound_nodes) == 256
    assert layer.get_input_shape_at(0) == (4, 3, 5)
    assert layer.get_input_shape_at(300) == (1, 1, 5)
    with pytest.raises(RuntimeError, match="dropped"):
        layer.get_input_shape_at(20)


def test_losses_of_inputs_do_not_pile_up():
    layer = built()
    layer.activity_regularizer = lambda y: float(np.abs(y).sum())
    for seed in range(5):
        layer(batch(2, 2, 5, seed=seed))
    gc.collect()
    assert layer.losses == []
    assert len(layer._losses._conditional) <= 1
