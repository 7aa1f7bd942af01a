"""The op classes and functions as a caller meets them: signatures, states, errors, dropout, kinds of arrays."""

import copy
import inspect
import pickle
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import RNNSpec, errors, ops
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, EngineError, StateError
from pycudnnrnn.testing.strategies import make_problem, specs
from tests.helpers.examples import examples

WITHOUT_C = [ops.CudnnGRU, ops.CudnnRNNTanh, ops.CudnnRNNRelu]
ALL = [ops.CudnnLSTM, *WITHOUT_C]


def call_of(op, T=3, B=2, seed=0):
    problem = make_problem(op, T, B, None, seed)
    return [problem.x, problem.hx, *([problem.cx] if problem.spec.has_cell_state else []), problem.params]


# --- signatures -------------------------------------------------------------------------------------------------------

TF14 = ["num_layers", "num_units", "input_size", "input_mode", "direction", "dtype", "dropout", "seed"]


@pytest.mark.parametrize("kind", ALL)
def test_positional_arguments_are_tf_r14s(kind):
    names = list(inspect.signature(kind).parameters)
    assert names[:8] == TF14
    assert ("num_proj" in names) == ("cell_clip" in names) == (kind is ops.CudnnLSTM)
    op = kind(2, 3, 4, "linear_input", "bidirectional", "float64", 0.25, 7)
    spec = op.spec
    assert (spec.num_layers, spec.num_units, spec.input_size, spec.dtype) == (2, 3, 4, "float64")
    assert (spec.direction, spec.dropout, spec.seed) == ("bidirectional", 0.25, 7)


@pytest.mark.parametrize("kind", ALL)
def test_a_number_in_the_place_of_dtype_is_tf_r12s_order(kind):
    spec = kind(2, 3, 3, "auto_select", "unidirectional", 0.25, 7).spec
    assert (spec.dtype, spec.dropout, spec.seed, spec.input_mode) == ("float32", 0.25, 7, "skip_input")
    spec = kind(2, 3, 4, "linear_input", "unidirectional", 0.25, seed=7).spec
    assert (spec.dropout, spec.seed) == (0.25, 7)
    assert kind(2, 3, 4, "linear_input", "unidirectional", 0).spec.dropout == 0
    with pytest.raises(ArgumentError, match="no third number"):
        kind(2, 3, 4, "linear_input", "unidirectional", 0.25, 7, 7)


@pytest.mark.parametrize("kind", ALL)
def test_the_default_input_mode_is_linear_even_where_sizes_are_equal(kind):
    assert kind(1, 3, 3).input_mode == "linear_input"


@examples(200)
@given(specs())
def test_from_spec_runs_any_spec_and_properties_read_it(spec):
    op = ops.from_spec(spec)
    assert op.spec is spec
    assert op.rnn_mode is spec.mode
    names = ("num_layers", "num_units", "input_size", "input_mode", "direction", "num_dirs", "dtype")
    assert all(getattr(op, name) == getattr(spec, name) for name in names)
    assert eval(repr(op), {"ops": ops}).spec == spec
    assert op.params_size() == op.params_size("cpu") == op.layout().size


def test_from_spec_takes_nothing_else():
    with pytest.raises(ArgumentTypeError, match="an RNNSpec"):
        ops.from_spec("lstm")


@pytest.mark.parametrize("kind", ALL)
def test_a_call_is_the_forwards_results(kind):
    op = kind(2, 3, 4)
    arguments = call_of(op)
    fwd = op.forward(*arguments)
    results = op(*arguments)
    assert len(results) == (3 if kind is ops.CudnnLSTM else 2)
    for found, expected in zip(results, (fwd.output, fwd.output_h, fwd.output_c), strict=False):
        assert np.array_equal(found, expected)
    assert (fwd.output_c is None) == (kind is not ops.CudnnLSTM)


def test_is_training_stays_the_last_positional_argument():
    op = ops.CudnnGRU(1, 3, 4)
    op(*call_of(op), False)
    with pytest.raises(TypeError):
        op(*call_of(op), False, [3, 3])


