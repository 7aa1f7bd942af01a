"""Saveables and converters: TF's names and shapes to the letter, and every bit back."""

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
from pycudnnrnn.testing import PermutedLayoutEngine, use_engine
from pycudnnrnn.testing.strategies import specs
from tests.helpers.examples import examples
from tests.helpers.pairwise import pairwise

KINDS = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNNTanh", "rnn_relu": "RNNRelu"}


def filled(spec, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=ops.from_spec(spec).params_size()).astype(spec.dtype.numpy)


def of(params, spec, scope="m"):
    return CudnnOpaqueParamsSaveable.of(params, spec, scope, "saveable")


def canonical(spec, params):
    return [a for arrays in ops.from_spec(spec).params_to_canonical(params) for a in arrays]


ANY = specs(dtypes=("float64", "float32", "float16", "bfloat16"))


@examples(2000)
@given(ANY, st.integers(0, 2**16), st.integers(0, 9))
def test_what_is_saved_on_one_layout_is_restored_bit_for_bit_on_another(spec, seed, layout):
    with use_engine(PermutedLayoutEngine(layout)):
        params = filled(spec, seed)
        tensors = of(params, spec).tensors()
        expected = [array.copy() for array in canonical(spec, params)]
        params[:] = 0  # tensors outlive the buffer
    restored = np.full(ops.from_spec(spec).params_size(), 9, spec.dtype.numpy)
    of(restored, spec).restore(tensors)
    for ours, theirs in zip(canonical(spec, restored), expected, strict=True):
        assert ours.tobytes() == theirs.tobytes()
    tensors = of(restored, spec).tensors()
    with use_engine(PermutedLayoutEngine(layout)):
        back = np.full(params.size, 9, spec.dtype.numpy)
        of(back, spec).restore(tensors)
        for ours, theirs in zip(canonical(spec, back), expected, strict=True):
            assert ours.tobytes() == theirs.tobytes()


@examples(500)
@given(ANY)
def test_shapes_are_known_without_the_tensors(spec):
    made = of(filled(spec), spec, "s")
    assert made.shapes() == {name: array.shape for name, array in made.tensors().items()}
    assert [s.name for s in made.specs] == list(made.shapes())
    assert all(name.startswith("s/") for name in made.shapes())
    assert [*of(filled(spec), spec, None).shapes()] == [name[2:] for name in made.shapes()]


@examples(500)
@given(ANY)
def test_of_keeps_all_of_a_spec_and_the_constructor_what_its_arguments_say(spec):
    params = filled(spec)
    made = of(params, spec)
    assert made.spec == CudnnParamsFormatConverter.of(spec).spec == spec
    sizes = spec.num_layers, spec.num_units, spec.input_size, spec.input_mode, spec.direction
    more = {"num_proj": spec.num_proj, "bias_mode": spec.bias_mode}
    ours = type(made)(params, *sizes, **more)
    assert ours.spec == RNNSpec(spec.mode, *sizes, spec.dtype, **more)
    assert vars(ours).keys() == vars(made).keys()


# --- names and stitching, written out ---------------------------------------------------------------------------------

UNI, BI = "rnn/multi_rnn_cell/cell_{}/{}/", "stack_bidirectional_rnn/cell_{}/bidirectional_rnn/{}/{}/"


def test_lstm_names_shapes_and_order():
    spec = RNNSpec("lstm", 2, 3, 5, direction="bidirectional", dtype="float64", num_proj=2)
    cells = [BI.format(n, d, "cudnn_compatible_lstm_cell") for n in (0, 1) for d in ("fw", "bw")]
    kernels = [(5 + 2, 12)] * 2 + [(4 + 2, 12)] * 2
    expected = {f"{cell}kernel": shape for cell, shape in zip(cells, kernels, strict=True)}
    expected |= {f"{cell}bias": (12,) for cell in cells}
    expected |= {f"{cell}projection/kernel": (3, 2) for cell in cells}
    expected |= {f"{cell}bias_cudnn_{i}": (12,) for cell in cells for i in (0, 1)}
    shapes = of(filled(spec), spec, None).shapes()
    assert shapes == expected
    assert list(shapes) == list(expected)


