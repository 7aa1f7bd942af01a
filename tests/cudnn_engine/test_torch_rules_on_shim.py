"""What torch's modules on the stand-in ask cuDNN for: algorithms, math and data types, as torch's own modules do.

The expected words were worked out by hand from PyTorch's text, which is named beside them. The stand-in shows what the
library is told; which algorithm a GPU runs, and how fast, it cannot show.
"""

import warnings

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from pycudnnrnn.errors import CudnnError, LayoutError
from pycudnnrnn.interop import _torch_cudnn
from pycudnnrnn.interop import torch as ours
from pycudnnrnn.interop._torch_rules import Gpu
from tests.helpers.layouts import ShuffledEngine
from tests.stand_in import native, shim
from tests.stand_in.torch_on_cpu import H200, make, step

P100, V100, T4 = Gpu(6, 0, 56), Gpu(7, 0, 80), Gpu(7, 5, 40)

STANDARD, STATIC, SMALL_H = "standard", "persist_static", "persist_static_small_h"


@pytest.fixture(autouse=True)
def _torchs_own_precision():
    """TF32 as torch begins with it, whatever a test sets."""

    def begin():
        torch.backends.fp32_precision = torch.backends.cudnn.fp32_precision = "none"
        torch.backends.cudnn.allow_tf32 = True

    begin()
    yield
    begin()


def run(kind, units, width, dtype, *, layers=1, T=2, B=2, packed=False, **options):
    """Train one step of a module; nothing is asked of its numbers."""
    with warnings.catch_warnings():
        module = kind(width, units, layers, dtype=dtype, **options)
    x = torch.zeros((B, T, width) if module.batch_first else (T, B, width), dtype=dtype, requires_grad=True)
    y, _ = module(pack_padded_sequence(x, [T] * B) if packed else x)
    (y.data if packed else y).backward(torch.ones_like(y.data if packed else y))


def told(played):
    """(algorithm, math type, data type, type that is computed in) of each pass, read from its RNN descriptor."""
    passes = [arguments for name, arguments, _ in played.calls if name in shim.PASSES]
    found = [native.rnn(played.library, rnn) for _, rnn, *_ in passes]
    return [(d["algo"].name, d["mathType"].name, d["dataType"].name, d["mathPrec"].name) for d in found]


def algorithms(played):
    (forward, *_), *others = [(algo, *_) for algo, *_ in told(played)]
    assert len(others) == 2
    assert others[0] == others[1], "both passes of a backward"
    return forward.lower(), others[0][0].lower()


TANH, RELU = {"kind": ours.RNN, "nonlinearity": "tanh"}, {"kind": ours.RNN, "nonlinearity": "relu"}
LSTM, GRU = {"kind": ours.LSTM}, {"kind": ours.GRU}
F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64

SMALL_H_CASES = [
    # use_rnn_persist_small_h, forward: relu and tanh hidden_size <= 384, LSTM and GRU <= 192; backward: 256 and 128.
    *(
        (kind, units, 8, F32, {}, tuple(SMALL_H if units <= most else STANDARD for most in limits))
        for kind, limits in ((RELU, (384, 256)), (TANH, (384, 256)), (LSTM, (192, 128)), (GRU, (192, 128)))
        for most in limits
        for units in (most, most + 1)
    ),
    # get_algo looks at neither layers nor directions nor the batch before it; and batch_first is a transpose to it.
    (LSTM, 160, 8, F32, {"layers": 2, "dropout": 0.5}, (SMALL_H, STANDARD)),
    (LSTM, 16, 8, F32, {"B": 300, "batch_first": True}, (SMALL_H, SMALL_H)),
    # get_algo: every type but CUDNN_DATA_DOUBLE.
    (LSTM, 16, 8, BF16, {}, (SMALL_H, SMALL_H)),
    (LSTM, 16, 8, F64, {}, (STANDARD, STANDARD)),
    # get_algo: proj_size != 0, and is_input_packed, also where all lengths are equal.
    (LSTM, 16, 8, F32, {"proj_size": 4}, (STANDARD, STANDARD)),
    (LSTM, 16, 8, F32, {"packed": True}, (STANDARD, STANDARD)),
    # cudnnSetRNNDescriptor_v8 has no other algorithm for CUDNN_RNN_NO_BIAS (observed, 8.9.7 to 9.28).
    (LSTM, 16, 8, F32, {"bias": False}, (STANDARD, STANDARD)),
    # use_rnn_persist_small_h: prop->major < 6.
    (LSTM, 16, 8, F32, {"gpu": P100}, (SMALL_H, SMALL_H)),
    (LSTM, 16, 8, F32, {"gpu": Gpu(5, 2, 24)}, (STANDARD, STANDARD)),
]