# --- functions --------------------------------------------------------------------------------------------------------

FUNCTIONS = {
    ops.CudnnLSTM: ops.cudnn_lstm,
    ops.CudnnGRU: ops.cudnn_gru,
    ops.CudnnRNNTanh: ops.cudnn_rnn_tanh,
    ops.CudnnRNNRelu: ops.cudnn_rnn_relu,
}


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("direction", ["unidirectional", "bidirectional"])
def test_a_function_is_its_class_with_sizes_read_off_the_arrays(kind, direction):
    op = kind(2, 3, 4, direction=direction, dtype="float64")
    arguments = call_of(op)
    found = FUNCTIONS[kind](*arguments, False, [1, 3], direction=direction)
    for ours, expected in zip(found, op(*arguments, False, sequence_lengths=[1, 3]), strict=True):
        assert np.array_equal(ours, expected)


def test_the_lstm_function_projects():
    op = ops.CudnnLSTM(2, 5, 4, num_proj=2)
    arguments = call_of(op)
    assert np.array_equal(ops.cudnn_lstm(*arguments, False, num_proj=2)[0], op(*arguments, False)[0])


def test_all_four_functions_take_one_order():
    shared = ["params", "is_training", "sequence_lengths", "time_major", "input_mode", "direction", "dropout", "seed"]
    for function in FUNCTIONS.values():
        names = [
            n for n in inspect.signature(function).parameters if n not in ("inputs", "input_h", "input_c", "num_proj")
        ]
        assert names == [*shared, "name"]


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


# --- errors -----------------------------------------------------------------------------------------------------------

LSTM = ops.CudnnLSTM(2, 3, 4, direction="bidirectional", dtype="float64")
X, H, C, P = call_of(LSTM)

BAD_CALLS = {
    # arguments, keywords; the argument that the error names; its type
    "two axes": ((X[0], H, C, P), {}, "input_data", ValueError),
    "input_size": ((X[..., :3], H, C, P), {}, "input_data", ValueError),
    "input dtype": ((X.astype("f4"), H, C, P), {}, "input_data", ValueError),
    "integers": ((X.astype(int), H, C, P), {}, "input_data", ValueError),
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


def test_shape_errors_show_both_shapes():
    with pytest.raises(ArgumentError) as caught:
        LSTM(X, H[:2], C, P)
    assert str(caught.value) == "Invalid input_h shape: (2, 2, 3), expecting (4, 2, 3), which is [L * D, B, num_units]"


def test_a_cell_without_c_refuses_its_gradient():
    op = ops.CudnnGRU(1, 3, 4)
    fwd = op.forward(*call_of(op))
    with pytest.raises(ArgumentError, match="d_output_c"):
        fwd.backward_data(None, None, np.zeros((1, 2, 3), "f4"))


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cpu:0", 3])
def test_a_device_has_one_of_two_names(device):
    with pytest.raises(ArgumentError, match="'cpu', 'cuda' or 'cuda:<index>'"):
        LSTM.params_size(device)


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


def test_move_params_gives_a_new_equal_buffer():
    moved = LSTM.move_params(P, "cpu")
    assert np.array_equal(moved, P)
    assert not np.may_share_memory(moved, P)


def test_errors_survive_pickling():
    for error in (ArgumentError("x", "y", 3, "shape"), ArgumentTypeError("x", "y", 3), EngineError("z")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))
    missing = errors.MissingDependencyError("rich", "cli", "the command line")
    assert str(pickle.loads(pickle.dumps(missing))).endswith("pip install 'pycudnnrnn[cli]'")


# --- the backward's rules ---------------------------------------------------------------------------------------------


def test_an_inference_keeps_no_reserve():
    fwd = LSTM.forward(X, H, C, P, is_training=False)
    with pytest.raises(StateError, match="keep_reserve=True"):
        fwd.backward_data(np.ones_like(fwd.output))


