"""The op classes and functions as a caller meets them: signatures, starting params, copies, dtypes."""

import copy
import dataclasses
import gc
import inspect
import pickle
import weakref

import numpy as np
import pytest
from hypothesis import given

from pycudnnrnn import RNNSpec, convert, ops
from pycudnnrnn._recent import Recent
from pycudnnrnn.engines import engine_for
from pycudnnrnn.engines.numpy_engine.engine import NumpyEngine
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, StateError
from pycudnnrnn.ops._dropout import Dropouts
from pycudnnrnn.testing.strategies import make_problem, specs
from tests.helpers.calls import call_of
from tests.helpers.examples import examples

WITHOUT_C = [ops.CudnnGRU, ops.CudnnRNNTanh, ops.CudnnRNNRelu]
ALL = [ops.CudnnLSTM, *WITHOUT_C]

# --- signatures -------------------------------------------------------------------------------------------------------

TF14 = ["num_layers", "num_units", "input_size", "input_mode", "direction", "dtype", "dropout", "seed"]


@pytest.mark.parametrize("kind", ALL)
def test_positional_arguments_are_tf_r14s_and_a_number_in_the_place_of_dtype_is_r12s_order(kind):
    names = list(inspect.signature(kind).parameters)
    assert names[:8] == TF14
    assert ("num_proj" in names) == ("cell_clip" in names) == (kind is ops.CudnnLSTM)
    sizes = 2, 3, 3, "auto_select", "bidirectional"
    spec = kind(*sizes, "float64", 0.25, 7).spec
    assert (spec.num_layers, spec.num_units, spec.input_size, spec.dtype) == (2, 3, 3, "float64")
    assert (spec.direction, spec.input_mode, spec.dropout, spec.seed) == ("bidirectional", "skip_input", 0.25, 7)
    assert kind(*sizes, 0.25, 7).spec == spec.replace(dtype="float32")
    assert kind(*sizes, 0).spec.dropout == 0
    with pytest.raises(ArgumentError, match="no third number"):
        kind(*sizes, 0.25, 7, 7)


@examples(200)
@given(specs())
def test_from_spec_runs_any_spec_and_properties_read_it(spec):
    op = ops.from_spec(spec)
    assert op.spec == spec
    assert op.rnn_mode is spec.mode
    names = ("num_layers", "num_units", "input_size", "input_mode", "direction", "num_dirs", "dtype")
    assert all(getattr(op, name) == getattr(spec, name) for name in names)
    assert eval(repr(op), {"ops": ops}).spec == spec
    assert op.params_size() == op.params_size("cpu") == op.layout().size


# --- functions --------------------------------------------------------------------------------------------------------

FUNCTIONS = dict(zip(ALL, (ops.cudnn_lstm, ops.cudnn_gru, ops.cudnn_rnn_tanh, ops.cudnn_rnn_relu), strict=True))
OPTIONS = [{}, {"direction": "bidirectional"}, {"input_mode": "skip_input", "dropout": 0.5, "seed": 7}]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_call_has_its_forwards_results_and_a_function_those_of_sizes_read_off_the_arrays(kind, options):
    one, other = (kind(2, 3, 3 if "input_mode" in options else 4, **options) for _ in range(2))
    arguments = *call_of(one), "dropout" in options
    fwd = one.forward(*arguments, sequence_lengths=[1, 3])
    expected = [fwd.output, fwd.output_h, *([fwd.output_c] if kind is ops.CudnnLSTM else [])]
    assert (fwd.output_c is None) == (kind is not ops.CudnnLSTM)
    for results in (other(*arguments, sequence_lengths=[1, 3]), FUNCTIONS[kind](*arguments, [1, 3], **options)):
        assert len(results) == len(expected)
        assert all(map(np.array_equal, results, expected))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_converting_functions_are_the_classes_methods(dtype):
    op = ops.CudnnLSTM(2, 5, 4, direction="bidirectional", num_proj=2, dtype=dtype)
    sizes, options = ("lstm", 2, 5, 4), {"direction": "bidirectional", "num_proj": 2}
    assert ops.cudnn_rnn_opaque_params_size(*sizes, dtype=dtype, **options) == op.params_size()
    params = op.init_params(3)
    weights, biases = ops.cudnn_rnn_opaque_params_to_canonical(*sizes, params, **options)
    for ours, expected in zip(weights, op.params_to_canonical(params)[0], strict=True):
        assert np.array_equal(ours, expected)
    back = ops.cudnn_rnn_canonical_to_opaque_params(*sizes, weights, biases, **options)
    assert np.array_equal(back, params)
    assert back.dtype == dtype


