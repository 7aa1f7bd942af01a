"""Layers: what a caller gets beyond the members that TF documents (tests/tf1/test_tf_layer_page.py has those)."""

import contextlib
import dataclasses
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import CudnnGRU, CudnnLSTM, RNNSpec, convert, layers, ops
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, EngineError, MissingDependencyError, StateError
from pycudnnrnn.testing import use_engine
from pycudnnrnn.testing.strategies import make_problem, specs
from tests.helpers.examples import examples
from tests.helpers.layers import OF_MODE, batch, built, layer_of
from tests.helpers.layouts import ShuffledEngine
from tests.helpers.oracles import random_canonical, run_ours


@examples(300)
@given(specs(), st.integers(0, 2**16), st.booleans(), st.booleans(), st.sampled_from([None, 3, 8]))
def test_a_layer_computes_what_its_op_computes_forward_and_backward(spec, seed, time_major, ragged, permuted):
    with use_engine(ShuffledEngine(permuted)) if permuted else contextlib.nullcontext():
        problem = make_problem(ops.from_spec(spec), 4, 3, [4, 0, 2] if ragged else None, seed)
        if not time_major:
            problem = dataclasses.replace(problem, x=problem.x.swapaxes(0, 1), dy=problem.dy.swapaxes(0, 1))
        layer = layer_of(spec)
        layer.build(problem.x.shape)
        layer.params = problem.params
        states = (problem.hx, problem.cx) if spec.mode == "lstm" else (problem.hx,)
        dy, *d_states = [upstream for upstream in problem.upstream() if upstream is not None]
        options = {"sequence_lengths": problem.lengths, "time_major": time_major}
        fwd = layer.forward(problem.x, states, **options)
        expected = problem.results(time_major=time_major)
        grads = fwd.backward(dy, tuple(d_states))
        results = [fwd.outputs, *fwd.states, grads.inputs, *grads.initial_state, grads.params]
        for ours, oracle in zip(results, expected.values(), strict=True):
            assert np.array_equal(ours, oracle)
        again, states_again = layer(problem.x, states, **options)
        assert np.array_equal(again, fwd.outputs)
        assert [s.shape for s in states_again] == [tuple(s) for s in layer.state_shape(3)]


def test_a_backward_takes_gradients_of_states_as_a_tuple_or_one_by_one():
    layer, x = built(), batch(4, 3, 5)
    dh, dc = batch(2, 3, 3, seed=1), batch(2, 3, 3, seed=2)
    first = layer.forward(x).backward(None, (dh, dc))
    second = layer.forward(x).backward(None, dh, dc)
    assert np.array_equal(first.params, second.params)
    assert first.inputs is first.input
    for name, wrong in {"d_states": ((dh,),), "d_output_c": ((dh, dc), dc)}.items():
        with pytest.raises(ArgumentError, match=f"Invalid {name}: "):
            layer.forward(x).backward(None, *wrong)
    with pytest.raises(StateError, match="kept no reserve"):
        layer.forward(x, training=False).backward()
    evaluated = layer.forward(x, training=False, keep_reserve=True)
    out = np.ones_like(layer.params)
    evaluated.backward(None, (dh, dc), out=out, accumulate=True, retain=True)
    assert np.allclose(out, first.params + 1)
    assert np.array_equal(evaluated.backward(None, (dh, dc)).params, first.params)


# --- TF's layer tests -------------------------------------------------------------------------------------------------


def test_zero_weights_give_zero_outputs_and_one_variable_with_tfs_name():
    """TF's testLayerBasic."""
    layer = CudnnLSTM(4, 2, kernel_initializer="zeros", bias_initializer="zeros", name="main/awesome_lstm")
    for _ in range(2):
        assert not layer(batch(4, 8, 2).astype("f4"))[0].any()
    assert [v.name for v in layer.trainable_variables] == ["main/awesome_lstm/opaque_kernel"]
    assert layer.trainable_variables[0].value is layer.params
    assert type("CudnnLSTM2", (CudnnLSTM,), {})(1, 2).name == "cudnn_lst_m2", "as TF's own function of names has it"


# --- arguments, places, dtypes ----------------------------------------------------------------------------------------


def test_bad_arguments_are_named_before_anything_is_built():
    with pytest.raises(TypeError, match=r"this CudnnGRU is the layer; .* ops\.CudnnGRU"):
        CudnnGRU(1, 8, 4)
    wrong = {"num_layers": 0, "dropout": 2, "seed": -1, "num_proj": 3, "bias_mode": "both", "device": "tpu", "name": ""}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=f"Invalid {name}"):
            CudnnLSTM(**{"num_layers": 2, "num_units": 3, name: value})
    with pytest.raises((EngineError, MissingDependencyError)):
        CudnnGRU(1, 3, device="cuda:99").build((None, None, 4))
    with pytest.raises(ArgumentError, match="where the layer is"):
        CudnnGRU(1, 3, device="cuda:1")(batch(2, 2, 4))


def test_weights_of_another_framework_are_answered_with_what_takes_them():
    layer = built()
    c = convert.Canonical(layer.op.spec, *layer.op.params_to_canonical(layer.params))
    for wrong, got in ((layer.get_weights() * 3, "3 arrays"), (c, "<class '.*Canonical'>")):
        text = f"Invalid weights: {got}, expecting a list of 1, .* \\(from_canonical takes"
        with pytest.raises(ArgumentError, match=text):
            layer.set_weights(wrong)


