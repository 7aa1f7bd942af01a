"""Numbers that others published: TensorFlow's own test values, and the checksums of NVIDIA's cuDNN RNN sample."""

import numpy as np
import pytest

from pycudnnrnn import ops

KINDS = {
    "lstm": ops.CudnnLSTM,
    "gru": ops.CudnnGRU,
    "rnn_tanh": ops.CudnnRNNTanh,
    "rnn_relu": ops.CudnnRNNRelu,
}


def run_on_ones(mode, L, U, inputs, B, T, dtype, **options):
    op = KINDS[mode](L, U, inputs, dtype=dtype, **options)
    state = np.ones((L * op.num_dirs, B, U), dtype)
    states = (state, state) if mode == "lstm" else (state,)
    results = op(np.ones((T, B, inputs), dtype), *states, np.ones(op.params_size(), dtype), is_training=False)
    return sum(float(result.sum(dtype=np.float64)) for result in results)


# testSimpleInference in tensorflow/contrib/cudnn_rnn/python/kernel_tests/cudnn_rnn_ops_test.py, v0.11 to v1.12: every
# input, state and parameter is 1; the value is the sum of all results. TF allowed 1e-2; we hold 1e-6.
TF_GOLDENS = [
    ("lstm", 4, 200, 200, 20, 10, 231833.22),
    ("gru", 4, 200, 200, 20, 10, 56000),
    ("rnn_tanh", 4, 200, 200, 20, 10, 56000),
    ("rnn_relu", 2, 8, 4, 4, 2, 130688),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("mode", "L", "U", "inputs", "B", "T", "expected"), TF_GOLDENS, ids=str)
def test_tensorflows_own_values_come_out(mode, L, U, inputs, B, T, expected, dtype):
    assert run_on_ones(mode, L, U, inputs, B, T, dtype) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("dropout", [0.5, 1.0])
def test_tensorflows_value_is_the_same_whatever_the_dropout_in_inference(dropout):
    assert run_on_ones("lstm", 4, 200, 200, 20, 10, "float32", dropout=dropout) == pytest.approx(231833.22, rel=1e-6)


def test_the_relu_value_in_both_directions_is_the_one_worked_out_by_hand():
    """Both directions see the same ones: layer 0 gives 14, 118; layer 1 sums 16 of them with its own state."""
    assert run_on_ones("rnn_relu", 2, 8, 4, 4, 2, "float64", direction="bidirectional") == 1302784


# Checksums printed in the header of NVIDIA's RNN sample, the same from cuDNN 5 to 8: T=20, L=2, U=I=512, B=64, every
# weight 1 / its matrix's elements, everything else 1; each figure is a plain sum.
NVIDIA_CHECKSUMS = {
    "rnn_relu": {"y": 1.315793e06, "hy": 1.315212e05, "dx": 6.676003e01, "dhx": 6.425067e01, "dw": 1.453750e09},
    "rnn_tanh": {"y": 6.319591e05, "hy": 6.319605e04, "dx": 4.501830e00, "dhx": 4.489546e00, "dw": 5.012598e07},
    "lstm": {
        "y": 5.749536e05, "hy": 5.774818e04, "cy": 4.365091e05, "dx": 3.842206e02, "dhx": 1.182566e01,
        "dcx": 9.323785e03, "dw": 4.313461e08,
    },
    "gru": {"y": 6.358978e05, "hy": 6.281680e04, "dx": 6.296622e00, "dhx": 2.289960e05, "dw": 5.397419e07},
}  # fmt: skip


@pytest.mark.parametrize("mode", NVIDIA_CHECKSUMS)
def test_nvidias_sample_checksums_come_out(mode):
    T, L, U, B = 20, 2, 512, 64
    op = KINDS[mode](L, U, U, dtype="float64")
    params = np.ones(op.params_size())
    for weight in op.params_to_canonical(params, copy=False)[0]:
        weight[:] = 1 / weight.size
    state = np.ones((L, B, U))
    lstm = mode == "lstm"
    fwd = op.forward(np.ones((T, B, U)), *([state, state] if lstm else [state]), params)
    grads = fwd.backward(np.ones((T, B, U)), state, state if lstm else None)
    found = {"y": fwd.output, "hy": fwd.output_h, "dx": grads.input, "dhx": grads.input_h, "dw": grads.params}
    if lstm:
        found |= {"cy": fwd.output_c, "dcx": grads.input_c}
    assert {name: float(a.sum()) for name, a in found.items()} == pytest.approx(NVIDIA_CHECKSUMS[mode], rel=1e-5)


def test_there_are_22_checksums():
    assert sum(map(len, NVIDIA_CHECKSUMS.values())) == 22


# tensorflow issue 8311: one unit, all params 0, x = 1, h = c = 0, skip_input. The GRU's value is a user's reading of
# cuDNN 5.1.5; the others follow from the same rule, that x is added to every gate.
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("gru", [0.20482421]),
        ("rnn_tanh", [0.7615941560]),
        ("rnn_relu", [1.0]),
        ("lstm", [0.3696063529, 0.5567699411]),
    ],
)
def test_skip_input_adds_x_to_every_gate(mode, expected):
    op = KINDS[mode](1, 1, 1, input_mode="skip_input", dtype="float64")
    states = (None, None) if mode == "lstm" else (None,)
    _, *finals = op(np.ones((1, 1, 1)), *states, np.zeros(op.params_size()))
    assert [final.item() for final in finals] == pytest.approx(expected, abs=1e-8)


# testLSTMParamsSize / testOpaqueParamsSize: [L, U, I] and the dense sizes of LSTM, GRU and the plain cells, one and
# both directions.
SIZES = {
    (4, 200, 200): (1286400, 3532800, 964800, 2649600, 321600, 883200),
    (4, 200, 300): (1366400, 3692800, 1024800, 2769600, 341600, 923200),
    (4, 200, 100): (1206400, 3372800, 904800, 2529600, 301600, 843200),
    (1, 100, 200): (120800, 241600, 90600, 181200, 30200, 60400),
    (2, 200, 100): (563200, 1446400, 422400, 1084800, 140800, 361600),
    (3, 200, 400): (1124800, 2889600, 843600, 2167200, 281200, 722400),
}


@pytest.mark.parametrize("sizes", SIZES)
def test_params_sizes_are_tensorflows(sizes):
    found = [
        KINDS[mode](*sizes, direction=direction).params_size()
        for mode in ("lstm", "gru", "rnn_tanh")
        for direction in ("unidirectional", "bidirectional")
    ]
    assert tuple(found) == SIZES[sizes]


# Sizes that users read off real cuDNN buffers: tensorflow issues 9370, 20273, 59281 and the R-Net repository's 47.
@pytest.mark.parametrize(
    ("mode", "sizes", "direction", "expected"),
    [
        ("lstm", (1, 100, 20), "unidirectional", 48800),
        ("lstm", (1, 100, 20), "bidirectional", 97600),
        ("lstm", (3, 143, 143), "bidirectional", 1315600),
        ("gru", (1, 76, 300), "unidirectional", 86184),
        ("gru", (1, 128, 28), "unidirectional", 60672),
    ],
)
def test_params_sizes_are_those_users_saw_on_cudnn(mode, sizes, direction, expected):
    assert KINDS[mode](*sizes, direction=direction).params_size() == expected
