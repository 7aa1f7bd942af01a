"""Arrays that cannot be used, read or written: each is named with what would do."""

import jax
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pycudnnrnn import CudnnLSTMSaveable, RNNParamsSaveable, Saver, _arrays, ops
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from tests.helpers.kinds import KINDS, get, put

OP = ops.CudnnLSTM(1, 3, 4, dtype="float64")
X = np.random.default_rng(0).normal(size=(5, 2, 4))
P = OP.init_params()


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_dtype_names_both(kind):
    narrow = put(kind, X.astype("f4"))
    with pytest.raises(ArgumentError, match="Invalid input_data dtype: float32, expecting float64, the model's"):
        OP(narrow, None, None, put(kind, P))
    with pytest.raises(ArgumentError, match="Invalid params dtype: float32, expecting float64"):
        OP(put(kind, X), None, None, put(kind, P.astype("f4")))


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_strided_data_is_read_and_a_strided_buffer_refused(kind):
    wide = put(kind, np.repeat(X, 2, axis=2))[..., ::2]
    assert np.array_equal(get(OP(wide, None, None, put(kind, P))[0]), OP(X, None, None, P)[0])
    with pytest.raises(ArgumentError, match=r"Invalid params: strides .*, expecting a contiguous buffer"):
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


def test_a_torch_vmap_is_refused():
    with pytest.raises(ArgumentError, match="Invalid input_data: "):
        torch.func.vmap(lambda x: OP(x, None, None, P)[0])(torch.tensor(X[None]))


def test_a_jax_array_is_refused_as_a_place_to_restore_into(tmp_path):
    array = put("jax", X)
    path = Saver({"a": array}).save(tmp_path / "m")
    with pytest.raises(ArgumentError, match="Invalid a: a JAX array, expecting an array that can be written"):
        Saver({"a": array}).restore(path)
    assert np.array_equal(get(array), X)
    with pytest.raises(ArgumentError, match="a JAX array"):
        _arrays.overwrite(array, X)


@pytest.mark.parametrize("make", [lambda: put("jax", P), lambda: read_only(P)], ids=["jax", "read-only"])
def test_nothing_is_restored_where_one_place_cannot_be_written(make, tmp_path):
    def items(params):
        saveable = CudnnLSTMSaveable(params, 1, 3, 4)
        by_list = RNNParamsSaveable(OP.params_to_canonical, OP.canonical_to_params, params)
        return {"first": np.zeros(3), "named": saveable, "listed": by_list}

    for name in ("named", "listed"):
        target = {"first": np.ones(3), name: items(make())[name]}
        file = Saver({k: v for k, v in items(P).items() if k in target}).save(tmp_path / name)
        with pytest.raises(ArgumentError, match=r"Invalid opaque_params: a .*, expecting a.* writ"):
            Saver(target).restore(file)
        assert (target["first"] == 1).all(), "the other item is as it was"
