"""Sizes at their limits and beyond: what 32 bits cannot hold is refused by name, and cuDNN is asked for nothing."""

import pytest

from pycudnnrnn import RNNSpec, ops
from pycudnnrnn.engines.cudnn.descriptors import check_sizes
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.passes import CallConfig
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import INT32_MAX
from tests.helpers.libraries import BUFFERS

LSTM = ops.CudnnLSTM(1, 8, 4)


@pytest.fixture
def refused(shim):
    """Give a function that prepares what is refused, and returns the argument that the error names."""
    LSTM.prepare(3, 2, device="cuda:0")  # the handle is made

    def name_of(op, *sizes, **keywords):
        shim.calls.clear()
        with pytest.raises(ArgumentError) as caught:
            op.prepare(*sizes, **keywords, device="cuda:0")
        assert not shim.calls
        return caught.value.argument

    return name_of


PRODUCTS = [
    # name in the error, spec, T, the largest batch that passes
    ("input_data", RNNSpec("gru", 1, 2, 8), 4, INT32_MAX // 32),
    ("output", RNNSpec("gru", 1, 8, 2, direction="bidirectional"), 4, INT32_MAX // 64),
    ("output", RNNSpec("lstm", 1, 8, 2, direction="bidirectional", num_proj=6), 4, INT32_MAX // 48),
    ("gates", RNNSpec("lstm", 1, 8, 2, num_proj=4), 4, INT32_MAX // 32),
    ("input_h", RNNSpec("gru", 3, 8, 2, direction="bidirectional"), 1, INT32_MAX // 48),
]


@pytest.mark.parametrize(("name", "spec", "T", "most"), PRODUCTS, ids=str)
def test_a_product_of_sizes_passes_up_to_its_limit_and_is_refused_beyond_it(refused, name, spec, T, most):
    """No memory is needed to see it: cuDNN takes such batches silently, and its kernels index with 32 bits."""
    for batch in (1, most - 1, most):
        check_sizes(CallConfig(spec, Schedule(T, batch)))
    assert refused(ops.from_spec(spec), T, most + 1) == name


@pytest.mark.parametrize(("above", "most"), BUFFERS, ids=lambda v: repr(v)[:50])
def test_weights_have_up_to_2_31_minus_1_elements_and_so_do_biases(refused, above, most):
    """tests/layout_query shows that cuDNN's own limit is this one."""
    check_sizes(CallConfig(most, Schedule(1, 1)))
    assert refused(ops.from_spec(above), 1, 1) == "params"
    with pytest.raises(ArgumentError, match="params"):
        ops.from_spec(above).layout("cuda:0")
    with pytest.raises(ArgumentError, match="params"):
        ops.from_spec(above).init_params(device="cuda:0")
