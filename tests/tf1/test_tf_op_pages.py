"""The ops and the saveable as TF's reference documents them: `CudnnRNNRelu` r1.2, its saveable, `CudnnLSTM` r1.4.

`tests/ops/test_ops.py` has the arguments and the properties of the ops.
"""

import numpy as np
import pytest

import pycudnnrnn as package
from pycudnnrnn import ops
from pycudnnrnn.testing import reference
from tests.helpers.tf_pages import B, I, T, U, normal


@pytest.mark.parametrize(("kind", "gates", "dirs"), [(ops.CudnnRNNRelu, 1, 1), (ops.CudnnLSTM, 4, 2)])
def test_the_ops_compute_the_equations_and_go_to_canonical_form_and_back(kind, gates, dirs):
    op = kind(2, U, I, direction=("unidirectional", "bidirectional")[dirs - 1], dtype="float64")
    assert op.params_size() == sum(dirs * gates * U * (columns + U + 2) for columns in (I, dirs * U))
    params = normal(op.params_size())
    weights, biases = op.params_to_canonical(params)
    assert [w.shape for w in weights[: 2 * gates]] == [(U, I)] * gates + [(U, U)] * gates
    assert len(weights) == len(biases) == 2 * 2 * gates * dirs
    assert np.array_equal(op.canonical_to_params(weights, biases), params)
    x, *states = normal(T, B, I), normal(2 * dirs, B, U), normal(2 * dirs, B, U)
    named = dict(zip(("input_h", "input_c") if gates == 4 else ("input_h",), states, strict=False))
    expected = reference.forward(op.spec, weights, biases, x, *states, [T] * B)
    for ours, oracle in zip(op(input_data=x, params=params, is_training=True, **named), expected, strict=False):
        assert np.allclose(ours, oracle, atol=1e-12, rtol=0)


def test_the_saveable_has_layers_weights_before_biases_forward_before_backward():
    params = normal(ops.CudnnRNNRelu(2, U, I, direction="bidirectional").params_size()).astype("f4")
    saveable = package.CudnnRNNReluSaveable(params, 2, U, I, "linear_input", "bidirectional", "m", "saveable")
    assert [spec.name for spec in saveable.specs][:8] == [
        f"m/stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/{direction}/basic_rnn_cell/{kind}"
        for kind in ("kernel", "bias")
        for layer in (0, 1)
        for direction in ("fw", "bw")
    ]
    before, tensors = params.copy(), [spec.tensor for spec in saveable.specs]
    params[:] = 0
    assert saveable.restore(restored_tensors=tensors, restored_shapes=None) is params
    assert np.array_equal(params, before)
    with pytest.raises(ValueError, match="Invalid direction"):
        package.CudnnRNNReluSaveable(params, 2, U, I, direction="both")
