"""Numbers that others published, and functions that compute them: TensorFlow's tests, NVIDIA's sample, users of cuDNN.

Compare what a function returns on your device with the constant that its docstring names.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pycudnnrnn import ops
from pycudnnrnn._checks import check_word
from pycudnnrnn.spec import DTypeLike, ModeLike, RNNMode, RNNSpec
from pycudnnrnn.testing.problems import make_problem

__all__ = ["KINDS", "NVIDIA_CHECKSUMS", "TF_VALUES", "checksums", "sum_on_ones"]
__dir__ = __all__.copy

KINDS: Final[dict[str, Any]] = {mode: type(ops.from_spec(RNNSpec(mode, 1, 1, 1))) for mode in RNNMode}
"""The class of each cell's ops."""

TF_VALUES: Final[tuple[tuple[ModeLike, int, int, int, int, int, float], ...]] = (
    ("lstm", 4, 200, 200, 20, 10, 231833.22),
    ("gru", 4, 200, 200, 20, 10, 56000),
    ("rnn_tanh", 4, 200, 200, 20, 10, 56000),
    ("rnn_relu", 2, 8, 4, 4, 2, 130688),
)
"""Mode, L, U, I, B, T and the sum of all results if every input, state and parameter is 1.

Source: testSimpleInference in tensorflow/contrib/cudnn_rnn/python/kernel_tests/cudnn_rnn_ops_test.py, v0.11 to v1.12.
TF allowed 1e-2.
"""

NVIDIA_CHECKSUMS: Final[dict[ModeLike, dict[str, float]]] = {
    "rnn_relu": {"y": 1.315793e06, "hy": 1.315212e05, "dx": 6.676003e01, "dhx": 6.425067e01, "dw": 1.453750e09},
    "rnn_tanh": {"y": 6.319591e05, "hy": 6.319605e04, "dx": 4.501830e00, "dhx": 4.489546e00, "dw": 5.012598e07},
    "lstm": {
        "y": 5.749536e05, "hy": 5.774818e04, "cy": 4.365091e05, "dx": 3.842206e02, "dhx": 1.182566e01,
        "dcx": 9.323785e03, "dw": 4.313461e08,
    },
    "gru": {"y": 6.358978e05, "hy": 6.281680e04, "dx": 6.296622e00, "dhx": 2.289960e05, "dw": 5.397419e07},
}  # fmt: skip
"""Plain sums: T=20, L=2, U=I=512, B=64, every weight 1 / its matrix's elements, everything else 1.

Source: the header of NVIDIA's cuDNN RNN sample (RNN_example.cu), the same from cuDNN 5 to 8.
"""


def sum_on_ones(
    device: str, mode: ModeLike, L: int, U: int, inputs: int, B: int, T: int, dtype: DTypeLike, **options: Any
) -> float:
    """Compute a value of `TF_VALUES`: the sum of all results of an RNN whose inputs, states and params are all 1.

    Args:
        device: where to run: "cpu" or "cuda".
        mode: the cell: "lstm", "gru", "rnn_tanh" or "rnn_relu".
        L: number of layers.
        U: number of units.
        inputs: width of the input.
        B: number of sequences.
        T: number of steps.
        dtype: type of data and params: "float16", "bfloat16", "float32" or "float64".
        **options: further arguments of the op, such as `direction`.

    Returns:
        The sum over outputs and final states.

    Example:
        >>> from pycudnnrnn.testing import goldens
        >>> *sizes, expected = goldens.TF_VALUES[3]
        >>> sizes, expected
        (['rnn_relu', 2, 8, 4, 4, 2], 130688)
        >>> goldens.sum_on_ones("cpu", *sizes, "float32")
        130688.0
    """
    op = KINDS[check_word(RNNMode, "mode", mode)](L, U, inputs, dtype=dtype, **options)
    fwd = make_problem(op, T, B, None, seed=0, values=[1.0]).to(device).forward(is_training=False)
    results = (fwd.output, fwd.output_h, fwd.output_c)
    return sum(float(result.sum(dtype=np.float64)) for result in results if result is not None)


def checksums(device: str, mode: ModeLike, dtype: DTypeLike = "float64") -> dict[str, float]:
    """Compute the values of `NVIDIA_CHECKSUMS` for one mode.

    Args:
        device: where to run: "cpu" or "cuda".
        mode: the cell: "lstm", "gru", "rnn_tanh" or "rnn_relu".
        dtype: type of data and params: "float16", "bfloat16", "float32" or "float64". Default: "float64".

    Returns:
        The sum of each result and gradient, by name: "y", "hy", "dx", "dhx", "dw", and "cy", "dcx" for an LSTM.

    Example:
        >>> from pycudnnrnn.testing import goldens
        >>> sums = goldens.checksums("cpu", "gru")
        >>> expected = goldens.NVIDIA_CHECKSUMS["gru"]
        >>> all(abs(sums[name] / expected[name] - 1) < 1e-5 for name in expected)
        True
    """
    op = KINDS[check_word(RNNMode, "mode", mode)](2, 512, 512, dtype=dtype)
    problem = make_problem(op, 20, 64, None, seed=0, values=[1.0]).to(device)
    for weight in op.params_to_canonical(problem.params, copy=False)[0]:
        weight[:] = 1 / weight.size
    results = problem.results()
    results["dw"] = results.pop("dparams")
    return {name: float(array.sum(dtype=np.float64)) for name, array in results.items()}