STATIC_CASES = [
    # get_algo: CUDNN_DATA_HALF alone; and small H is asked first, in each pass by itself.
    (LSTM, 256, 128, BF16, {"B": 8}, (STANDARD, STANDARD)),
    (RELU, 384, 128, F16, {"B": 8}, (SMALL_H, STATIC)),
    # use_persist_common_heuristics: one layer, one direction, hidden_size <= 1024, both sizes multiples of 128.
    (RELU, 1024, 128, F16, {"B": 8}, (STATIC, STATIC)),
    (RELU, 1152, 128, F16, {"B": 8}, (STANDARD, STANDARD)),
    (RELU, 512, 128, F16, {"B": 8, "bidirectional": True}, (STANDARD, STANDARD)),
    (RELU, 500, 128, F16, {"B": 8}, (STANDARD, STANDARD)),
    (RELU, 512, 120, F16, {"B": 8}, (STANDARD, STANDARD)),
    # use_persist_device_heuristics, major >= 8: no GRU; bsize % 8 == 0 and bsize <= 128;
    (GRU, 256, 128, F16, {"B": 8}, (STANDARD, STANDARD)),
    (LSTM, 256, 128, F16, {"B": 12}, (STANDARD, STANDARD)),
    (LSTM, 896, 128, F16, {"B": 128}, (STATIC, STATIC)),
    (LSTM, 256, 128, F16, {"B": 136}, (STANDARD, STANDARD)),
    # ... for relu and tanh, bsize < 96 or hidden_size < 896;
    (RELU, 896, 128, F16, {"B": 88}, (STATIC, STATIC)),
    (RELU, 896, 128, F16, {"B": 96}, (STANDARD, STANDARD)),
    (TANH, 768, 128, F16, {"B": 96}, (STATIC, STATIC)),
    # ... where multiProcessorCount >= 98 and minor != 6;
    (LSTM, 256, 128, F16, {"B": 8, "gpu": Gpu(8, 0, 98)}, (STATIC, STATIC)),
    (LSTM, 256, 128, F16, {"B": 8, "gpu": Gpu(8, 0, 97)}, (STANDARD, STANDARD)),
    (LSTM, 256, 128, F16, {"B": 8, "gpu": Gpu(8, 6, 128)}, (STANDARD, STANDARD)),
    # ... major == 7: no 7.5; bsize % 16 == 0 but 80 and 112, or 8; and as many steps as the batch is large.
    (GRU, 256, 128, F16, {"B": 16, "T": 40, "gpu": T4}, (STANDARD, STANDARD)),
    *(
        (GRU, 512, 128, F16, {"B": B, "T": T, "gpu": V100}, (STATIC, STATIC))
        for B, T in ((16, 10), (32, 10), (96, 20), (128, 40), (8, 10))
    ),
    *(
        (RELU, 512, 128, F16, {"B": B, "T": T, "gpu": V100}, (STANDARD, STANDARD))
        for B, T in ((16, 9), (48, 19), (128, 39), (24, 40), (80, 40), (112, 40), (144, 40))
    ),
    (RELU, 512, 128, F16, {"B": 16, "T": 40, "gpu": P100}, (STANDARD, STANDARD)),
]


