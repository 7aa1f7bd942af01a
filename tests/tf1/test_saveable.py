"""Saveables and converters: TF's names and shapes to the letter, every bit back, and nothing of others in a mapping."""

import types

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pycudnnrnn as package
from pycudnnrnn import RNNSpec, ops, saveable
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.saveable import CudnnOpaqueParamsSaveable, CudnnParamsFormatConverter, RNNParamsSaveable
from pycudnnrnn.testing import use_engine
from pycudnnrnn.testing.strategies import specs
from tests.helpers.examples import examples
from tests.helpers.layouts import ShuffledEngine
from tests.helpers.pairwise import pairwise

KINDS = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNNTanh", "rnn_relu": "RNNRelu"}
DIRECTIONS = ("unidirectional", "bidirectional")
DTYPES = ("float64", "float32", "float16", "bfloat16")
ANY = specs(dtypes=DTYPES)


def filled(spec, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=ops.from_spec(spec).params_size()).astype(spec.dtype.numpy)


def of(params, spec, scope="m"):
    return CudnnOpaqueParamsSaveable.of(params, spec, scope, "saveable")


def canonical(spec, params):
    return [a for arrays in ops.from_spec(spec).params_to_canonical(params) for a in arrays]


def of_tf_alone(tensors):
    return {name: array.copy() for name, array in tensors.items() if "bias_cudnn" not in name.rpartition("/")[2]}


@examples(2000)
@given(ANY, st.integers(0, 2**16), st.integers(0, 9))
def test_what_is_saved_on_one_layout_is_restored_bit_for_bit_on_another(spec, seed, layout):
    with use_engine(ShuffledEngine(layout)):
        params = filled(spec, seed)
        tensors = of(params, spec).tensors()
        expected = [array.tobytes() for array in canonical(spec, params)]
        params[:] = 0  # tensors outlive the buffer
    restored = np.full(ops.from_spec(spec).params_size(), 9, spec.dtype.numpy)
    of(restored, spec).restore(tensors)
    assert [array.tobytes() for array in canonical(spec, restored)] == expected
    tensors = of(restored, spec).tensors()
    with use_engine(ShuffledEngine(layout)):
        of(params, spec).restore(tensors)
        assert [array.tobytes() for array in canonical(spec, params)] == expected


@examples(500)
@given(ANY)
def test_shapes_are_known_without_the_tensors_and_a_spec_is_kept_whole(spec):
    saver = of(filled(spec), spec, "s")
    assert saver.shapes() == {name: array.shape for name, array in saver.tensors().items()}
    assert [s.name for s in saver.specs] == list(saver.shapes())
    assert all(name.startswith("s/") for name in saver.shapes())
    assert [*of(filled(spec), spec, None).shapes()] == [name[2:] for name in saver.shapes()]
    assert saver.spec == CudnnParamsFormatConverter.of(spec).spec == spec


# --- names and stitching, written out ---------------------------------------------------------------------------------

GROUPS = {
    "lstm": (["kernel"], ["bias"], ["projection/kernel"], ["bias_cudnn_0", "bias_cudnn_1"]),
    "gru": (
        ["gates/kernel", "candidate/input_projection/kernel", "candidate/hidden_projection/kernel"],
        ["gates/bias", "candidate/input_projection/bias", "candidate/hidden_projection/bias"],
        ["gates/bias_cudnn_0", "gates/bias_cudnn_1"],
    ),
}


@pytest.mark.parametrize("mode", GROUPS)
def test_of_all_cells_tensors_come_in_groups(mode):
    """Their shapes, and the scopes in one direction, are in tests/convert/test_orders.py: the equations read them."""
    spec = RNNSpec(mode, 2, 3, 5, direction="bidirectional", num_proj=2 if mode == "lstm" else None)
    cell = f"cudnn_compatible_{mode}_cell"
    scopes = [f"stack_bidirectional_rnn/cell_{n}/bidirectional_rnn/{d}/{cell}/" for n in (0, 1) for d in ("fw", "bw")]
    expected = [scope + name for group in GROUPS[mode] for scope in scopes for name in group]
    assert list(of(filled(spec), spec, None).shapes()) == expected