def test_gru_names_shapes_and_order():
    spec = RNNSpec("gru", 2, 3, 5, dtype="float64")
    cells = [UNI.format(n, "cudnn_compatible_gru_cell") for n in (0, 1)]
    expected = {}
    for cell, columns in zip(cells, (5, 3), strict=True):
        expected[f"{cell}gates/kernel"] = (columns + 3, 6)
        expected[f"{cell}candidate/input_projection/kernel"] = (columns, 3)
        expected[f"{cell}candidate/hidden_projection/kernel"] = (3, 3)
    for cell in cells:
        expected[f"{cell}gates/bias"] = (6,)
        expected |= {f"{cell}candidate/{which}_projection/bias": (3,) for which in ("input", "hidden")}
    expected |= {f"{cell}gates/bias_cudnn_{i}": (6,) for cell in cells for i in (0, 1)}
    shapes = of(filled(spec), spec, None).shapes()
    assert shapes == expected
    assert list(shapes) == list(expected)


@pytest.mark.parametrize("mode", ["rnn_tanh", "rnn_relu"])
def test_plain_names_and_a_single_bias_alone(mode):
    cell = "s/" + UNI.format(0, "basic_rnn_cell")
    for bias_mode, biases in (("none", []), ("single_input", ["bias"]), ("single_recurrent", ["bias"])):
        spec = RNNSpec(mode, 1, 3, 5, bias_mode=bias_mode)
        assert list(of(filled(spec), spec, "s").shapes()) == [f"{cell}{name}" for name in ("kernel", *biases)]


@pytest.mark.parametrize("bias_mode", ["none", "single_input", "single_recurrent"])
def test_a_gru_with_one_bias_has_that_candidate_bias_alone(bias_mode):
    spec = RNNSpec("gru", 1, 3, 3, "skip_input", bias_mode=bias_mode)
    names = {name.partition("gru_cell/")[2]: shape for name, shape in of(filled(spec), spec).shapes().items()}
    assert names["candidate/input_projection/kernel"] == (0, 3)
    assert names["gates/kernel"] == (3, 6)
    which = {"none": set(), "single_input": {"input"}, "single_recurrent": {"hidden"}}[bias_mode]
    assert {n for n in names if n.startswith("candidate") and n.endswith("bias")} == {
        f"candidate/{w}_projection/bias" for w in which
    }
    assert ("gates/bias" in names) == (bias_mode != "none")


# --- biases that TF sums ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(KINDS))
def test_without_the_pair_and_after_a_change_the_bias_is_halved(mode):
    spec = RNNSpec(mode, 1, 2, 3, dtype="float64")
    params = filled(spec)
    tensors = of(params, spec).tensors()
    gates = {"lstm": 4, "gru": 2}.get(mode, 1)
    for change in (0, 1):
        given_tensors = {n: a.copy() for n, a in tensors.items() if change or "bias_cudnn" not in n}
        name = next(n for n in tensors if n.endswith(("gates/bias", "cell/bias")))
        given_tensors[name] += change
        restored = np.zeros_like(params)
        of(restored, spec).restore(given_tensors)
        _, biases = ops.from_spec(spec).params_to_canonical(restored)
        all_gates = len(biases) // 2
        order = (0, 2, 1, 3)[:gates] if mode == "lstm" else range(gates)
        for place, gate in enumerate(order):
            half = given_tensors[name][2 * place : 2 * place + 2] / 2
            assert np.array_equal(biases[gate], half)
            assert np.array_equal(biases[gate + all_gates], half)
        if mode == "gru":
            _, original = ops.from_spec(spec).params_to_canonical(params)
            assert np.array_equal(biases[2], original[2])
            assert np.array_equal(biases[5], original[5])


def test_a_pair_with_nan_or_overflow_in_it_comes_back():
    spec = RNNSpec("rnn_tanh", 1, 3, 3, dtype="float16")
    params = filled(spec)
    params[-6:] = [np.nan, 60000, 1, np.inf, 60000, -0.0]
    restored = np.zeros_like(params)
    of(restored, spec).restore(of(params, spec).tensors())
    assert restored.tobytes() == params.tobytes()


# --- what TF wrote ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(KINDS))
@pytest.mark.parametrize("direction", ["unidirectional", "bidirectional"])
def test_a_tf_checkpoint_as_a_dictionary_restores_among_other_tensors(mode, direction):
    spec = RNNSpec(mode, 2, 3, 5, direction=direction, dtype="float64")
    params = filled(spec)
    written = {n: a for n, a in of(params, spec, "model/cudnn").tensors().items() if "bias_cudnn" not in n}
    written |= {"global_step": np.array(3), "model/cudnn/opaque_kernel": params, "other/kernel": np.ones(3)}
    target = torch.zeros(params.size)
    kind = getattr(package, f"Cudnn{KINDS[mode]}Saveable")
    made = kind(target, 2, 3, 5, direction=direction, scope="model/cudnn")
    assert made.restore(written) is target
    found, expected = (of(a, spec.replace(dtype=a.dtype)).tensors() for a in (target.numpy(), params))
    for name in written.keys() & expected.keys():
        assert np.allclose(found[name], expected[name], atol=1e-6)