def test_a_cast_layer_keeps_its_weights_its_dropout_and_its_names():
    layer = built(CudnnGRU, dtype="float16", compute_dtype="float16", math_type="default", dropout=0.5)
    x = batch(4, 3, 5)
    expected = layer(x.astype("f2"), training=False)[0]
    layer(x.astype("f2"))
    before, saveable = layer.op.dropout_state(), layer.saveable
    assert layer.to("cpu") is layer
    assert layer.to(dtype="float32").dtype == layer.params.dtype == layer.saveable.spec.dtype == "float32"
    assert saveable.spec == layer.saveable.spec, "one that was taken before the cast saves what it can restore"
    assert layer.op.dropout_state() == before
    assert before.position == 1
    assert (layer.spec.compute_dtype, layer.spec.math_type) == ("float32", "fma")
    assert np.allclose(layer(x.astype("f4"), training=False)[0], expected, atol=5e-3)
    assert layer.variables[0].value is layer.params
    assert layer.saveable.prefix == "cudnn_gru/"
    late = CudnnGRU(1, 3, dtype="float16", compute_dtype="float16", math_type="default").to("cpu", dtype="float64")
    assert late(batch(2, 2, 3))[0].dtype == "float64"
    assert {one.get_config()[name] for one in (layer, late) for name in ("compute_dtype", "math_type")} == {None}


def test_variables_are_taken_by_numpy_and_written_by_index():
    layer = built()
    (variable,) = layer.variables
    assert np.asarray(variable) is variable.__array__(copy=False) is layer.params
    assert not np.shares_memory(np.array(variable), layer.params)
    variable[:3] = 7
    assert layer.params[:3].tolist() == [7, 7, 7] == variable[:3].tolist()
    assert np.asarray(variable, "float32").dtype == "float32"
    with pytest.raises(ValueError, match="copy"):
        variable.__array__("float32", copy=False)
    assert len(variable) == layer.params.size
    with pytest.raises(ArgumentError, match="opaque_kernel shape"):
        variable.assign([1])
    with pytest.raises(ArgumentError, match="Invalid params shape"):
        layer.params = np.ones(1, "f")


def test_a_tensor_shape_builds():
    shape = types.SimpleNamespace(as_list=lambda: [None, 2, types.SimpleNamespace(value=3)])
    layer = CudnnGRU(1, 2, dtype="float64")
    with pytest.raises(StateError, match="before it is built"):
        _ = layer.params
    layer.build(shape)
    assert layer.input_size == 3
    with pytest.raises(TypeError, match="input_shape"):
        CudnnGRU(1, 2).build("ab1")


# --- streams ----------------------------------------------------------------------------------------------------------


def test_a_stream_is_the_ops_with_a_tuple_of_states():
    layer, x = built(dropout=0.5), batch(7, 3, 5)
    start = batch(2, 3, 3, seed=0), batch(2, 3, 3, seed=1)
    expected, states = layer(x, start, training=False)
    assert repr(layer.stream()) == "<Stream of CudnnLSTM; states zeros>"
    stream = layer.stream(start)
    assert np.allclose(np.concatenate([stream(x[:3]), stream(x[3:])]), expected, atol=1e-14)
    assert all(np.allclose(a, b, atol=1e-14) for a, b in zip(stream.states, states, strict=True))
    assert "[2, 3, 3]" in repr(stream)
    with pytest.raises(TypeError, match="initial_state"):
        layer.stream([np.zeros((1, 1, 3))])


# --- of a converted model ---------------------------------------------------------------------------------------------


SPECS = [
    RNNSpec("lstm", 2, 5, 4, direction="bidirectional", dtype="float64", num_proj=3, cell_clip=(-1.0, 1.0)),
    RNNSpec("gru", 2, 5, 4, dropout=0.5, seed=7, dtype="float64", bias_mode="single_input"),
    RNNSpec("rnn_tanh", 1, 4, 4, "skip_input", dtype="float64"),
    RNNSpec("rnn_relu", 1, 5, 4, dtype="float64"),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: str(spec.mode))
def test_a_layer_from_a_converted_model_runs_it(spec):
    c = random_canonical(spec, 1)
    x = batch(6, 2, 4)
    chosen = layers.from_canonical(c, name="encoder")
    assert (chosen.spec, chosen.name, type(chosen)) == (spec, "encoder", OF_MODE[spec.mode])
    for layer in (chosen, type(chosen).from_canonical(c)):
        assert np.array_equal(layer(x, training=False)[0], run_ours(c, x)[0])
    assert not type(chosen).from_spec(spec).params.any()


def test_the_model_of_another_cell_and_what_is_no_model_are_refused():
    c = random_canonical(SPECS[1], 1)
    with pytest.raises(ArgumentError, match=r"Invalid rnn_mode: 'gru', expecting 'lstm', .*layers\.from_canonical"):
        CudnnLSTM.from_canonical(c)
    for call in (CudnnGRU.from_canonical, layers.from_canonical):
        with pytest.raises(ArgumentTypeError, match=r"Invalid canonical: .*expecting a convert\.Canonical"):
            call({"weight_ih_l0": np.ones(3)})
    with pytest.raises(ArgumentTypeError, match="Invalid spec"):
        CudnnGRU.from_spec(c)
    with pytest.raises(ArgumentTypeError, match=r"Invalid spec: .*of a convert\.Canonical c it is c\.spec"):
        ops.from_spec(c)
    assert convert.Canonical is type(c)