@pytest.mark.parametrize("mode", list(KINDS))
@pytest.mark.parametrize(
    ("bias_mode", "alone"), [("none", None), ("single_input", "input"), ("single_recurrent", "hidden")]
)
def test_a_single_bias_is_alone_under_its_name_in_saveables_and_converters(mode, bias_mode, alone):
    spec = RNNSpec(mode, 2, 3, 5, bias_mode=bias_mode)
    params = filled(spec)
    expected = of(params, spec, None).tensors()
    biases = [name.partition("_cell/cell_0/")[2].partition("/")[2] for name in expected if name.endswith("bias")]
    both = ["gates/bias", f"candidate/{alone}_projection/bias"] if mode == "gru" else ["bias"]
    assert [name for name in biases if name] == (both if alone else [])
    name = f"CudnnParamsFormatConverter{KINDS[mode].removeprefix('RNN')}"
    weights, biases = getattr(package, name)(2, 3, 5, bias_mode=bias_mode).opaque_to_tf_canonical(params)
    assert all(map(np.array_equal, [*weights, *biases], expected.values()))


# --- biases that TF sums ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(KINDS))
def test_without_the_pair_and_after_a_change_the_bias_is_halved(mode):
    spec = RNNSpec(mode, 1, 2, 3, dtype="float64")
    params = filled(spec)
    tensors = of(params, spec).tensors()
    name = next(n for n in tensors if n.endswith(("gates/bias", "cell/bias")))
    alone = of_tf_alone(tensors)
    original_weights, original = ops.from_spec(spec).params_to_canonical(params)
    order = {"lstm": (0, 2, 1, 3), "gru": (0, 1)}.get(mode, (0,))
    for form, total in (
        (alone, tensors[name]),
        (list(alone.values()), tensors[name]),
        (tensors | {name: tensors[name] + 1}, tensors[name] + 1),
    ):
        restored = np.zeros_like(params)
        of(restored, spec).restore(form)
        weights, biases = ops.from_spec(spec).params_to_canonical(restored)
        for half, gate in zip(np.split(total / 2, len(order)), order, strict=True):
            assert np.array_equal([biases[gate], biases[gate + len(biases) // 2]], [half, half])
        assert mode != "gru" or np.array_equal(biases[2::3], original[2::3])
        assert all(map(np.array_equal, weights, original_weights))


def test_a_pair_with_nan_or_overflow_in_it_comes_back():
    spec = RNNSpec("rnn_tanh", 1, 3, 3, dtype="float16")
    params = filled(spec)
    params[-6:] = [np.nan, 60000, 1, np.inf, 60000, -0.0]
    restored = np.zeros_like(params)
    of(restored, spec).restore(of(params, spec).tensors())
    assert restored.tobytes() == params.tobytes()


@pytest.mark.parametrize(("mode", "source", "target"), pairwise(KINDS, DTYPES, DTYPES))
def test_a_pair_is_compared_with_its_sum_as_written_and_cast_then(mode, source, target):
    spec = RNNSpec(mode, 2, 3, 5, direction="bidirectional", dtype=source)
    params = filled(spec)
    cast = spec.replace(dtype=target)
    restored = np.zeros(params.size, cast.dtype.numpy)
    of(restored, cast).restore(of(params, spec).tensors())
    for ours, expected in zip(canonical(cast, restored), canonical(spec, params), strict=True):
        assert ours.tobytes() == expected.astype(cast.dtype.numpy).tobytes()


@pytest.mark.parametrize("value", [np.float16(6e-8), np.int64(3), np.float64(np.pi)])
def test_a_bias_alone_is_halved_in_the_buffers_dtype(value):
    """Half of float16's least number is none of its own, and half of 3 no integer."""
    spec = RNNSpec("rnn_tanh", 1, 3, 5)
    saver = of(filled(spec), spec, None)
    kernel, bias = of_tf_alone(saver.tensors())
    tensors = {kernel: np.ones((8, 3), "f4"), bias: np.full(3, value)}
    like_the_kernel = tensors | {bias: tensors[bias].astype("f4")}  # a new buffer has no dtype to cast to
    opaque = saver.format_converter.tf_canonical_to_opaque([like_the_kernel[kernel], like_the_kernel[bias]])
    for restored in (saver.restore(tensors), opaque):
        for half in canonical(spec, restored)[2:]:
            assert half.tobytes() == np.full(3, np.float32(value) / 2).tobytes()
            assert half[0] != 0


# --- what TF wrote ----------------------------------------------------------------------------------------------------


class Watched(dict):
    """A mapping that notes what is read, as one over a file would read it."""

    read = frozenset()

    def __getitem__(self, name):
        self.read |= {name}
        return super().__getitem__(name)


@pytest.mark.parametrize(("mode", "direction", "scope"), pairwise(KINDS, DIRECTIONS, ["", "model/cudnn"]))
def test_a_tf_checkpoint_as_a_dictionary_restores_and_what_else_is_in_it_is_not_even_read(mode, direction, scope):
    spec = RNNSpec(mode, 2, 3, 5, direction=direction)
    params = filled(spec)
    tensors = of_tf_alone(of(params, spec, scope).tensors())
    within = f"{scope}/" if scope else ""
    others = {
        f"{within}global_step": np.int64(5),
        f"{within}_CHECKPOINTABLE_OBJECT_GRAPH": b"\n",
        f"{within}nothing": None,
        f"{within}opaque_kernel": params,
        f"{next(iter(tensors))}/Adam": "a slot",
        7: "no name at all",
    }
    given, target = Watched(others | of(params + 1, spec, "m2").tensors() | tensors), torch.zeros(params.size)
    saver = getattr(package, f"Cudnn{KINDS[mode]}Saveable")(target, 2, 3, 5, direction=direction, scope=scope)
    assert saver.restore(given) is target
    assert given.read == tensors.keys()
    contents = of(target.numpy(), spec, scope).tensors()
    assert all(np.allclose(contents[name], array, atol=1e-6) for name, array in tensors.items())


def test_a_raw_opaque_kernel_of_dense_order_restores_into_any_layout():
    spec = RNNSpec("lstm", 2, 3, 5, direction="bidirectional", dtype="float64")
    kernel = filled(spec)
    with use_engine(ShuffledEngine(4)):
        target = np.zeros(ops.from_spec(spec).params_size())
        of(target, spec).restore_opaque(kernel)
        contents = canonical(spec, target)
    assert all(map(np.array_equal, contents, canonical(spec, kernel)))
    with pytest.raises(ArgumentError, match="the dense order"):
        of(kernel.copy(), spec).restore_opaque(target)


def test_a_restore_that_fails_has_written_nothing():
    spec = RNNSpec("lstm", 2, 3, 5, num_proj=2, dtype="float64")
    params = filled(spec)
    tensors = of(params, spec).tensors()
    before, kernel, last = params.copy(), next(iter(tensors)), list(tensors)[-1]
    for wrong, text in (
        *(
            (tensors | {kernel: bad}, "lstm_cell/kernel")
            for bad in (np.full((7, 12), "a"), np.ones((7, 12), "c16"), 5.0)
        ),
        ([b"bytes", *list(tensors.values())[1:]], "lstm_cell/kernel"),
        ({n: a for n, a in tensors.items() if not n.endswith("projection/kernel")}, "projection/kernel"),
        (tensors | {last: np.ones(5)}, "bias_cudnn_1 shape"),
        (tensors | {kernel: tensors[kernel].T}, "kernel shape"),
        (list(tensors.values())[:4], "4 tensors, expecting 10 tensors"),  # TF's alone, which have no projection
        ({}, "among the names"),
        ("model.ckpt-7", r"Saver\.restore\(path\) reads a file"),
        ({"m/opaque_kernel": before}, "restore_opaque reads one"),
    ):
        with pytest.raises((ArgumentError, ArgumentTypeError), match=text):
            of(params, spec).restore(wrong)
        assert np.array_equal(params, before)


def test_saveables_refuse_what_they_cannot_hold_and_take_a_variable_scope():
    params = np.zeros(ops.CudnnGRU(1, 3, 5).params_size(), "f4")
    frozen = package.CudnnGRUSaveable(np.frombuffer(params.tobytes(), "f4"), 1, 3, 5)
    for text, call in {
        "read-only": lambda: frozen.restore(frozen.tensors()),
        "shape": lambda: package.CudnnLSTMSaveable(np.zeros(7, "f4"), 1, 3, 5),
        "scope": lambda: package.CudnnGRUSaveable(params, 1, 3, 5, scope=3),
        "one of the four saveables": lambda: CudnnOpaqueParamsSaveable(params, 1, 3, 5),
        "rnn_mode": lambda: CudnnParamsFormatConverter(1, 3, 5),
    }.items():
        with pytest.raises((ArgumentError, ArgumentTypeError), match=text):
            call()
    saver = package.CudnnGRUSaveable(params, 1, 3, 5, scope="")
    assert saver.prefix == ""
    assert saver.name == saver.op.name == "cudnn_rnn_saveable"
    scope = types.SimpleNamespace(name="model/rnn")  # as TF's VariableScope has one
    assert package.CudnnGRUSaveable(params, 1, 3, 5, scope=scope).prefix == "model/rnn/"
    assert repr(saver.format_converter) == "CudnnParamsFormatConverterGRU(RNNSpec('gru', 1, 3, 5))"


# --- converters -------------------------------------------------------------------------------------------------------

CASES = {"xsmall": (1, 1), "small": (4, 4), "medium": (128, 64), "large": (128, 128)}
CONVERTERS = [(case, kind, None) for case in CASES for kind in ("LSTM", "GRU", "Tanh", "Relu", "Basic")]
CONVERTERS += [(case, "LSTM", CASES[case][0] // 2) for case in CASES if case != "xsmall"]


@pytest.mark.parametrize(("converter_of", "direction", "num_layers"), pairwise(CONVERTERS, DIRECTIONS, [1, 2]))
def test_tf_canonical_to_opaque_and_back_is_the_identity(converter_of, direction, num_layers):
    """TF's CudnnParamsFormatConverterTest, which has one layer alone."""
    case, kind, proj = converter_of
    converter = getattr(saveable, f"CudnnParamsFormatConverter{kind}")(
        num_layers, *CASES[case], direction=direction, **({"num_proj": proj} if proj else {})
    )
    rng = np.random.default_rng(0)
    op = ops.from_spec(converter.spec)
    first = converter.opaque_to_tf_canonical(rng.normal(size=op.params_size()).astype("f4"))
    assert len(first) == (3 if proj else 2)
    lists = [[rng.normal(size=a.shape).astype("f4") for a in arrays] for arrays in first]
    opaque = converter.tf_canonical_to_opaque([*lists[0], *lists[1]], *lists[2:])
    assert sum(a.size for arrays in lists for a in arrays) <= opaque.size == op.params_size()
    for ours, expected in zip(converter.opaque_to_tf_canonical(opaque), lists, strict=True):
        assert all(map(np.array_equal, ours, expected))
    with pytest.raises(ArgumentError, match="tf_canonicals"):
        converter.tf_canonical_to_opaque(lists[0])
    with pytest.raises(ArgumentError, match="weights_proj"):
        converter.tf_canonical_to_opaque([*lists[0], *lists[1]], None if proj else [lists[0][0]])


def test_arrays_of_several_dtypes_are_refused_by_name_and_none_is_cast():
    converter = saveable.CudnnParamsFormatConverterLSTM(1, 4, 3, num_proj=2)
    kernel, bias, projection = (np.ones(shape, "f2") for shape in ((5, 16), (16,), (4, 2)))
    foreign = converter.tf_canonical_to_opaque([kernel.astype(">f2"), bias], [projection])
    assert np.array_equal(foreign, converter.tf_canonical_to_opaque([kernel, bias], [projection]))
    assert foreign.dtype == "float16"
    assert foreign.dtype.isnative
    with pytest.raises(ArgumentError, match=r"tf_canonicals\[1\] dtype: .*float32, expecting float16, as tf_"):
        converter.tf_canonical_to_opaque([kernel, bias.astype("f4")], [projection])
    with pytest.raises(ArgumentError, match=r"weights_proj\[0\] dtype: .*float64, expecting float16"):
        converter.tf_canonical_to_opaque([kernel, bias], [torch.from_numpy(projection.astype("f8"))])


# --- TF 1.2's form ----------------------------------------------------------------------------------------------------


def test_rnn_params_saveable_keeps_canonical_tensors_under_the_ops_names():
    op = ops.CudnnLSTM(2, 3, 5, direction="bidirectional", num_proj=2)
    params = filled(op.spec)
    before, both = params.copy(), (op.params_to_canonical, op.canonical_to_params)
    saver = RNNParamsSaveable(*both, [params], name="")
    tensors = saver.tensors()
    assert list(tensors)[:2] == ["CudnnRNNParamsToCanonical:0", "CudnnRNNParamsToCanonical:1"]
    assert saver.shapes()["CudnnRNNParamsToCanonical:8"] == (2, 3)
    assert [s.name for s in saver.specs] == list(tensors)
    for form in (tensors, [torch.nn.Parameter(torch.tensor(t.astype("f8"))) for t in tensors.values()]):
        params[:] = 0
        assert saver.restore(form, None) is params
        assert np.array_equal(params, before)
    with pytest.raises(ArgumentError, match="CudnnRNNParamsToCanonical:3"):
        saver.restore({n: a for n, a in tensors.items() if not n.endswith(":3")})
    with pytest.raises(ArgumentError, match="tensors"):
        saver.restore(list(tensors.values())[1:])
    for bad in ([params, params], [[1.0]], [None], params[:3]):
        with pytest.raises(ArgumentError, match="Invalid param"):
            RNNParamsSaveable(*both, bad)
    with pytest.raises(ArgumentError, match="Invalid opaque_params: <class 'list'>"):
        package.CudnnLSTMSaveable([1.0], 2, 8, 4)
    for rest in ((), ("a/rnn",), ("a/rnn", "n")):  # TF 1.3's form
        with pytest.raises(TypeError, match=r"1\.3's .a/rnn. is CudnnOpaqueParamsSaveable\.of\(params, op\.spec, .a."):
            RNNParamsSaveable(op, *both, params, *rest)
    assert next(iter(RNNParamsSaveable(*both, params).shapes())) == "params_canonical/CudnnRNNParamsToCanonical:0"
