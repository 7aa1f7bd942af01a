"""What a layer starts with: by seed, by name and by callable."""

import numpy as np
import pytest

from pycudnnrnn import CudnnGRU, CudnnLSTM, CudnnRNNTanh
from pycudnnrnn._tf1.initializers import initial_value
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError


def test_a_seeded_layer_starts_as_its_op_does_and_no_two_gates_are_alike():
    layer = CudnnLSTM(2, 4, direction="bidirectional", seed=7)
    layer.build((None, None, 4))
    assert np.array_equal(layer.params, layer.op.init_params(7))
    weights, biases = layer.op.params_to_canonical(layer.params)
    for i, weight in enumerate(weights):
        bound = np.sqrt(6 / sum(weight.shape))
        assert 0.5 * bound < np.abs(weight).max() <= bound
        assert not any(weight.shape == w.shape and np.allclose(weight, w) for w in weights[i + 1 :])
    assert not np.any(biases)
    twin = CudnnLSTM(2, 4, direction="bidirectional", seed=7)
    twin.build((None, None, 4))
    assert np.array_equal(twin.params, layer.params)


def test_layers_without_a_seed_differ():
    first, second = CudnnGRU(1, 4), CudnnGRU(1, 4)
    for layer in (first, second):
        layer.build((None, None, 3))
    assert not np.array_equal(first.params, second.params)
    assert first.spec.seed != second.spec.seed


@pytest.mark.parametrize("name", ["glorot_uniform", "glorot_normal", "orthogonal", "random_normal", "random_uniform"])
def test_named_initializers_draw_anew_for_each_matrix_and_bias(name):
    bias = "random_normal" if name == "orthogonal" else name
    layer = CudnnGRU(1, 16, seed=3, kernel_initializer=name, bias_initializer=bias)
    layer.build((None, None, 40))
    weights, biases = layer.op.params_to_canonical(layer.params)
    for arrays in (weights, biases):
        for i, array in enumerate(arrays):
            assert array.std() > 0.01
            assert not any(array.shape == other.shape and np.allclose(array, other) for other in arrays[i + 1 :])
    for weight, bias_of_it in zip(weights, biases, strict=True):
        same_stream = np.corrcoef(weight.reshape(-1)[:16], bias_of_it)[0, 1]
        assert abs(same_stream) < 0.9, "a bias is not its matrix's first numbers over again"
    if name == "orthogonal":
        assert all(np.allclose(w @ w.T, np.eye(16), atol=1e-5) for w in weights)


def test_callable_initializers_are_asked_once_a_canonical_array():
    shapes = []

    def count(shape, dtype):
        shapes.append((shape, np.dtype(dtype).name))
        return np.full(shape, len(shapes), dtype)

    layer = CudnnRNNTanh(1, 2, kernel_initializer=count, bias_initializer=count)
    layer.build((None, None, 3))
    assert shapes == [((2, 3), "float32"), ((2, 2), "float32"), ((2,), "float32"), ((2,), "float32")]
    assert sorted(set(layer.params)) == [1, 2, 3, 4]
    with pytest.raises(ArgumentError, match="a callable that returns shape"):
        CudnnRNNTanh(1, 2, kernel_initializer=lambda *_: np.ones(5)).build((None, None, 3))
    with pytest.raises(ArgumentError, match="'glorot_uniform'"):
        CudnnRNNTanh(1, 2, kernel_initializer="glorot")
    with pytest.raises(ArgumentTypeError, match="a callable over"):
        CudnnRNNTanh(1, 2, bias_initializer=0)


def test_glorots_bounds_are_tensorflows_of_a_matrix_and_of_a_vector():
    for shape, fans in (((40, 60), 100), ((1000,), 2000)):
        drawn = initial_value("k", "glorot_uniform", shape, np.dtype("f8"), [1])
        assert 0.98 < np.abs(drawn).max() / np.sqrt(6 / fans) <= 1


def test_orthogonal_matrices_turn_either_way():
    signs = {bool(initial_value("k", "orthogonal", (4, 4), np.dtype("f8"), [seed])[0, 0] > 0) for seed in range(20)}
    assert signs == {True, False}


def test_orthogonal_biases_are_no_matrices():
    with pytest.raises(ArgumentError, match="a matrix to make orthogonal"):
        CudnnGRU(1, 2, bias_initializer="orthogonal").build((None, None, 3))