# --- starting params, copies ------------------------------------------------------------------------------------------


def test_initial_params_are_glorot_uniform_by_gate_matrix_with_zero_biases():
    op = ops.CudnnGRU(2, 40, 60)
    weights, biases = op.params_to_canonical(op.init_params())
    for weight in weights:
        bound = (6 / sum(weight.shape)) ** 0.5
        assert bound * 0.97 < np.abs(weight).max() <= bound
        assert weight.std() == pytest.approx(bound / 3**0.5, rel=0.05)
    assert not np.concatenate(biases).any()
    assert len({weight.tobytes() for weight in weights}) == len(weights)


def test_initial_params_repeat_by_seed_and_default_to_the_ops_own():
    op = ops.CudnnLSTM(2, 4, 3, seed=5)
    assert np.array_equal(op.init_params(), op.init_params(5))
    assert not np.array_equal(op.init_params(), op.init_params(6))


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda op: pickle.loads(pickle.dumps(op))])
def test_ops_copy_and_pickle_with_their_dropout_position(again):
    op = ops.CudnnLSTM(2, 16, 4, dropout=0.5, seed=3, dtype="float64")
    op(*call_of(op))
    twin = again(op)
    assert twin.spec == op.spec
    assert np.array_equal(twin(*call_of(op))[0], op(*call_of(op))[0])
    twin(*call_of(op))
    assert op.dropout_state().position == twin.dropout_state().position - 1


def test_a_dropout_that_another_state_replaced_is_let_go():
    """On a GPU its random states are megabytes."""
    op = ops.CudnnLSTM(2, 16, 4, dropout=0.5)
    op(*call_of(op))
    before = weakref.ref(op._dropout_on(engine_for("cpu")))
    op.set_dropout_state(op.dropout_state())
    gc.collect()
    assert before() is None


def test_a_small_cache_drops_what_was_used_least_recently():
    cache = Recent(2)
    for value in "ab":
        cache.keep(value, value)
    assert cache.get("a") == "a"
    cache.keep("c", "c")
    assert [cache.get(key) for key in "abc"] == ["a", None, "c"]


# --- dtypes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", ALL)
def test_16_bit_types_compute_in_float32_and_round_at_the_end(kind, dtype):
    narrow = make_problem(kind(2, 8, 5, dtype=dtype, direction="bidirectional"), 4, 3, [4, 2, 0], seed=2)
    names = ("x", "hx", "cx", "dy", "dhy", "dcy", "params")
    wide = dataclasses.replace(
        narrow,
        op=ops.from_spec(narrow.spec.replace(dtype="float32")),
        **{name: getattr(narrow, name).astype("float32") for name in names},
    )
    found = narrow.results()
    for name, array in wide.results().items():
        assert found[name].dtype == narrow.spec.dtype.numpy
        assert np.array_equal(found[name], array.astype(narrow.spec.dtype.numpy)), name


# --- a Canonical as params --------------------------------------------------------------------------------------------


def canonical_of(spec, seed=1):
    op = ops.from_spec(spec)
    return convert.Canonical(spec, *op.params_to_canonical(op.init_params(seed)))