def test_a_raw_opaque_kernel_of_dense_order_restores_into_any_layout():
    spec = RNNSpec("lstm", 2, 3, 5, direction="bidirectional", dtype="float64")
    kernel = filled(spec)
    with use_engine(PermutedLayoutEngine(4)):
        target = np.zeros(ops.from_spec(spec).params_size())
        of(target, spec).restore_opaque(kernel)
        found = canonical(spec, target)
    for ours, theirs in zip(found, canonical(spec, kernel), strict=True):
        assert np.array_equal(ours, theirs)
    assert target.size > kernel.size
    with pytest.raises(ArgumentError, match="the dense order"):
        of(kernel.copy(), spec).restore_opaque(target)
    with pytest.raises(ArgumentError, match="restore_opaque reads one"):
        of(kernel.copy(), spec).restore({"m/opaque_kernel": kernel})


def test_two_scopes_keep_two_models_apart():
    """TF's testSaveRestore with two variables, which read the first one twice."""
    spec = RNNSpec("gru", 2, 3, 5, direction="bidirectional", dtype="float64")
    first, second = filled(spec, 1), filled(spec, 2)
    both = of(first, spec, "m1").tensors() | of(second, spec, "m2").tensors()
    for scope, expected in (("m2", second), ("m1", first)):
        restored = np.zeros_like(first)
        of(restored, spec, scope).restore(both)
        assert np.array_equal(restored, expected)


def test_a_restore_that_fails_has_written_nothing():
    spec = RNNSpec("lstm", 2, 3, 5, num_proj=2, dtype="float64")
    params = filled(spec)
    tensors = of(params, spec).tensors()
    before = params.copy()
    last = list(tensors)[-1]
    kernel = next(iter(tensors))
    for wrong, text in (
        ({n: a for n, a in tensors.items() if n != kernel}, "cell_0"),
        ({n: a for n, a in tensors.items() if not n.endswith("projection/kernel")}, "projection/kernel"),
        (tensors | {last: np.ones(5)}, "bias_cudnn_1 shape"),
        (tensors | {kernel: tensors[kernel].T}, "kernel shape"),
        (list(tensors.values())[:-1], "tensors"),
        (list(tensors.values())[:4], "4 tensors, expecting 10 tensors"),  # TF's alone, which have no projection
        ({}, "among the names"),
    ):
        with pytest.raises(ArgumentError, match=text):
            of(params, spec).restore(wrong)
        assert np.array_equal(params, before)


def test_a_list_of_tfs_tensors_alone_is_enough_without_a_projection():
    spec = RNNSpec("lstm", 1, 3, 5, dtype="float64")
    params = filled(spec)
    of_tf = [s.tensor for s in of(params, spec).specs if "bias_cudnn" not in s.name]
    before = of(params, spec).tensors()
    params[:] = 0
    of(params, spec).restore(of_tf)
    for name, array in of(params, spec).tensors().items():
        if "bias_cudnn" not in name:
            assert np.allclose(array, before[name], atol=1e-15)


@pytest.mark.parametrize("mode", list(KINDS))
@pytest.mark.parametrize("bias_mode", ["none", "single_input", "single_recurrent"])
def test_saveables_and_converters_of_other_bias_modes_hold_the_biases_that_exist(mode, bias_mode):
    spec = RNNSpec(mode, 2, 3, 5, bias_mode=bias_mode)
    params = filled(spec)
    expected = of(params, spec, None).tensors()
    made = getattr(package, f"Cudnn{KINDS[mode]}Saveable")(params, 2, 3, 5, bias_mode=bias_mode)
    assert made.shapes() == {name: array.shape for name, array in expected.items()}
    name = f"CudnnParamsFormatConverter{KINDS[mode].removeprefix('RNN')}"
    weights, biases = getattr(package, name)(2, 3, 5, bias_mode=bias_mode).opaque_to_tf_canonical(params)
    for found, array in zip([*weights, *biases], expected.values(), strict=True):
        assert np.array_equal(found, array)


