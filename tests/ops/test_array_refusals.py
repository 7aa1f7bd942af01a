"""Arrays that cannot be used, read or written: each is named with what would do."""

import jax
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pycudnnrnn import CudnnLSTM, CudnnLSTMSaveable, Saver, convert, ops, plot
from pycudnnrnn.cells import CudnnCompatibleLSTMCell
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, PycudnnrnnError
from pycudnnrnn.interop import jax as ours
from pycudnnrnn.layers import Variable
from tests.helpers.kinds import get, put

OP = ops.CudnnLSTM(1, 3, 4, dtype="float64")
X = np.random.default_rng(0).normal(size=(5, 2, 4))
P = OP.init_params()


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_strided_data_is_read_and_a_strided_buffer_refused(kind):
    wide = put(kind, np.repeat(X, 2, axis=2))[..., ::2]
    assert np.array_equal(get(OP(wide, None, None, put(kind, P))[0]), OP(X, None, None, P)[0])
    with pytest.raises(ArgumentError, match=r"Invalid params: strides .*, expecting a contiguous array"):
        OP(put(kind, X), None, None, put(kind, np.repeat(P, 2))[::2])


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


REFUSED_AS_OUT = {
    "numpy": (lambda: read_only(P), "a read-only one, expecting a writable array"),
    "jax": (lambda: put("jax", P), "a JAX array, expecting an array that can be written"),
}


@pytest.mark.parametrize("kind", REFUSED_AS_OUT)
def test_what_cannot_be_written_is_read_and_refused_as_out(kind):
    make, text = REFUSED_AS_OUT[kind]
    array = make()
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


TRACES = {
    "jit": lambda f: jax.jit(f)(put("jax", X)),
    "grad": lambda f: jax.grad(lambda x: f(x).sum())(put("jax", X)),
    "vmap": lambda f: jax.vmap(f)(put("jax", X[None])),
}


@pytest.mark.parametrize("trace", TRACES)
def test_a_jax_trace_is_pointed_to_interop(trace):
    with pytest.raises(ArgumentTypeError, match=r"Invalid input_data: .*Tracer.*interop\.jax"):
        TRACES[trace](lambda x: OP(x, None, None, P)[0])


def a_fake():
    with FakeTensorMode():
        return torch.ones(5, 2, 4, dtype=torch.float64)


def deleted():
    array = put("jax", X)
    array.delete()
    return array


NO_MEMORY = {
    "fake": (a_fake, "a plain torch tensor"),
    "meta": (lambda: torch.ones(5, 2, 4, device="meta"), "an array on one device"),
    "sparse": (lambda: torch.ones(5, 2, 4).to_sparse(), "memory that numpy can share"),
    "conjugate": (lambda: torch.complex(torch.ones(5, 2, 4), torch.ones(5, 2, 4)).conj(), "memory that numpy can"),
    "negative": (lambda: torch._neg_view(torch.ones(5, 2, 4)), "resolve_neg"),
    "deleted": (deleted, "an array that has its memory"),
    "keys": (lambda: jax.random.split(jax.random.key(0), (5, 2, 4)), "a NumPy, CuPy or JAX array"),
    "text": (lambda: "text", "a NumPy, CuPy or JAX array, or a torch tensor"),
    "shape": (lambda: jax.ShapeDtypeStruct((5, 2, 4), "f8"), "a NumPy, CuPy or JAX array, or a torch tensor"),
    "numpy scalar": (lambda: np.float64(1), "a NumPy, CuPy or JAX array, or a torch tensor"),
}


@pytest.mark.parametrize("case", NO_MEMORY)
def test_what_has_no_memory_to_share_is_named(case):
    make, text = NO_MEMORY[case]
    with pytest.raises(ArgumentError, match=f"Invalid input_data: .*, expecting .*{text}"):
        OP(make(), None, None, P)


H = np.zeros((1, 2, 3))
W, B = OP.params_to_canonical(P)
LENGTHS = np.array([5, 2])


def built():
    layer = CudnnLSTM(1, 3, dtype="float64")
    layer.build((None, None, 4))
    return layer


def backward(**keywords):
    return OP.forward(X, None, None, P).backward(**keywords)


def replaced(arrays, index, other):
    return [*arrays[:index], other, *arrays[index + 1 :]]


def plan_forward(**changed):
    arrays = {"x": X, "hx": H, "cx": H, "y": np.zeros((5, 2, 3)), "hy": H.copy(), "cy": H.copy()}
    OP.prepare(5, 2).forward(P, **arrays | changed)


