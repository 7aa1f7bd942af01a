"""Numbers that others published: TensorFlow's own test values, and the checksums of NVIDIA's cuDNN RNN sample."""

import pytest

from pycudnnrnn.testing import goldens


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("value", goldens.TF_VALUES, ids=str)
def test_tensorflows_own_values_come_out(value, dtype):
    *problem, expected = value
    assert goldens.sum_on_ones("cpu", *problem, dtype) == pytest.approx(expected, rel=1e-6)  # TF allowed 1e-2


@pytest.mark.parametrize("dropout", [0.5, 1.0])
def test_tensorflows_value_is_the_same_whatever_the_dropout_in_inference(dropout):
    *problem, expected = goldens.TF_VALUES[0]
    assert goldens.sum_on_ones("cpu", *problem, "float32", dropout=dropout) == pytest.approx(expected, rel=1e-6)


def test_the_relu_value_in_both_directions_is_the_one_worked_out_by_hand():
    """Both directions see the same ones: layer 0 gives 14, 118; layer 1 sums 16 of them with its own state."""
    assert goldens.sum_on_ones("cpu", "rnn_relu", 2, 8, 4, 4, 2, "float64", direction="bidirectional") == 1302784


@pytest.mark.parametrize("mode", goldens.NVIDIA_CHECKSUMS)
def test_nvidias_sample_checksums_come_out(mode):
    assert goldens.checksums("cpu", mode) == pytest.approx(goldens.NVIDIA_CHECKSUMS[mode], rel=1e-5)


def test_there_are_22_checksums():
    assert sum(map(len, goldens.NVIDIA_CHECKSUMS.values())) == 22


@pytest.mark.parametrize("mode", goldens.SKIP_INPUT_VALUES)
def test_skip_input_adds_x_to_every_gate(mode):
    assert goldens.skip_input_states("cpu", mode) == pytest.approx(goldens.SKIP_INPUT_VALUES[mode], abs=1e-8)


@pytest.mark.parametrize("sizes", goldens.TF_SIZES)
def test_params_sizes_are_tensorflows(sizes):
    assert goldens.sizes(*sizes) == goldens.TF_SIZES[sizes]


@pytest.mark.parametrize(("mode", "sizes", "direction", "expected"), goldens.SEEN_SIZES)
def test_params_sizes_are_those_users_saw_on_cudnn(mode, sizes, direction, expected):
    assert goldens.KINDS[mode](*sizes, direction=direction).params_size() == expected
