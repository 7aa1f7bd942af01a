"""Numbers that others published: TensorFlow's own test values, and the checksums of NVIDIA's cuDNN RNN sample."""

import numpy as np
import pytest

from pycudnnrnn.testing import goldens

SKIP_INPUT_VALUES = {
    "gru": (0.20482421,),
    "rnn_tanh": (0.7615941560,),
    "rnn_relu": (1.0,),
    "lstm": (0.3696063529, 0.5567699411),
}
"""Final states of one unit: all params 0, x = 1, h = c = 0, skip_input.

Source: tensorflow issue 8311, the GRU's: a user's reading of cuDNN 5.1.5. The others follow from the same rule, that x
is added to every gate.
"""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("value", goldens.TF_VALUES, ids=str)
def test_tensorflows_own_values_come_out(value, dtype):
    *problem, expected = value
    assert goldens.sum_on_ones("cpu", *problem, dtype) == pytest.approx(expected, rel=1e-6)  # TF allowed 1e-2


def test_the_relu_value_in_both_directions_is_the_one_worked_out_by_hand():
    """Both directions see the same ones: layer 0 gives 14, 118; layer 1 sums 16 of them with its own state."""
    assert goldens.sum_on_ones("cpu", "rnn_relu", 2, 8, 4, 4, 2, "float64", direction="bidirectional") == 1302784


@pytest.mark.parametrize("mode", goldens.NVIDIA_CHECKSUMS)
def test_nvidias_sample_checksums_come_out(mode):
    assert goldens.checksums("cpu", mode) == pytest.approx(goldens.NVIDIA_CHECKSUMS[mode], rel=1e-5)


@pytest.mark.parametrize("mode", SKIP_INPUT_VALUES)
def test_skip_input_adds_x_to_every_gate(mode):
    op = goldens.KINDS[mode](1, 1, 1, input_mode="skip_input", dtype="float64")
    states = (None, None) if mode == "lstm" else (None,)
    _, *finals = op(np.ones((1, 1, 1)), *states, np.zeros(op.params_size()))
    assert [final.item() for final in finals] == pytest.approx(SKIP_INPUT_VALUES[mode], abs=1e-8)
