"""The ops and the saveable as TF's reference documents them: `CudnnRNNRelu` r1.2, its saveable, `CudnnLSTM` r1.4."""

import numpy as np
import pytest

import pycudnnrnn as package
from pycudnnrnn import ops
from pycudnnrnn.testing import reference
from tests.helpers.tf_pages import B, I, T, U, normal


def relu_op():
    return ops.CudnnRNNRelu(2, U, I)


def lstm_op():
    return ops.CudnnLSTM(2, U, I, "linear_input", "bidirectional", "float64", 0.0, 3)


def test_the_relu_op_takes_r12s_arguments():
    op = ops.CudnnRNNRelu(2, U, U, "auto_select", "bidirectional", 0.5, 9)
    assert (op.spec.dropout, op.spec.seed, op.input_mode) == (0.5, 9, "skip_input")
    with pytest.raises(ValueError, match="Invalid direction"):
        ops.CudnnRNNRelu(2, U, U, "auto_select", "both")


def test_the_relu_op_computes_relu_by_hand():
    op = ops.CudnnRNNRelu(1, U, I, "linear_input", "unidirectional", 0.0, 0)
    params = normal(op.params_size()).astype("f4")
    (W, R), (bW, bR) = op.params_to_canonical(params)
    x, h0 = normal(T, B, I).astype("f4"), normal(1, B, U).astype("f4")
    output, output_h = op(input_data=x, input_h=h0, params=params, is_training=True)
    h = h0[0]
    for t in range(T):
        h = np.maximum(x[t] @ W.T + h @ R.T + bW + bR, 0)
        assert np.allclose(output[t], h, atol=1e-5)
    assert np.allclose(output_h[0], h, atol=1e-5)


@pytest.mark.parametrize("member", ["direction", "input_mode", "input_size", "num_layers", "num_units", "rnn_mode"])
def test_the_lstm_op_says_what_it_is(member):
    expected = {"direction": "bidirectional", "input_mode": "linear_input", "input_size": I, "num_layers": 2,
                "num_units": U, "rnn_mode": "lstm"}  # fmt: skip
    assert getattr(lstm_op(), member) == expected[member]


def test_the_lstm_op_takes_r14s_arguments():
    op = ops.CudnnLSTM(3, U, I, "linear_input", "unidirectional", "float64", 0.25, 7)
    assert (op.spec.dtype, op.spec.dropout, op.spec.seed) == ("float64", 0.25, 7)


def test_the_lstm_op_agrees_with_the_equations():
    op = lstm_op()
    params = normal(op.params_size())
    x, h, c = normal(T, B, I), normal(4, B, U), normal(4, B, U)
    expected = reference.forward(op.spec, *op.params_to_canonical(params), x, h, c, [T] * B)
    for ours, theirs in zip(op(x, h, c, params, is_training=False), expected, strict=True):
        assert np.allclose(ours, theirs, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("op", "gates", "dirs"), [(relu_op(), 1, 1), (lstm_op(), 4, 2)], ids=["relu", "lstm"])
def test_the_size_is_the_dense_sum(op, gates, dirs):
    assert op.params_size() == sum(dirs * gates * U * (cols + U + 2) for cols in (I, dirs * U))


@pytest.mark.parametrize(("op", "gates", "dirs"), [(relu_op(), 1, 1), (lstm_op(), 4, 2)], ids=["relu", "lstm"])
def test_canonical_form_goes_both_ways(op, gates, dirs):
    params = normal(op.params_size()).astype(op.dtype)
    weights, biases = op.params_to_canonical(params)
    assert [w.shape for w in weights[: 2 * gates]] == [(U, I)] * gates + [(U, U)] * gates
    assert len(weights) == len(biases) == 2 * 2 * gates * dirs
    assert np.array_equal(op.canonical_to_params(weights, biases), params)


# --- the saveable -----------------------------------------------------------------------------------------------------


def relu_saveable(params):
    return package.CudnnRNNReluSaveable(params, 2, U, I, "linear_input", "bidirectional", "m", "saveable")


def test_the_saveable_has_layers_weights_before_biases_forward_before_backward():
    size = ops.CudnnRNNRelu(2, U, I, direction="bidirectional").params_size()
    names = [spec.name for spec in relu_saveable(np.zeros(size, "f4")).specs][:8]
    assert names == [
        f"m/stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/{direction}/basic_rnn_cell/{kind}"
        for kind in ("kernel", "bias")
        for layer in (0, 1)
        for direction in ("fw", "bw")
    ]
    with pytest.raises(ValueError, match="Invalid direction"):
        package.CudnnRNNReluSaveable(np.zeros(size, "f4"), 2, U, I, direction="both")


def test_the_saveable_restores_from_the_list_of_its_tensors():
    op = ops.CudnnRNNRelu(2, U, I, direction="bidirectional")
    params = normal(op.params_size()).astype("f4")
    saveable, before = relu_saveable(params), params.copy()
    tensors = [spec.tensor for spec in saveable.specs]
    params[:] = 0
    restored = saveable.restore(restored_tensors=tensors, restored_shapes=None)
    assert restored is params
    assert np.array_equal(params, before)
