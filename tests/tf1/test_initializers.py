"""What a layer starts with: by seed, by name and by callable."""

import numpy as np
import pytest

from pycudnnrnn import CudnnGRU, CudnnLSTM, CudnnRNNTanh
from pycudnnrnn._tf1.arguments import initial_value
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError


def started(kind, *sizes, columns, **keywords):
    layer = kind(*sizes, **keywords)
    layer.build((None, None, columns))
    return layer


def test_a_seeded_layer_starts_as_its_op_does_and_others_differ():
    layer, other, another = (started(CudnnLSTM, 2, 4, columns=4, seed=seed) for seed in (7, None, None))
    assert np.array_equal(layer.params, layer.op.init_params(7))
    assert not np.array_equal(other.params, another.params)
    assert other.spec.seed != another.spec.seed


@pytest.mark.parametrize("name", ["glorot_uniform", "glorot_normal", "orthogonal", "random_normal", "random_uniform"])
def test_named_initializers_draw_anew_for_each_matrix_and_bias(name):
    bias = "random_normal" if name == "orthogonal" else name
    layer = started(CudnnGRU, 1, 16, columns=40, seed=3, kernel_initializer=name, bias_initializer=bias)
    weights, biases = layer.op.params_to_canonical(layer.params)
    alike = np.abs(np.corrcoef([array.reshape(-1)[:16] for array in (*weights, *biases)]))
    assert (alike - np.eye(len(alike))).max() < 0.9, "no two begin with the same numbers"
    if name == "orthogonal":
        assert all(np.allclose(w @ w.T, np.eye(16), atol=1e-5) for w in weights)


def test_callable_initializers_are_asked_once_a_canonical_array():
    shapes = []

    def count(shape, dtype):
        shapes.append((shape, np.dtype(dtype).name))
        return np.full(shape, len(shapes), dtype)

    layer = started(CudnnRNNTanh, 1, 2, columns=3, kernel_initializer=count, bias_initializer=count)
    assert shapes == [((2, 3), "float32"), ((2, 2), "float32"), ((2,), "float32"), ((2,), "float32")]
    assert sorted(set(layer.params)) == [1, 2, 3, 4]
    for error, text, wrong in (
        (ArgumentError, "a callable that returns shape", {"kernel_initializer": lambda *_: np.ones(5)}),
        (ArgumentError, "'glorot_uniform'", {"kernel_initializer": "glorot"}),
        (ArgumentTypeError, "a callable over", {"bias_initializer": 0}),
        (ArgumentError, "a matrix to make orthogonal", {"bias_initializer": "orthogonal"}),
    ):
        with pytest.raises(error, match=text):
            started(CudnnRNNTanh, 1, 2, columns=3, **wrong)


def test_named_initializers_draw_as_widely_as_tensorflows_and_orthogonal_matrices_turn_either_way():
    for name, deviation in (("glorot_normal", 0.02**0.5), ("random_normal", 0.05), ("random_uniform", 0.05 / 3**0.5)):
        drawn = initial_value("k", name, (40, 60), np.dtype("f8"), [1])
        assert np.allclose([drawn.mean(), drawn.std()], [0, deviation], atol=0.06 * deviation, rtol=0)
    tall = initial_value("k", "orthogonal", (5, 3), np.dtype("f8"), [1])
    assert np.allclose(tall.T @ tall, np.eye(3))
    for shape, fans in (((40, 60), 100), ((1000,), 2000)):
        drawn = initial_value("k", "glorot_uniform", shape, np.dtype("f8"), [1])
        assert 0.98 < np.abs(drawn).max() / np.sqrt(6 / fans) <= 1
    signs = {bool(initial_value("k", "orthogonal", (4, 4), np.dtype("f8"), [seed])[0, 0] > 0) for seed in range(20)}
    assert signs == {True, False}
