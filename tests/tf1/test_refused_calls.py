"""A call of a layer or a cell that is refused leaves it as it was, so that the next one works."""

import numpy as np
import pytest

from pycudnnrnn import CudnnCompatibleGRUCell, CudnnCompatibleLSTMCell, CudnnGRU, CudnnLSTM, RNNSpec
from pycudnnrnn.cells import CellStack
from pycudnnrnn.errors import ArgumentError, EngineError, MissingDependencyError
from tests.helpers.layers import batch

X, H = batch(2, 5), batch(2, 3)


def test_a_refused_cast_leaves_an_unbuilt_layer_as_it_was():
    layer = CudnnGRU(1, 3, algo="persist_static", device="cpu", math_type="tensor_op")
    before = layer.get_config()
    with pytest.raises(ArgumentError, match="algo"):
        layer.to("cuda:1", dtype="float64")
    assert layer.get_config() == before
    assert (layer.dtype, layer.device) == ("float32", "cpu")
    layer.build((None, None, 4))
    assert layer.params.dtype == layer.spec.dtype == "float32"
    assert layer.spec.math_type == "tensor_op"


@pytest.mark.parametrize("keywords", [{"dtype": "float64"}, {"device": "cuda:99", "dtype": "float16"}])
def test_a_refused_move_or_cast_leaves_a_built_layer_as_it_was(keywords):
    layer = CudnnGRU(1, 3, algo="persist_static", math_type="tensor_op")
    layer.build((None, None, 4))
    before, spec, params = layer.get_config(), layer.spec, layer.params
    with pytest.raises((ArgumentError, EngineError, MissingDependencyError)):
        layer.to(**keywords)
    assert layer.get_config() == before
    assert layer.spec is spec
    assert layer.params is params


FIRST = batch(4, 2, 5)


@pytest.mark.parametrize(
    ("inputs", "more"),
    [
        (batch(4, 5), {}),
        (object(), {}),
        (FIRST.astype("f4"), {}),
        (FIRST, {"initial_state": [H]}),
        (FIRST, {"initial_state": (H, H, H)}),
        (FIRST, {"initial_state": (H, H)}),
        (FIRST, {"sequence_lengths": [1, 5]}),
        (FIRST, {"time_major": "no"}),
    ],
)
def test_a_refused_first_call_neither_builds_nor_names_a_layer(inputs, more):
    layer = CudnnLSTM(1, 3, dtype="float64")
    with pytest.raises((ValueError, TypeError)):
        layer(inputs, **more, scope="refused")
    assert not layer.built
    assert (layer.scope_name, layer.variables, layer.device) == ("cudnn_lstm", [], None)
    layer(batch(4, 2, 7), scope="own")
    assert layer.variables[0].name == "own/opaque_kernel"


@pytest.mark.parametrize(
    "arguments", [(batch(2), H), (X, None), (X, batch(2, 4)), (X.astype("i4"), H), (X, H.astype("f4"))]
)
def test_a_refused_first_call_neither_builds_nor_names_a_cell(arguments):
    cell = CudnnCompatibleGRUCell(3)
    with pytest.raises((ValueError, TypeError)):
        cell(*arguments, scope="refused")
    assert not cell.built
    assert (cell.scope_name, cell.dtype, cell.variables) == ("cudnn_compatible_gru_cell", None, [])
    cell(np.ones((2, 7), "f4"), np.zeros((2, 3), "f4"), scope="own")
    assert (cell.dtype, cell.variables[0].name) == ("float32", "own/gates/kernel")


def test_a_cell_whose_initializer_fails_has_no_variables():
    def fails_on_the_second(shape, dtype):
        if shape != (8, 6):
            raise ValueError("not this one")
        return np.ones(shape, dtype)

    cell = CudnnCompatibleGRUCell(3, kernel_initializer=fails_on_the_second)
    before = cell.get_config()
    with pytest.raises(ValueError, match="not this one"):
        cell(X, H, scope="refused")
    assert cell.get_config() == before
    assert (cell.built, cell.scope_name, cell.variables) == (False, "cudnn_compatible_gru_cell", [])


def test_a_scope_stays_with_the_variables_that_it_named_though_their_first_call_failed():
    class Failing(CudnnCompatibleGRUCell):
        def call(self, inputs, state):
            super().call(inputs, state)
            raise ValueError("after the build")

    cell = Failing(3)
    with pytest.raises(ValueError, match="after the build"):
        cell(X, H, scope="own")
    assert cell.scope_name == "own"
    assert cell.add_weight("late", (2,)).name == "own/late"
    assert cell.variables[0].name == "own/gates/kernel"


def test_a_scope_that_a_call_named_stays_when_a_later_one_is_refused():
    cell = CudnnCompatibleLSTMCell(3)
    cell(X, (H, H), scope="own")
    with pytest.raises(ArgumentError):
        cell(X, (H, X), scope="refused")
    assert cell.scope_name == "own"


def test_a_stack_of_cells_takes_all_tensors_or_none():
    stack = CellStack(RNNSpec("gru", 2, 3, 5, dtype="float64"), "m")
    before = stack.tensors()
    last = list(before)[-1]
    ones = {name: np.ones_like(array) for name, array in before.items()}
    for wrong in ({n: a for n, a in ones.items() if n != last}, ones | {last: np.ones(7)}, ones | {last: "text"}):
        with pytest.raises(ArgumentError, match=last):
            stack.load(wrong)
        assert all(np.array_equal(array, before[name]) for name, array in stack.tensors().items())
    stack.load(ones)
    assert all((array == 1).all() for array in stack.tensors().values())