def test_a_second_backward_says_that_the_first_used_the_reserve_up():
    fwd = LSTM.forward(X, H, C, P)
    fwd.backward(np.ones_like(fwd.output))
    with pytest.raises(StateError, match="retain=True"):
        fwd.backward(np.ones_like(fwd.output))


def test_retain_keeps_the_reserve_for_an_equal_second_backward():
    fwd = LSTM.forward(X, H, C, P)
    dy = np.random.default_rng(0).normal(size=fwd.output.shape)
    first = fwd.backward(dy, retain=True)
    fwd.backward(2 * dy, retain=True)
    again = fwd.backward(dy)
    for name in ("input", "input_h", "input_c", "params"):
        assert np.array_equal(getattr(first, name), getattr(again, name))


def test_weights_come_after_data():
    fwd = LSTM.forward(X, H, C, P)
    with pytest.raises(StateError, match="before backward_data"):
        fwd.backward_weights()
    data = fwd.backward_data(np.ones_like(fwd.output))
    assert data.params is None
    assert np.array_equal(fwd.backward_weights(), fwd.backward_weights())


def test_a_refused_backward_leaves_the_reserve():
    fwd = LSTM.forward(X, H, C, P)
    with pytest.raises(ArgumentError, match="d_output shape"):
        fwd.backward_data(np.ones((1, 2, 3)))
    fwd.backward_data(np.ones_like(fwd.output))


def test_the_params_gradient_needs_a_buffer_of_its_own():
    fwd = LSTM.forward(X, H, C, P)
    fwd.backward_data(np.ones_like(fwd.output))
    with pytest.raises(ArgumentError, match="overlaps params"):
        fwd.backward_weights(out=P)
    with pytest.raises(ArgumentError, match="nothing to add to"):
        fwd.backward_weights(accumulate=True)
    with pytest.raises(ArgumentError, match="out"):
        fwd.backward_weights(out=np.zeros(3))


def test_nothing_passed_in_is_written_to():
    arrays = [X, H, C, P]
    before = [a.copy() for a in arrays]
    fwd = LSTM.forward(*arrays, sequence_lengths=[3, 1])
    dy, dh, dc = np.ones_like(fwd.output), np.ones_like(H), np.ones_like(C)
    fwd.backward(dy, dh, dc)
    for array, old in zip([*arrays, dy, dh, dc], [*before, *(np.ones_like(a) for a in (dy, dh, dc))], strict=True):
        assert np.array_equal(array, old)


def test_results_share_no_memory_with_what_a_backward_reads():
    fwd = LSTM.forward(X, H, C, P)
    expected = LSTM.forward(X, H, C, P).backward(np.ones_like(fwd.output))
    dy = np.ones_like(fwd.output)
    for result in (fwd.output, fwd.output_h, fwd.output_c):
        result[:] = np.nan
    assert np.array_equal(fwd.backward(dy).params, expected.params)


def test_a_forward_refuses_to_pickle():
    with pytest.raises(TypeError, match="Forward"):
        pickle.dumps(LSTM.forward(X, H, C, P))


# --- dropout ----------------------------------------------------------------------------------------------------------


def dropping(p=0.5, seed=3, layers=2):
    return ops.CudnnLSTM(layers, 16, 4, dropout=p, seed=seed, dtype="float64")


def test_dropout_moves_on_from_call_to_call_and_repeats_from_a_saved_state():
    op = dropping()
    arguments = call_of(op)
    start = op.dropout_state()
    first, second = op(*arguments)[0], op(*arguments)[0]
    assert not np.array_equal(first, second)
    assert op.dropout_state().position == 2
    op.set_dropout_state(start)
    assert np.array_equal(op(*arguments)[0], first)
    assert np.array_equal(dropping()(*arguments)[0], first)
    assert not np.array_equal(dropping(seed=4)(*arguments)[0], first)