TAKES = {
    "input_data": (X, lambda a: OP(a, H, H, P)),
    "input_h": (H, lambda a: OP(X, a, H, P)),
    "input_c": (H, lambda a: OP(X, H, a, P)),
    "params": (P, lambda a: OP(X, H, H, a)),
    "sequence_lengths": (LENGTHS, lambda a: OP(X, H, H, P, sequence_lengths=a)),
    "d_output": (np.ones((5, 2, 3)), lambda a: backward(d_output=a)),
    "d_output_h": (H, lambda a: backward(d_output_h=a)),
    "d_output_c": (H, lambda a: backward(d_output_c=a)),
    "out": (P, lambda a: backward(out=a)),
    "weights of an op": (W[3], lambda a: OP.canonical_to_params(replaced(W, 3, a), B)),
    "biases of an op": (B[3], lambda a: OP.canonical_to_params(W, replaced(B, 3, a))),
    "out of an op": (P, lambda a: OP.canonical_to_params(W, B, out=a)),
    "params to split": (P, OP.params_to_canonical),
    "params to move": (P, lambda a: OP.move_params(a, "cpu")),
    "a function's inputs": (X, lambda a: ops.cudnn_lstm(a, H, H, P, False)),
    "a function's params": (P, lambda a: ops.cudnn_lstm(X, H, H, a, False)),
    "a plan's x": (X, lambda a: plan_forward(x=a)),
    "a plan's y": (np.zeros((5, 2, 3)), lambda a: plan_forward(y=a)),
    "a held buffer": (P, lambda a: OP.prepare(5, 2).hold(a)),
    "a layer's inputs": (X, built()),
    "a layer's states": (H, lambda a: built()(X, (a, H))),
    "a layer's weights": (P, lambda a: built().set_weights([a])),
    "what an initializer returns": (W[3], lambda a: built().add_weight("w", a.shape, "float64", lambda *_: a)),
    "a variable's new value": (P, lambda a: Variable("v", P.copy()).assign(a)),
    "a cell's inputs": (X[0], lambda a: CudnnCompatibleLSTMCell(3)(a, (H[0], H[0]))),
    "a cell's state": (H[0], lambda a: CudnnCompatibleLSTMCell(3)(X[0], (a, H[0]))),
    "a saveable's buffer": (P, lambda a: CudnnLSTMSaveable(a, 1, 3, 4)),
    "a saveable's tensors": (
        W[3], lambda a: CudnnLSTMSaveable(P.copy(), 1, 3, 4).restore([a, *CudnnLSTMSaveable(P, 1, 3, 4).tensors()][:2]),
    ),
    "an item to save": (P, lambda a: Saver({"a": a})),
    "a variable to save": (P, lambda a: Saver({"a": Variable("v", a)})),
    "canonical weights": (W[3], lambda a: convert.Canonical(OP.spec, replaced(W, 3, a), B)),
    "what a converter reads": (
        np.zeros((12, 4)),
        lambda a: convert.pytorch.to_canonical({"weight_ih_l0": a, "weight_hh_l0": np.zeros((12, 3))}),
    ),
    "a gradient to draw": (P, lambda a: plot.draw_gradient_norms(a, OP.layout(), "none.svg")),
    "JAX's function": (X.astype("f4"), lambda a: ours.rnn(P.astype("f4"), a, spec=OP.spec.replace(dtype="float32"))),
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


class Named(np.ndarray):
    """A subclass with ways of its own, which are not to be met inside."""

    def __array_function__(self, *_):
        raise AssertionError

    def __array_ufunc__(self, *_, **__):
        raise AssertionError


def test_other_subclasses_are_the_memory_that_they_are(tmp_path):
    in_file = np.memmap(tmp_path / "p", P.dtype, "w+", shape=P.shape)
    in_file[:] = P
    expected = OP.forward(X, H, H, P).backward(X[..., :3])
    for wrap in (lambda a: a.view(Named), lambda a: a.copy().view(np.memmap) if a is not P else in_file):
        params = wrap(P)
        fwd = OP.forward(wrap(X), wrap(H), wrap(H), params)
        found = fwd.backward(wrap(X[..., :3]), out=wrap(P.copy()))
        assert type(fwd.output) is np.ndarray
        assert np.array_equal(found.input, expected.input)
        assert np.array_equal(np.asarray(found.params), expected.params)
    file = Saver({"a": in_file}).save(tmp_path / "m")
    in_file[:] = 0
    Saver({"a": in_file}).restore(file)
    assert np.array_equal(in_file, P)