@pytest.mark.parametrize(("cell", "units", "width", "dtype", "options", "expected"), SMALL_H_CASES + STATIC_CASES)
def test_each_pass_has_torchs_algorithm(played, monkeypatch, cell, units, width, dtype, options, expected):
    """By get_algo in PyTorch's aten/src/ATen/native/cudnn/RNN.cpp @00fc08a, and by what it calls."""
    options = dict(options)
    played.gpu = options.pop("gpu", H200)
    for name in shim.PASSES:  # which are recorded, and computed below, of small batches
        monkeypatch.setattr(played, name, lambda *_: 0)
    run(units=units, width=width, dtype=dtype, **cell, **options)
    assert algorithms(played) == expected


@pytest.mark.parametrize(
    ("dtype", "gpu", "tf32", "expected"),
    [
        # RNNDescriptor::set in ATen/cudnn/Descriptors.h (2.13): half has tensor cores; else allow_tf32 decides.
        (F16, H200, False, "TENSOR_OP_MATH"),
        (BF16, H200, False, "FMA_MATH"),
        (F32, H200, True, "DEFAULT_MATH"),
        (F32, H200, False, "FMA_MATH"),
        (F64, H200, False, "FMA_MATH"),
        # ... where prop->major >= 7.
        (F16, P100, False, "DEFAULT_MATH"),
    ],
)
def test_math_and_data_types_are_torchs(played, dtype, gpu, tf32, expected):
    played.gpu = gpu
    torch.backends.cudnn.allow_tf32 = tf32
    run(ours.LSTM, 256, 8, dtype)
    data = {F16: "HALF", BF16: "BFLOAT16", F32: "FLOAT", F64: "DOUBLE"}[dtype]
    compute = "DOUBLE" if dtype is F64 else "FLOAT"  # promote_rnn_math_type in RNN.cpp
    assert told(played) == [("STANDARD", expected, data, compute)] * 3


def test_tf32_is_what_torchs_user_says_when_the_call_is_made(played):
    """Context::allowTF32CuDNN(RNN): what holds for RNNs alone, else for cuDNN, else everywhere."""
    cudnn = torch.backends.cudnn
    module, x = make(dtype=F32)
    settings = [
        (cudnn, "allow_tf32", False, "FMA_MATH"),
        (torch.backends, "fp32_precision", "tf32", "DEFAULT_MATH"),
        (cudnn, "fp32_precision", "ieee", "FMA_MATH"),
        (cudnn.rnn, "fp32_precision", "tf32", "DEFAULT_MATH"),
        (cudnn.rnn, "fp32_precision", "ieee", "FMA_MATH"),
    ]
    for where, name, value, expected in settings:
        setattr(where, name, value)
        played.calls.clear()
        step(module, x.float())
        assert {math for _, math, *_ in told(played)} == {expected}, (where, value)


@pytest.mark.parametrize("options", [{}, {"dropout": 0.5}, {"batch_first": True}], ids=str)
def test_two_algorithms_share_one_reserve_that_is_large_enough_for_both(played, options):
    """The stand-in refuses scratch memory that is smaller than what it has asked for with a descriptor's algorithm."""
    run(ours.LSTM, 132, 8, F32, layers=2, **options)
    assert {algo for name, algo, _ in played.ran if name == "forward"} == {SMALL_H}
    assert {algo for name, algo, _ in played.ran if name != "forward"} == {STANDARD}
    assert _torch_cudnn.algorithms() >= {(SMALL_H, STANDARD)}


def test_params_are_never_read_in_another_layout(played):
    played.layouts[SMALL_H] = ShuffledEngine(1)
    with pytest.raises(LayoutError, match="lays params out in another way for algo 'persist_static_small_h'"):
        run(ours.LSTM, 6, 8, F32)
    assert not [name for name, *_ in played.calls if name in shim.PASSES]


@pytest.mark.parametrize("function", ["cudnnGetRNNTempSpaceSizes", "cudnnRNNForward"])
def test_what_cudnn_refuses_is_its_error_as_of_torchs_module(played, function):
    """No other algorithm runs in silence."""
    played.refused[function, SMALL_H] = native.NOT_SUPPORTED
    with pytest.raises(CudnnError, match=function):
        run(ours.LSTM, 6, 8, F32)
    assert set(played.complaints) == {f"{function}: {function} with {SMALL_H}"}
    played.complaints.clear()
