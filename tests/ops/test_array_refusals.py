"""What an op refuses, and arrays that cannot be used, read or written: each is named with what would do."""

import re
import sys

import jax
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pycudnnrnn import convert, ops
from pycudnnrnn.cells import CudnnCompatibleLSTMCell
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, EngineError, MissingDependencyError, PycudnnrnnError
from pycudnnrnn.layers import Variable
from tests.helpers.kinds import get, put

OP = ops.CudnnLSTM(1, 3, 4, dtype="float64")
X = np.random.default_rng(0).normal(size=(5, 2, 4))
P = OP.init_params()
H = np.zeros((1, 2, 3))

BAD_CALLS = {
    # arguments, keywords; the argument that the error names; its type
    "two axes": ((X[0], H, H, P), {}, "input_data", ValueError),
    "input_size": ((X[..., :3], H, H, P), {}, "input_data", ValueError),
    **{
        f"input {dtype}": ((np.zeros(X.shape, dtype), H, H, P), {}, "input_data", ValueError)
        for dtype in ("f4", ">f8", "object", "i8,f8", "longdouble", "complex128", "U3", "M8[s]", "bool", "i8")
    },
    "a list": ((X.tolist(), H, H, P), {}, "input_data", TypeError),
    "h rows": ((X, H[:0], H, P), {}, "input_h", ValueError),
    "h batch": ((X, H[:, :1], H, P), {}, "input_h", ValueError),
    "h width": ((X, H[..., :2], H, P), {}, "input_h", ValueError),
    "c rows": ((X, H, H[:0], P), {}, "input_c", ValueError),
    "params length": ((X, H, H, P[:-1]), {}, "params", ValueError),
    "params axes": ((X, H, H, P[None]), {}, "params", ValueError),
    "params None": ((X, H, H, None), {}, "params", TypeError),
    "batch-major h": ((X, H, H, P), {"time_major": False}, "input_h", ValueError),
    "lengths": ((X, H, H, P), {"sequence_lengths": [6, 1]}, "sequence_lengths[0]", ValueError),
    "torch lengths": ((X, H, H, P), {"sequence_lengths": torch.tensor([1, 1])}, "sequence_lengths", TypeError),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_a_bad_call_names_the_argument_what_was_expected_and_what_came(case):
    arguments, keywords, argument, kind = BAD_CALLS[case]
    with pytest.raises(kind, match=rf"Invalid {re.escape(argument)}.*, expecting ") as caught:
        OP(*arguments, **keywords)
    assert caught.value.argument == argument


@pytest.mark.parametrize(
    ("x", "h", "text"),
    [
        (X[0], H, r"Invalid inputs shape: \(2, 4\), expecting three axes, \[T, B, I\]"),
        (X, H[0], r"Invalid input_h shape: \(2, 3\), expecting three axes, \[L \* D, B, U\]"),
        (X, H, r"Invalid input_h shape: \(1, 2, 3\), expecting a multiple of 2 rows"),
        (X, H[:0], r"Invalid input_h shape: \(0, 2, 3\), expecting a multiple of 2 rows"),
    ],
)
def test_a_function_reads_its_sizes_off_arrays_that_have_them(x, h, text):
    with pytest.raises(ArgumentError, match=text):
        ops.cudnn_gru(x, h, P, False, direction="bidirectional")


def test_a_device_without_a_gpu_or_without_cupy_is_an_error_that_says_so(monkeypatch):
    for call in (
        lambda: OP.params_size("cuda:1"),
        lambda: OP.dropout_state("cuda:1"),
        lambda: OP.init_params(device="cuda"),
        lambda: OP.move_params(P, "cuda"),
    ):
        with pytest.raises(EngineError, match="no CUDA device"):
            call()
    for name in ("cpu:0", "cuda:", "cuda:1x"):
        with pytest.raises(ArgumentError, match="Invalid device"):
            OP.params_size(name)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(MissingDependencyError, match=r"pycudnnrnn\[cuda13\]"):
        OP.params_size("cuda")


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_strided_data_is_read_and_a_strided_buffer_refused(kind):
    wide = put(kind, np.repeat(X, 2, axis=2))[..., ::2]
    assert np.array_equal(get(OP(wide, None, None, put(kind, P))[0]), OP(X, None, None, P)[0])
    with pytest.raises(ArgumentError, match=r"Invalid params: strides .*, expecting a contiguous array"):
        OP(put(kind, X), None, None, put(kind, np.repeat(P, 2))[::2])


def test_what_cannot_be_written_is_read_and_refused_as_out():
    read_only = P.copy()
    read_only.flags.writeable = False
    for array, text in (
        (read_only, "a read-only one, expecting a writable array"),
        (put("jax", P), "a JAX array, expecting an array that can be written"),
    ):
        fwd = OP.forward(X, None, None, array)
        with pytest.raises(ArgumentError, match=f"Invalid out: {text}"):
            fwd.backward(out=array)
        with pytest.raises(ArgumentError, match=f"Invalid out: {text}"):
            OP.canonical_to_params(*OP.params_to_canonical(P), out=array)
        assert np.array_equal(get(array), P)


def test_a_tensor_with_a_history_is_refused_while_torch_records_one():
    recorded = torch.tensor(P, requires_grad=True)
    with pytest.raises(ArgumentError, match=r"Invalid params: .*expecting .*detach\(\).*interop\.torch"):
        OP(torch.tensor(X), None, None, recorded)
    with torch.no_grad():
        output = OP(torch.tensor(X), None, None, recorded)[0]
    assert not output.requires_grad
    assert np.array_equal(output.numpy(), OP(X, None, None, P)[0])


@pytest.mark.parametrize("trace", [jax.jit, jax.vmap])
def test_a_jax_trace_is_pointed_to_interop(trace):
    with pytest.raises(ArgumentTypeError, match=r"Invalid input_data: .*Tracer.*interop\.jax"):
        trace(lambda x: OP(x, None, None, P)[0])(put("jax", X[None]))


def a_fake():
    with FakeTensorMode():
        return torch.ones(5, 2, 4, dtype=torch.float64)


def deleted():
    array = put("jax", X)
    array.delete()
    return array


def freed():
    """As FSDP leaves the parameters that other ranks hold."""
    tensor = torch.ones(5, 2, 4)
    tensor.untyped_storage().resize_(0)
    return tensor


NO_MEMORY = {
    "fake": (a_fake, "a plain torch tensor"),
    "meta": (lambda: torch.ones(5, 2, 4, device="meta"), "an array on one device"),
    "sparse": (lambda: torch.ones(5, 2, 4).to_sparse(), "a dense tensor"),
    "freed": (freed, "a dense tensor"),
    "negative": (lambda: torch._neg_view(torch.ones(5, 2, 4)), r"resolve_neg\(\)"),
    "deleted": (deleted, "an array that has its memory"),
    "keys": (lambda: jax.random.split(jax.random.key(0), (5, 2, 4)), "a NumPy, CuPy or JAX array"),
}


@pytest.mark.parametrize("case", NO_MEMORY)
@pytest.mark.filterwarnings("ignore")  # torch's, of what it deprecates or tries out
def test_what_has_no_memory_to_share_is_named(case):
    make, text = NO_MEMORY[case]
    with pytest.raises(ArgumentError, match=f"Invalid input_data: .*, expecting .*{text}"):
        OP(make(), None, None, P)


W, B = OP.params_to_canonical(P)
LENGTHS = np.array([5, 2])


def replaced(arrays, index, other):
    return [*arrays[:index], other, *arrays[index + 1 :]]


TAKES = {
    "input_data": (X, lambda a: OP(a, H, H, P)),
    "params": (P, lambda a: OP(X, H, H, a)),
    "sequence_lengths": (LENGTHS, lambda a: OP(X, H, H, P, sequence_lengths=a)),
    "a variable's new value": (P, lambda a: Variable("v", P.copy()).assign(a)),
    "a cell's inputs": (X[0], lambda a: CudnnCompatibleLSTMCell(3)(a, (H[0], H[0]))),
    "canonical weights": (W[3], lambda a: convert.Canonical(OP.spec, replaced(W, 3, a), B)),
    "what a converter reads": (
        np.zeros((12, 4)),
        lambda a: convert.pytorch.to_canonical({"weight_ih_l0": a, "weight_hh_l0": np.zeros((12, 3))}),
    ),
}  # fmt: skip
"""Where arrays go in: one that is right, and the call with it."""


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("where", TAKES)
def test_masked_arrays_and_matrices_are_refused_wherever_arrays_go_in(where):
    array, call = TAKES[where]
    wrong = [np.ma.masked_array(array.copy(), mask) for mask in (False, True)]
    wrong += [array.copy().view(np.matrix)] if array.ndim == 2 else []
    for given in wrong:
        with pytest.raises(PycudnnrnnError, match=r"(MaskedArray|matrix).*plain array"):
            call(given)
