"""A call of a layer or a cell that is refused leaves it as it was, so that the next one works."""

import copy
import functools

import numpy as np
import pytest

from pycudnnrnn import CudnnCompatibleGRUCell, CudnnGRU, CudnnLSTM
from pycudnnrnn.errors import ArgumentError, EngineError, MissingDependencyError
from pycudnnrnn.layers import _layer
from tests.helpers.interrupts import at_every_moment
from tests.helpers.layers import batch, built

X, H, FIRST = batch(2, 5), batch(2, 3), batch(4, 2, 5)


@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize(
    "keywords", [{"device": "cuda:1", "dtype": "float64"}, {"device": "cuda:99", "dtype": "int8"}, {"device": "tpu"}]
)
def test_a_refused_move_or_cast_leaves_a_layer_as_it_was(keywords, built):
    layer = CudnnGRU(1, 3, algo="persist_static", math_type="tensor_op")
    if built:
        layer.build((None, None, 4))
    before, device, variables = layer.get_config(), layer.device, layer.variables
    with pytest.raises((TypeError, ArgumentError, EngineError, MissingDependencyError)):
        layer.to(**keywords)
    assert (layer.get_config(), layer.device, layer.variables) == (before, device, variables)
    layer.build((None, None, 4))
    assert layer.params.dtype == layer.spec.dtype == "float32"


def test_ctrl_c_at_any_moment_of_a_cast_leaves_a_layer_in_one_dtype():
    half = functools.partial(built, CudnnGRU, dtype="float16", compute_dtype="float16")
    layers = [half()]
    for _ in at_every_moment(lambda: layers[-1].to(dtype="float32"), {_layer.__file__}):
        layer = layers[-1]
        assert layer.params.dtype == layer.op.dtype == layer.dtype == layer.spec.dtype
        copy.deepcopy(layer)(np.ones((1, 1, 5), layer.params.dtype))  # it reads the configuration, too
        layers.append(half())


def test_a_refused_first_call_neither_builds_nor_names_a_layer():
    layer = CudnnLSTM(1, 3, dtype="float64")
    for inputs, more in (
        (batch(4, 5), {}),
        (FIRST.astype("f4"), {}),
        (FIRST, {"initial_state": (H, H)}),
        (FIRST, {"sequence_lengths": [1, 5]}),
        (FIRST, {"time_major": "no"}),
    ):
        with pytest.raises((ValueError, TypeError)):
            layer(inputs, **more, scope="refused")
        assert not layer.built
        assert (layer.scope_name, layer.variables, layer.device) == ("cudnn_lstm", [], None)
    layer(batch(4, 2, 7), scope="own")
    assert layer.variables[0].name == "own/opaque_kernel"
    with pytest.raises(TypeError, match="scope"):
        layer(batch(4, 2, 7), scope=3)


def test_a_refused_first_call_neither_builds_nor_names_a_cell():
    cell = CudnnCompatibleGRUCell(3)
    before = cell.get_config()
    for arguments in [(batch(2), H), (X, None), (X, batch(2, 4)), (X.astype("i4"), H), (X, H.astype("f4"))]:
        with pytest.raises((ValueError, TypeError)):
            cell(*arguments, scope="refused")
        assert cell.get_config() == before
        assert (cell.built, cell.scope_name, cell.variables) == (False, "cudnn_compatible_gru_cell", [])
    broken = CudnnCompatibleGRUCell(3, kernel_initializer=lambda *_: X)
    with pytest.raises(ArgumentError, match="callable"):
        broken(X, H)
    assert broken.dtype is None
    cell(np.ones((2, 7), "f4"), np.zeros((2, 3), "f4"), scope="own")
    assert (cell.dtype, cell.variables[0].name) == ("float32", "own/gates/kernel")
