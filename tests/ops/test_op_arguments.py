"""What an op refuses: each error names the argument, what was expected and what came."""

import sys

import numpy as np
import pytest
import torch

from pycudnnrnn import errors, ops
from pycudnnrnn.errors import ArgumentError, EngineError
from tests.helpers.calls import call_of

LSTM = ops.CudnnLSTM(2, 3, 4, direction="bidirectional", dtype="float64")
X, H, C, P = call_of(LSTM)

BAD_CALLS = {
    # arguments, keywords; the argument that the error names; its type
    "two axes": ((X[0], H, C, P), {}, "input_data", ValueError),
    "input_size": ((X[..., :3], H, C, P), {}, "input_data", ValueError),
    "input dtype": ((X.astype("f4"), H, C, P), {}, "input_data", ValueError),
    **{
        f"input {dtype}": ((np.zeros(X.shape, dtype), H, C, P), {}, "input_data", ValueError)
        for dtype in ("object", "i8,f8", "longdouble", "complex128", "U3", "M8[s]", "bool", "i8")
    },
    "byte order": ((X.astype(">f8"), H, C, P), {}, "input_data", ValueError),
    "a list": ((X.tolist(), H, C, P), {}, "input_data", TypeError),
    "None": ((None, H, C, P), {}, "input_data", TypeError),
    "h rows": ((X, H[:2], C, P), {}, "input_h", ValueError),
    "h batch": ((X, H[:, :1], C, P), {}, "input_h", ValueError),
    "h width": ((X, H[..., :2], C, P), {}, "input_h", ValueError),
    "h dtype": ((X, H.astype("f4"), C, P), {}, "input_h", ValueError),
    "c rows": ((X, H, C[:1], P), {}, "input_c", ValueError),
    "params length": ((X, H, C, P[:-1]), {}, "params", ValueError),
    "params axes": ((X, H, C, P[None]), {}, "params", ValueError),
    "params dtype": ((X, H, C, P.astype("f4")), {}, "params", ValueError),
    "params strides": ((X, H, C, np.repeat(P, 2)[::2]), {}, "params", ValueError),
    "params None": ((X, H, C, None), {}, "params", TypeError),
    "is_training": ((X, H, C, P, 1), {}, "is_training", TypeError),
    "is_training array": ((X, H, C, P, np.ones(1)), {}, "is_training", TypeError),
    "time_major": ((X, H, C, P), {"time_major": "yes"}, "time_major", TypeError),
    "batch-major h": ((X, H, C, P), {"time_major": False}, "input_h", ValueError),
    "lengths": ((X, H, C, P), {"sequence_lengths": [4, 1]}, "sequence_lengths[0]", ValueError),
    "torch lengths": ((X, H, C, P), {"sequence_lengths": torch.tensor([1, 1])}, "sequence_lengths", TypeError),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_a_bad_call_names_the_argument_what_was_expected_and_what_came(case):
    arguments, keywords, argument, kind = BAD_CALLS[case]
    with pytest.raises(ArgumentError) as caught:
        LSTM(*arguments, **keywords)
    assert caught.value.argument == argument
    assert isinstance(caught.value, kind)
    assert str(caught.value).startswith(f"Invalid {argument}")
    assert ", expecting " in str(caught.value)


@pytest.mark.parametrize(
    ("x", "h", "text"),
    [
        (X[0], H, r"Invalid inputs shape: \(2, 4\), expecting three axes, \[T, B, I\]"),
        (X, H[0], r"Invalid input_h shape: \(2, 3\), expecting three axes, \[L \* D, B, U\]"),
        (X, H[:3], r"Invalid input_h shape: \(3, 2, 3\), expecting a multiple of 2 rows"),
        (X, H[:0], r"Invalid input_h shape: \(0, 2, 3\), expecting a multiple of 2 rows"),
        (X, None, "Invalid input_h: <class 'NoneType'>"),
    ],
)
def test_a_function_reads_its_sizes_off_arrays_that_have_them(x, h, text):
    with pytest.raises(ArgumentError, match=text):
        ops.cudnn_gru(x, h, P, False, direction="bidirectional")


@pytest.mark.parametrize("call", ["params_size", "layout", "dropout_state"])
def test_a_device_without_a_gpu_is_an_error_that_says_so(call):
    with pytest.raises(EngineError, match="no CUDA device"):
        getattr(LSTM, call)("cuda:1")
    with pytest.raises(EngineError, match="no CUDA device"):
        LSTM.init_params(device="cuda")
    with pytest.raises(EngineError, match="no CUDA device"):
        LSTM.move_params(P, "cuda")


def test_a_device_without_cupy_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(errors.MissingDependencyError, match=r"pycudnnrnn\[cuda13\]"):
        LSTM.params_size("cuda")