@pytest.mark.parametrize("kind", ALL)
def test_a_canonical_is_its_weights_and_biases(kind):
    op = kind(2, 3, 4, direction="bidirectional")
    canonical = canonical_of(op.spec)
    expected = op.canonical_to_params(canonical.weights, canonical.biases)
    assert np.array_equal(op.canonical_to_params(canonical), expected)
    assert np.array_equal(expected, op.init_params(1))
    out = np.ones_like(expected)
    assert op.canonical_to_params(canonical, out=out) is out
    assert np.array_equal(out, expected)
    with pytest.raises(ArgumentError, match="Invalid biases: <class 'tuple'>, expecting None with a Canonical"):
        op.canonical_to_params(canonical, canonical.biases)
    with pytest.raises(ArgumentTypeError, match="Invalid biases: None, expecting a list of arrays"):
        op.canonical_to_params(canonical.weights)


@pytest.mark.parametrize(
    ("spec", "theirs", "text"),
    [
        (RNNSpec("rnn_tanh", 1, 3, 4), {"mode": "rnn_relu"}, "mode='rnn_relu', expecting mode='rnn_tanh'"),
        (RNNSpec("gru", 1, 3, 4, bias_mode="single_input"), {"bias_mode": "single_recurrent"},
         "bias_mode='single_recurrent', expecting bias_mode='single_input'"),
        (RNNSpec("lstm", 1, 3, 4), {"cell_clip": 1}, r"cell_clip=\(-1.0, 1.0\), expecting cell_clip=None"),
        (RNNSpec("lstm", 1, 3, 4), {"dtype": "float64"}, "dtype='float64', expecting dtype='float32'"),
    ],
)  # fmt: skip
def test_a_canonical_of_another_model_is_refused_even_if_its_arrays_would_fit(spec, theirs, text):
    op = ops.from_spec(spec)
    out = np.full(op.params_size(), 7, op.dtype.numpy)
    with pytest.raises(ArgumentError, match=f"Invalid canonical: {text}, as this op"):
        op.canonical_to_params(canonical_of(spec.replace(**theirs)), out=out)
    assert (out == 7).all()


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ALL)
def test_a_stream_piece_by_piece_is_the_whole_sequence(kind):
    problem = make_problem(kind(2, 3, 4, dtype="float64", dropout=0.5), 6, 2, None, seed=1)
    op, x, start = problem.op, problem.x, (problem.hx, problem.cx)[: 1 + (kind is ops.CudnnLSTM)]
    whole = op(x, *start, problem.params, is_training=False)
    stream = op.stream(problem.params, start)
    for _ in range(2):
        pieces = [stream(x[:3]), stream(x[3])[None], stream(x[4:])]
        for found, expected in zip((np.concatenate(pieces), *stream.states), whole, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-14)
        stream.reset()
    for zeros in (None, (None,) * len(start)):
        fresh = op.stream(problem.params, zeros)
        assert repr(fresh).count("zeros") == len(zeros or [zeros])
        expected = op(x[:1], *[None] * len(start), problem.params, is_training=False)[0]
        np.testing.assert_allclose(fresh(x[0])[None], expected)
    for states, text in (((*start, None), "expecting a tuple \\(h,"), (list(start), "expecting tuple \\(h,")):
        with pytest.raises((ArgumentError, ArgumentTypeError), match=text):
            op.stream(problem.params, states)
    with pytest.raises(ArgumentError, match="'unidirectional': a backward direction starts at the end of the input"):
        kind(1, 3, 4, direction="bidirectional").stream(problem.params)


class OtherDevice(NumpyEngine):
    device = "cpu:1"


def test_a_device_that_continues_from_a_restored_dropout_counts_as_one_that_ran_once_it_has_run():
    """The state of the device that ran is saved; two that ran apart are an error."""
    spec, restored = RNNSpec("gru", 2, 3, 2, dropout=0.5), ops.DropoutState("numpy", seed=5, position=7)
    dropouts = Dropouts(spec, {"numpy": restored})
    first, second = (dropouts.on(engine) for engine in (NumpyEngine(), OtherDevice()))
    assert dropouts.states() == [restored]
    with first.forward():
        pass
    assert dropouts.states() == [dataclasses.replace(restored, position=8)]
    for _ in range(2):
        with second.forward():
            pass
    with pytest.raises(StateError, match="the dropout states of cpu and cpu:1 differ"):
        dropouts.states()