def test_a_dropout_state_is_a_value_that_pickles():
    op = dropping()
    op(*call_of(op))
    state = pickle.loads(pickle.dumps(op.dropout_state()))
    expected = op(*call_of(op))[0]
    op.set_dropout_state(state)
    assert np.array_equal(op(*call_of(op))[0], expected)
    with pytest.raises(ArgumentTypeError, match="DropoutState"):
        op.set_dropout_state(3)


def test_inference_drops_nothing_and_moves_no_state():
    op = dropping()
    arguments = call_of(op)
    plain = ops.from_spec(op.spec.replace(dropout=0.0))
    assert np.array_equal(op(*arguments, is_training=False)[0], plain(*arguments)[0])
    assert op.dropout_state().position == 0


def test_dropping_everything_leaves_the_upper_layer_without_input():
    op = dropping(p=1.0)
    x, h, c, params = call_of(op)
    output = op(x, h, c, params)[0]
    blind = params.copy()
    for weight in op.params_to_canonical(blind, copy=False)[0][8:12]:
        weight[:] = 0
    assert np.array_equal(output, ops.from_spec(op.spec.replace(dropout=0.0))(x, h, c, blind)[0])


def test_what_survives_is_scaled_and_as_much_survives_as_was_asked():
    """A relu layer of ones above another: its pre-activation is the number of survivors, scaled."""
    units, p = 400, 0.3
    op = ops.CudnnRNNRelu(2, units, 1, dropout=p, seed=1, dtype="float64", bias_mode="none")
    params = np.zeros(op.params_size())
    weights, _ = op.params_to_canonical(params, copy=False)
    weights[0][:] = 1
    weights[2][:] = 1
    output, _ = op(np.ones((50, 4, 1)), None, params)
    assert np.allclose(output, output[..., :1])
    survivors = output[..., 0] * (1 - p)
    assert np.allclose(survivors, np.round(survivors))
    assert survivors.mean() == pytest.approx(units * (1 - p), rel=0.01)
    assert survivors.std() == pytest.approx((units * p * (1 - p)) ** 0.5, rel=0.15)


def test_the_backward_uses_the_forwards_masks():
    op = dropping()
    problem = make_problem(op, 3, 2, [3, 2], seed=8)
    state = op.dropout_state()

    def loss(x):
        op.set_dropout_state(state)
        y, h, c = op(x, problem.hx, problem.cx, problem.params, sequence_lengths=[3, 2])
        return np.sum(y * problem.dy) + np.sum(h * problem.dhy) + np.sum(c * problem.dcy)

    op.set_dropout_state(state)
    dx = problem.forward().backward(*problem.upstream()).input
    direction = np.random.default_rng(1).normal(size=problem.x.shape)
    slope = (loss(problem.x + 1e-6 * direction) - loss(problem.x - 1e-6 * direction)) / 2e-6
    assert slope == pytest.approx(np.sum(dx * direction), rel=1e-6)


def test_dropout_with_one_layer_warns():
    with pytest.warns(UserWarning, match="between layers only"):
        dropping(layers=1)
    with pytest.warns(UserWarning, match="between layers only"):
        ops.from_spec(RNNSpec("gru", 1, 2, 3, dropout=0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dropping(layers=2)


# --- init, copies -----------------------------------------------------------------------------------------------------


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
    with pytest.raises(ArgumentError, match="seed"):
        op.init_params(-1)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda op: pickle.loads(pickle.dumps(op))])
def test_ops_copy_and_pickle_with_their_dropout_position(again):
    op = dropping()
    op(*call_of(op))
    twin = again(op)
    assert twin.spec == op.spec
    assert np.array_equal(twin(*call_of(op))[0], op(*call_of(op))[0])
    twin(*call_of(op))
    assert op.dropout_state().position == twin.dropout_state().position - 1


# --- kinds of arrays, dtypes ------------------------------------------------------------------------------------------


