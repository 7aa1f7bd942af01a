"""The layer as TF's reference documents it: `CudnnLSTM` r1.9, the members that are not every base layer's.

Where the page documents an error, the test raises it.
"""

import numpy as np
import pytest

import pycudnnrnn as package
from pycudnnrnn.testing import reference
from tests.helpers.tf_pages import B, I, T, U, normal


def layer(**keywords):
    return package.CudnnLSTM(2, U, direction="bidirectional", seed=1, dtype="float64", name="enc", **keywords)


def built(**keywords):
    encoder = layer(**keywords)
    encoder.build((None, None, I))
    return encoder


def test_the_layer_takes_r19s_arguments_and_refuses_as_documented():
    encoder = package.CudnnLSTM(
        2, U, "linear_input", "unidirectional", 0.5, 3, "float16", lambda s, _: np.ones(s), "ones", "n"
    )
    encoder.build((None, None, I))
    assert np.array_equal(encoder.params, np.ones_like(encoder.params))
    assert (encoder.spec.dropout, encoder.spec.seed, encoder.dtype, encoder.name) == (0.5, 3, "float16", "n")
    for arguments, text in (
        ({"direction": "both"}, "Invalid direction: both, expecting unidirectional or bidirectional"),
        ({"dtype": "int32"}, "Only support float16, bfloat16, float32, float64, provided int32"),
        ({"input_mode": "x"}, "Invalid input_mode: x, expect one of"),
    ):
        with pytest.raises(ValueError) as raised:
            package.CudnnLSTM(2, U, **arguments)
        assert str(raised.value).startswith(text)


def test_the_layer_says_what_it_is():
    expected = {"num_layers": 2, "num_units": U, "num_dirs": 2, "direction": "bidirectional", "rnn_mode": "lstm",
                "input_mode": "linear_input", "dtype": "float64", "name": "enc", "scope_name": "enc",
                "saveable": None}  # fmt: skip
    assert {member: getattr(layer(), member) for member in expected} == expected
    assert layer().state_shape(7) == ([4, 7, U], [4, 7, U])
    assert package.CudnnGRU(3, U).state_shape(7) == ([3, 7, U],)
    for size, mode in ((3, "skip_input"), (4, "linear_input")):
        encoder = package.CudnnLSTM(1, 3, "auto_select")
        encoder.build((None, None, size))
        assert (encoder.input_mode, encoder.spec.input_mode) == ("auto_select", mode)


def test_what_is_known_once_the_input_size_is():
    with pytest.raises(ValueError, match="'input_size' is unknown since layer has not been built"):
        _ = layer().input_size
    with pytest.raises(RuntimeError, match=r"CudnnLSTM\.canonical_weight_shapes invoked before input shape is known"):
        _ = layer().canonical_weight_shapes
    encoder = built()
    assert encoder.input_size == I
    assert encoder.canonical_weight_shapes == ([(U, I)] * 4 + [(U, U)] * 4) * 2 + ([(U, 2 * U)] * 4 + [(U, U)] * 4) * 2
    assert encoder.canonical_bias_shapes == [(U,)] * 32
    assert isinstance(encoder.saveable, package.CudnnLSTMSaveable)
    assert encoder.saveable.name == "enc/opaque_kernel_saveable"


def test_build_refuses_as_documented():
    for shape, text in (
        ([T, B], "Expecting input_shape with 3 dims, got 2"),
        ([T, B, None], "The last dimension of the inputs to `CudnnRNN` should be defined. Found `None`."),
    ):
        with pytest.raises(ValueError) as raised:
            layer().build(shape)
        assert str(raised.value) == text
    encoder = built()
    params = encoder.params
    encoder.build([None, None, I])
    assert encoder.params is params


@pytest.mark.parametrize("member", ["call", "__call__", "apply"])
def test_calls_return_outputs_and_a_tuple_of_states(engine_calls, member):
    encoder = layer()
    x, h, c = normal(T, B, I), normal(4, B, U), normal(4, B, U)
    output, states = getattr(encoder, member)(x, (h, c))
    assert not engine_calls[-1][1].keep_reserve
    weights, biases = encoder.op.params_to_canonical(encoder.params)
    expected = reference.forward(encoder.spec, weights, biases, x, h, c, [T] * B)
    assert isinstance(states, tuple)
    for ours, oracle in zip((output, *states), expected, strict=True):
        assert np.allclose(ours, oracle, atol=1e-12, rtol=0)
    for error in (TypeError, ValueError):
        with pytest.raises(error, match="Invalid initial_state type: "):
            encoder.call(x, [h, c])
    with pytest.raises(ValueError):
        encoder.call(x, (h,))
    assert len(encoder.inbound_nodes) == (member != "call")


def test_the_output_has_a_shape_and_no_mask():
    assert layer().compute_output_shape((None, B, I)) == (None, B, 2 * U)
    with pytest.raises(ValueError, match="3 dims"):
        layer().compute_output_shape((B, I))
    assert layer().compute_mask(normal(T, B, I)) is None
    with pytest.raises(TypeError, match="sequence_lengths"):
        layer().compute_mask(normal(T, B, I), np.ones((B, T)))


def test_weights_come_out_and_go_in_as_numpy_arrays_all_or_none():
    encoder, twin = built(), built()
    (value,) = encoder.get_weights()
    with pytest.raises(ValueError, match="it is not built; call it once"):
        type(encoder)(1, 3).set_weights([value])
    value += 1
    assert not np.array_equal(value, encoder.params)
    twin.set_weights([value])
    assert np.array_equal(twin.params, value)
    twin.add_weight("scale", (2,))
    for wrong in ([], [value[:-1], np.ones(2)], [value + 1, np.ones(3)]):
        with pytest.raises(ValueError):
            twin.set_weights(wrong)
        assert np.array_equal(twin.params, value)