def test_saveables_refuse_what_they_cannot_hold():
    with pytest.raises(ArgumentError, match="shape"):
        package.CudnnLSTMSaveable(np.zeros(7, "f4"), 1, 3, 5)
    with pytest.raises(ArgumentTypeError, match="scope"):
        package.CudnnGRUSaveable(np.zeros(ops.CudnnGRU(1, 3, 5).params_size(), "f4"), 1, 3, 5, scope=3)
    with pytest.raises(ArgumentTypeError, match="one of the four saveables"):
        CudnnOpaqueParamsSaveable(np.zeros(7, "f4"), 1, 3, 5)
    with pytest.raises(ArgumentTypeError, match="rnn_mode"):
        CudnnParamsFormatConverter(1, 3, 5)
    made = package.CudnnGRUSaveable(np.zeros(ops.CudnnGRU(1, 3, 5).params_size(), "f4"), 1, 3, 5, scope="")
    assert (made.prefix, made.name, made.op.name) == ("", "cudnn_rnn_saveable", "cudnn_rnn_saveable")
    scope = types.SimpleNamespace(name="model/rnn")  # as TF's VariableScope has one
    within = package.CudnnGRUSaveable(np.zeros(ops.CudnnGRU(1, 3, 5).params_size(), "f4"), 1, 3, 5, scope=scope)
    assert within.prefix == "model/rnn/"
    assert "gru" in repr(made)
    assert made.format_converter.spec == made.spec


# --- converters -------------------------------------------------------------------------------------------------------

CASES = {"xsmall": (1, 1), "small": (4, 4), "medium": (128, 64), "large": (128, 128)}