def test_torch_tensors_in_torch_tensors_out():
    fwd = LSTM.forward(*map(torch.tensor, (X, H, C, P)))
    expected = LSTM.forward(X, H, C, P)
    assert all(isinstance(t, torch.Tensor) for t in (fwd.output, fwd.output_h, fwd.output_c))
    assert np.array_equal(fwd.output.numpy(), expected.output)
    out = torch.zeros(LSTM.params_size(), dtype=torch.float64)
    grads = fwd.backward(torch.ones_like(fwd.output), out=out)
    assert grads.params is out
    assert np.array_equal(out.numpy(), expected.backward(np.ones_like(expected.output)).params)
    weights, biases = LSTM.params_to_canonical(torch.tensor(P))
    assert isinstance(weights[0], torch.Tensor)
    assert torch.equal(LSTM.canonical_to_params(weights, biases), torch.tensor(P))


def test_a_tensor_that_records_its_history_is_refused_with_the_way_out():
    with pytest.raises(ArgumentError, match="detach"):
        LSTM(torch.tensor(X, requires_grad=True), *map(torch.tensor, (H, C, P)))


def test_data_may_be_strided_and_read_only():
    wide = np.repeat(X, 2, axis=2)[..., ::2]
    wide.flags.writeable = False
    assert not wide.flags.c_contiguous
    assert np.array_equal(LSTM(wide, H, C, P)[0], LSTM(X, H, C, P)[0])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("bfloat16", 2e-2)])
@pytest.mark.parametrize("kind", ALL)
def test_16_bit_types_compute_in_float32_and_round_at_the_end(kind, dtype, tolerance):
    narrow = kind(2, 8, 5, dtype=dtype, direction="bidirectional")
    problem = make_problem(narrow, 4, 3, [4, 2, 0], seed=2)
    wide = ops.from_spec(narrow.spec.replace(dtype="float32"))
    arrays = {
        name: getattr(problem, name).astype("float32") for name in ("x", "hx", "cx", "dy", "dhy", "dcy", "params")
    }
    fwd, ours = problem.forward(), None
    ours = fwd.backward(*problem.upstream())
    states = (arrays["hx"], arrays["cx"]) if narrow.spec.has_cell_state else (arrays["hx"],)
    exact = wide.forward(arrays["x"], *states, arrays["params"], sequence_lengths=[4, 2, 0])
    upstream = (arrays["dy"], arrays["dhy"], arrays["dcy"] if narrow.spec.has_cell_state else None)
    grads = exact.backward(*upstream)
    for found, expected in [(fwd.output, exact.output), (ours.params, grads.params), (ours.input, grads.input)]:
        assert found.dtype == narrow.dtype.numpy
        assert np.array_equal(found, expected.astype(found.dtype))
    assert np.abs(fwd.output.astype("float32") - exact.output).max() < tolerance


def test_float16_arithmetic_is_float16_when_asked_for():
    options = {"dtype": "float16", "direction": "bidirectional"}
    half = ops.CudnnLSTM(1, 8, 5, compute_dtype="float16", **options)
    problem = make_problem(half, 6, 3, None, seed=2)
    single = ops.CudnnLSTM(1, 8, 5, **options)
    exact = single(problem.x, problem.hx, problem.cx, problem.params)[0].astype("float32")
    rough = problem.forward().output.astype("float32")
    assert 0 < np.abs(rough - exact).max() < 1e-2


def test_bfloat16_without_ml_dtypes_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(errors.MissingDependencyError, match=r"pycudnnrnn\[bfloat16\]"):
        ops.CudnnLSTM(1, 2, 3, dtype="bfloat16").init_params()


@examples(100)
@given(st.sampled_from([np.nan, np.inf, -np.inf]), st.integers(0, 2))
def test_nan_and_infinity_in_valid_data_are_data(value, which):
    arguments = call_of(LSTM)
    arguments[which] = arguments[which].copy()
    arguments[which].flat[0] = value
    with np.errstate(all="raise"):
        output = LSTM(*arguments)[0]
    assert output.shape == (3, 2, 6)
