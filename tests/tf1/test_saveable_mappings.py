"""What a saveable finds in a mapping: its own tensors by every name they may have, in any dtype, and nothing else."""

from collections.abc import Mapping

import numpy as np
import pytest

from pycudnnrnn import RNNSpec, Saver, ops
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.saveable import CudnnOpaqueParamsSaveable, RNNParamsSaveable
from tests.helpers.bundles import write_bundle
from tests.helpers.pairwise import pairwise

MODES = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def filled(spec, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=ops.from_spec(spec).params_size()).astype(spec.dtype.numpy)


def of(params, spec, scope="m"):
    return CudnnOpaqueParamsSaveable.of(params, spec, scope, "saveable")


def of_tf_13(params, op, scope):
    return RNNParamsSaveable(op, op.params_to_canonical, op.canonical_to_params, params, scope)


def lists(spec, params):
    return [array for arrays in ops.from_spec(spec).params_to_canonical(params) for array in arrays]


# --- names ------------------------------------------------------------------------------------------------------------

PLACES = [
    (ops.CudnnGRU, "gates/bias_cudnn_{}", "gates/bias_cudnn {}"),
    (ops.CudnnGRU, "gates/bias_cudnn_{}", "bias_cudnn {}"),
    (ops.CudnnLSTM, "bias_cudnn_{}", "bias_cudnn {}"),
]


@pytest.mark.parametrize(("kind", "written", "spaced"), PLACES)
@pytest.mark.parametrize("scope", [None, "rnn", "bias_cudnn_0"])
def test_the_spaced_pairs_of_tf_13_come_back_bit_for_bit_into_its_own_saveable(tmp_path, kind, written, spaced, scope):
    op = kind(2, 3, 5, dtype="float64")
    params = filled(op.spec)
    before, made, old = params.copy(), of_tf_13(params, op, scope), {}
    for name, array in made.tensors().items():
        for i in "01":
            if name.endswith(written.format(i)):
                name = name.removesuffix(written.format(i)) + spaced.format(i)  # noqa: PLW2901
        old[name] = array
    assert sum(" " in name for name in old) == 4
    params[...] = 0
    made.restore(old)
    assert np.array_equal(params, before)
    params[...] = 0
    write_bundle(tmp_path / "model.ckpt", old)
    Saver({"any": made}).restore(tmp_path / "model.ckpt")
    assert np.array_equal(params, before)


def test_a_missing_tensor_is_told_by_its_name_in_the_mapping():
    op = ops.CudnnGRU(1, 3, 5)
    params = filled(op.spec)
    for made in (of(params, op.spec), of_tf_13(params, op, "m")):
        tensors = made.tensors()
        for name in tensors:
            if "bias_cudnn" in name:
                continue
            with pytest.raises(ArgumentError, match=f"{name} among the names") as raised:
                made.restore({own: array for own, array in tensors.items() if own != name} | {"m/opaque_kernel": 0})
            assert raised.value.argument == "restored_tensors"
            assert ("restore_opaque" in str(raised.value)) == (name == next(iter(tensors)))


# --- values -----------------------------------------------------------------------------------------------------------

DTYPES = ("float64", "float32", "float16", "bfloat16")


@pytest.mark.parametrize(("mode", "source", "target"), pairwise(MODES, DTYPES, DTYPES))
def test_a_pair_is_compared_with_its_sum_as_written_and_cast_then(mode, source, target):
    spec = RNNSpec(mode, 2, 3, 5, direction="bidirectional", dtype=source)
    params = filled(spec)
    cast = spec.replace(dtype=target)
    restored = np.zeros(params.size, cast.dtype.numpy)
    of(restored, cast).restore(of(params, spec).tensors())
    for ours, theirs in zip(lists(cast, restored), lists(spec, params), strict=True):
        assert ours.tobytes() == theirs.astype(cast.dtype.numpy).tobytes()


@pytest.mark.parametrize("value", [np.float16(6e-8), np.int64(3), np.float64(np.pi)])
def test_a_bias_alone_is_halved_in_the_buffers_dtype(value):
    """Half of float16's least number is none of its own, and half of 3 no integer."""
    spec = RNNSpec("rnn_tanh", 1, 3, 5)
    saveable = of(filled(spec), spec, None)
    kernel, bias = (name for name in saveable.shapes() if "bias_cudnn" not in name)
    tensors = {kernel: np.ones((8, 3), "f4"), bias: np.full(3, value)}
    like_the_kernel = tensors | {bias: tensors[bias].astype("f4")}  # a new buffer has no dtype to cast to
    for restored in (
        saveable.restore(tensors),
        saveable.format_converter.opaque(like_the_kernel),
        saveable.format_converter.tf_canonical_to_opaque(list(like_the_kernel.values())),
    ):
        for half in lists(spec, restored)[2:]:
            assert half.tobytes() == np.full(3, np.float32(value) / 2).tobytes()
            assert half[0] != 0


# --- others in the mapping --------------------------------------------------------------------------------------------


class Watched(Mapping):
    """A mapping that notes what is read, as one over a file would read it."""

    def __init__(self, arrays):
        self.arrays, self.read = arrays, set()

    def __getitem__(self, name):
        self.read.add(name)
        return self.arrays[name]

    def __contains__(self, name):
        return name in self.arrays

    def __iter__(self):
        return iter(self.arrays)

    def __len__(self):
        return len(self.arrays)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scope", ["", "model/cudnn"])
def test_what_else_is_in_a_mapping_is_not_even_read(mode, scope):
    spec = RNNSpec(mode, 2, 3, 5, dtype="float64")
    params = filled(spec)
    tensors = of(params, spec, scope).tensors()
    kernel = next(iter(tensors))
    within = f"{scope}/" if scope else ""
    others = {
        f"{within}global_step": np.int64(5),
        f"{within}_CHECKPOINTABLE_OBJECT_GRAPH": b"\n",
        f"{within}words": np.array(["a", "b"]),
        f"{within}nothing": None,
        f"{within}embedding": np.ones((4, 4), "c16"),
        f"{kernel}/Adam": "a slot",
        7: "no name at all",
    }
    given, before = Watched(others | tensors), params.copy()
    params[...] = 0
    of(params, spec, scope).restore(given)
    assert np.array_equal(params, before)
    assert given.read == tensors.keys()


@pytest.mark.parametrize("bad", [np.full((8, 3), "a"), np.ones((8, 3), "c16"), np.full((8, 3), None), b"bytes", 5.0])
def test_an_own_tensor_that_is_no_array_of_real_numbers_is_refused_by_its_name(bad):
    spec = RNNSpec("rnn_relu", 1, 3, 5)
    params = filled(spec)
    tensors, before = of(params, spec).tensors(), params.copy()
    kernel = next(iter(tensors))
    for given in (tensors | {kernel: bad}, [bad, *list(tensors.values())[1:]]):
        with pytest.raises((ArgumentError, ArgumentTypeError), match="basic_rnn_cell/kernel"):
            of(params, spec).restore(given)
        assert np.array_equal(params, before)