CONVERTERS = [(case, kind, None) for case in CASES for kind in ("LSTM", "GRU", "Tanh", "Relu", "Basic")]
CONVERTERS += [(case, "LSTM", CASES[case][0] // 2) for case in CASES if case != "xsmall"]


@pytest.mark.parametrize(
    ("converter_of", "direction", "num_layers"), pairwise(CONVERTERS, ["unidirectional", "bidirectional"], [1, 2])
)
def test_tf_canonical_to_opaque_and_back_is_the_identity(converter_of, direction, num_layers):
    """TF's CudnnParamsFormatConverterTest, which has one layer alone."""
    case, kind, proj = converter_of
    U, I = CASES[case]
    converter = getattr(saveable, f"CudnnParamsFormatConverter{kind}")(
        num_layers, U, I, direction=direction, **({"num_proj": proj} if proj else {})
    )
    rng = np.random.default_rng(0)
    op = ops.from_spec(converter.spec)
    first = converter.opaque_to_tf_canonical(rng.normal(size=op.params_size()).astype("f4"))
    assert len(first) == (3 if proj else 2)
    lists = [[rng.normal(size=a.shape).astype("f4") for a in arrays] for arrays in first]
    opaque = converter.tf_canonical_to_opaque([*lists[0], *lists[1]], *lists[2:])
    assert sum(a.size for arrays in lists for a in arrays) <= opaque.size == op.params_size()
    for ours, theirs in zip(converter.opaque_to_tf_canonical(opaque), lists, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert np.array_equal(a, b)
    weights, biases = converter._opaque_to_cu_canonical(opaque)
    assert np.array_equal(converter._cu_canonical_to_opaque([*weights, *biases]), opaque)
    with pytest.raises(ArgumentError, match="tf_canonicals"):
        converter.tf_canonical_to_opaque(lists[0])
    with pytest.raises(ArgumentError, match="weights_proj"):
        converter.tf_canonical_to_opaque([*lists[0], *lists[1]], None if proj else [lists[0][0]])


@pytest.mark.parametrize("library", [np.asarray, torch.from_numpy])
def test_arrays_of_several_dtypes_are_refused_by_name_and_none_is_cast(library):
    converter = saveable.CudnnParamsFormatConverterLSTM(1, 4, 3, num_proj=2)
    rng = np.random.default_rng(0)
    kernel, bias, projection = (rng.normal(size=shape).astype("f2") for shape in ((5, 16), (16,), (4, 2)))
    assert converter.tf_canonical_to_opaque([kernel, bias], [projection]).dtype == "float16"
    with pytest.raises(
        ArgumentError, match=r"tf_canonicals\[1\] dtype: .*float32, expecting float16, as tf_canonicals\[0"
    ):
        converter.tf_canonical_to_opaque([library(kernel), library(bias.astype("f4"))], [library(projection)])
    with pytest.raises(ArgumentError, match=r"Invalid weights_proj\[0\] dtype: .*float64, expecting float16"):
        converter.tf_canonical_to_opaque([library(kernel), library(bias)], [library(projection.astype("f8"))])
    named = converter.named(rng.normal(size=ops.from_spec(converter.spec).params_size()).astype("f4"))
    name = next(name for name in named if name.endswith("kernel"))
    with pytest.raises(ArgumentError, match="dtype: float32, expecting float16, as the first has"):
        converter.opaque(named | {name: named[name].astype("f2")})


def test_foreign_byte_order_is_no_other_dtype():
    converter = saveable.CudnnParamsFormatConverterTanh(1, 4, 3)
    kernel, bias = np.arange(28, dtype="f4").reshape(7, 4), np.arange(4, dtype="f4")
    expected = converter.tf_canonical_to_opaque([kernel, bias])
    found = converter.tf_canonical_to_opaque([kernel.astype(">f4"), bias])
    assert found.dtype.isnative
    assert np.array_equal(found, expected)


# --- TF 1.2's form ----------------------------------------------------------------------------------------------------


def test_rnn_params_saveable_keeps_canonical_tensors_under_the_ops_names():
    op = ops.CudnnLSTM(2, 3, 5, direction="bidirectional", num_proj=2)
    params = filled(op.spec)
    for variables in (params, [params]):
        made = RNNParamsSaveable(op.params_to_canonical, op.canonical_to_params, variables, name="")
        tensors = made.tensors()
        assert list(tensors)[:2] == ["CudnnRNNParamsToCanonical:0", "CudnnRNNParamsToCanonical:1"]
        assert made.shapes()["CudnnRNNParamsToCanonical:8"] == (2, 3)
        before = params.copy()
        for form in (tensors, list(tensors.values())):
            params[:] = 0
            assert made.restore(form, None) is params
            assert np.array_equal(params, before)
        assert [s.name for s in made.specs] == list(tensors)
    with pytest.raises(ArgumentError, match="CudnnRNNParamsToCanonical:3"):
        made.restore({n: a for n, a in tensors.items() if not n.endswith(":3")})
    with pytest.raises(ArgumentError, match="tensors"):
        made.restore(list(tensors.values())[1:])
    with pytest.raises(ArgumentError, match="param_variables"):
        RNNParamsSaveable(op.params_to_canonical, op.canonical_to_params, [params, params])
    named = RNNParamsSaveable(op.params_to_canonical, op.canonical_to_params, params)
    assert next(iter(named.shapes())) == "params_canonical/CudnnRNNParamsToCanonical:0"


@pytest.mark.parametrize("kind", [ops.CudnnLSTM, ops.CudnnGRU])
@pytest.mark.parametrize("scope", ["rnn", None])
def test_tensorflow_1_3_puts_the_op_first_and_the_cells_of_one_direction_under_a_scope(kind, scope):
    op = kind(2, 3, 5, dtype="float64")
    params = np.random.default_rng(0).normal(size=op.params_size())
    made = RNNParamsSaveable(op, op.params_to_canonical, op.canonical_to_params, [params], scope, "unused")
    theirs = CudnnOpaqueParamsSaveable.of(params, op.spec, None, "s").tensors()
    names = [name.removeprefix("rnn/") if scope is None else name for name in theirs]
    assert list(made.tensors()) == names
    assert names[0].startswith("multi_rnn_cell/cell_0/cudnn_compatible_" if scope is None else "rnn/multi_rnn_cell/")
    before, tensors = params.copy(), made.tensors()
    for restored in (tensors, list(tensors.values()), {n: a for n, a in tensors.items() if "cudnn_" not in n[-14:]}):
        params[...] = 0
        made.restore(restored)
        if len(restored) == len(tensors):
            assert np.array_equal(params, before)
        weights, _ = op.params_to_canonical(params)
        assert all(map(np.array_equal, weights, op.params_to_canonical(before)[0]))
    with pytest.raises(ArgumentError, match="kernel"):
        made.restore({})


def test_tensorflow_1_3_writes_the_lists_of_1_2_for_all_others():
    for op in (ops.CudnnRNNTanh(1, 3, 5), ops.CudnnLSTM(1, 3, 5, direction="bidirectional")):
        both = (op.params_to_canonical, op.canonical_to_params, op.init_params(0))
        keywords = dict(zip(("params_to_canonical", "canonical_to_params", "param_variables"), both, strict=True))
        made = RNNParamsSaveable(cudnn_rnn=op, **keywords, base_variable_scope="rnn")
        assert list(made.tensors()) == list(RNNParamsSaveable(*both).tensors())
    with pytest.raises(ArgumentError, match="Invalid base_variable_scope"):
        RNNParamsSaveable(op, *both, 3)
