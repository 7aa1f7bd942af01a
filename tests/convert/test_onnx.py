"""ONNX: the model that we write, in onnxruntime; the operators' own test cases; attributes and tensors of a file."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import RNNSpec, convert
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.testing.strategies import specs
from tests.helpers.examples import examples
from tests.helpers.oracles import equal_models, need, random_canonical, run_ours, worst

need("onnx", "onnxruntime")
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from onnx import helper  # noqa: E402

FLOAT32 = 3e-6
"""onnxruntime computes these operators in float32."""

plain = specs(input_modes=["linear_input"], clip=False, projection=False, dtypes=["float32"])


@examples(100)
@given(plain, st.integers(0, 2**31), st.booleans(), st.booleans(), st.booleans())
def test_a_written_model_is_read_back_bit_for_bit(spec, seed, lengths, states, batch):
    c = random_canonical(spec, seed)
    back = convert.onnx.from_model(convert.onnx.to_model(c, sequence_lens=lengths, states=states, batch_first=batch))
    if spec.bias_mode in ("none", "double"):
        equal_models(back, c)
    equal_models(back, convert.onnx.from_model(convert.onnx.to_model(back)))


I, U = 3, 4
SPECS = [
    RNNSpec(mode, layers, U, I, direction=direction)
    for mode, layers, direction in (
        ("lstm", 1, "unidirectional"), ("lstm", 2, "bidirectional"), ("gru", 2, "bidirectional"),
        ("gru", 1, "unidirectional"), ("rnn_tanh", 2, "unidirectional"), ("rnn_relu", 1, "bidirectional"),
    )
]  # fmt: skip


def session_of(model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of every input that may be left out
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def problem(spec, T, B):
    rng = np.random.default_rng(T)
    x = rng.normal(size=(T, B, I)).astype("f4")
    return x, {f"initial_{s}": rng.normal(size=(spec.num_pseudo_layers, B, U)).astype("f4") for s in states_of(spec)}


def states_of(spec):
    return ["h", "c"] if spec.has_cell_state else ["h"]


def error(c, session, x, states, lengths=None):
    """Return how far onnxruntime is from our op, on the inputs that are given here."""
    given = {"input": x, **states}
    if lengths is not None:
        given["sequence_lens"] = np.array(lengths, np.int32)
    y, hy, *cy = session.run(None, given)
    hx, cx = states.get("initial_h"), states.get("initial_c")
    zeros = np.zeros((c.spec.num_pseudo_layers, x.shape[1], U), "f4")
    ours = run_ours(c, x, zeros if hx is None else hx, zeros if cx is None else cx, lengths or [len(x)] * x.shape[1])
    return worst(ours, (y, hy, cy[0] if cy else None))


@pytest.mark.parametrize("sequence_lens", [False, True])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_model_without_states_or_with_the_batch_first_computes_the_same(spec, sequence_lens, capfd):
    c = random_canonical(spec, 1)
    x, _ = problem(spec, 5, 3)
    lengths = [5, 0, 3] if sequence_lens else None
    for batch_first in (False, True):
        model = convert.onnx.to_model(c, sequence_lens=sequence_lens, batch_first=batch_first)
        session = onnxruntime.InferenceSession(model.SerializeToString())
        if not sequence_lens:
            assert "will not be treated as constant" not in capfd.readouterr().err
        given = {"input": x.swapaxes(0, 1) if batch_first else x}
        given |= {"sequence_lens": np.array(lengths, np.int32)} if lengths else {}
        y, hy, *cy = session.run(None, given)
        zeros = np.zeros((spec.num_pseudo_layers, 3, U), "f4")
        ours = run_ours(c, x, zeros, zeros, lengths or [5] * 3)
        assert worst(ours, (y.swapaxes(0, 1) if batch_first else y, hy, cy[0] if cy else None)) <= FLOAT32


@pytest.mark.parametrize("sequence_lens", [False, True])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_written_model_needs_its_input_alone(spec, sequence_lens):
    c = random_canonical(spec, 1)
    session = session_of(convert.onnx.to_model(c, sequence_lens=sequence_lens, states=True))
    assert [value.name for value in session.get_inputs()] == ["input"]
    optional = [f"initial_{s}" for s in states_of(spec)] + ["sequence_lens"] * sequence_lens
    assert [value.name for value in session.get_overridable_initializers()] == optional
    for T, B in ((5, 2), (1, 7), (2, 1)):
        x, states = problem(spec, T, B)
        assert error(c, session, x, {}) <= FLOAT32
        assert error(c, session, x, states) <= FLOAT32
        for name, state in states.items():
            assert error(c, session, x, {name: state}) <= FLOAT32


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_written_model_takes_lengths_and_gives_the_ops_states_for_any_of_them(spec):
    c = random_canonical(spec, 2)
    session = session_of(convert.onnx.to_model(c, sequence_lens=True, states=True))
    x, states = problem(spec, 5, 4)
    for lengths in ([5, 0, 3, 1], [0, 0, 0, 0]):
        assert error(c, session, x, states, lengths) <= FLOAT32
        assert error(c, session, x, {}, lengths) <= FLOAT32
    with pytest.raises(Exception, match="Invalid value/s in sequence_lens"):
        session.run(None, {"input": x, "sequence_lens": np.array([5, 6, 1, 1], np.int32)})


def test_a_stack_of_more_than_ten_layers_is_in_the_order_of_their_numbers():
    c = random_canonical(RNNSpec("rnn_tanh", 11, 4, 4), 1)
    equal_models(convert.onnx.to_canonical(convert.onnx.from_canonical(c)), c)
    shuffled = dict(sorted(convert.onnx.from_canonical(c).items()))
    equal_models(convert.onnx.to_canonical(shuffled), c)


def test_a_dtype_that_the_operators_do_not_take_is_not_written():
    with pytest.raises(ConvertError, match="not bfloat16"):
        convert.onnx.to_model(random_canonical(RNNSpec("lstm", 1, 4, 3, dtype="bfloat16"), 1))


def test_external_data_is_never_opened(tmp_path):
    model = convert.onnx.to_model(random_canonical(RNNSpec("lstm", 1, 4, 3), 1))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    loaded = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    with pytest.raises(ConvertError, match="keeps its data in another file"):
        convert.onnx.from_model(loaded)


def backend_cases():
    """Return the operators' own cases. Their weights are nearly constant: they check equations, not gate orders."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other operators' cases overflow on purpose while they are built
        from onnx.backend.test.case import node
        from onnx.backend.test.case.node import gru, lstm, rnn  # noqa: F401  imported, each adds its cases alone

    kinds = ("test_lstm_", "test_gru_", "test_simple_rnn_", "test_rnn_")
    found = [case for case in node._NodeTestCases if case.name.startswith(kinds) and "expanded" not in case.name]
    assert len(found) >= 18
    return found


NOT_CUDNN = {"test_lstm_with_peepholes": "peepholes", "test_gru_seq_length": "linear_before_reset"}


@pytest.mark.parametrize("case", backend_cases(), ids=lambda case: case.name)
def test_the_operators_own_cases_give_their_results(case):
    node = case.model.graph.node[0]
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    for inputs, outputs in case.data_sets:
        given = dict(zip(filter(None, node.input), inputs, strict=True))
        names = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
        given = {key: given[name] for key, name in zip(names, node.input, strict=False) if name}
        x, arrays = given["X"], {key: given[key] for key in "WRBP" if key in given}
        reverse = attributes.get("direction") == b"reverse"
        # The gru cases leave linear_before_reset at 0, and agree all the same where r meets a zero: no state, no bias
        keywords = {"linear_before_reset": 1} if node.op_type == "GRU" and case.name not in NOT_CUDNN else {}
        if case.name in NOT_CUDNN:
            with pytest.raises(ConvertError, match=NOT_CUDNN[case.name]):
                convert.onnx.to_canonical(arrays, **keywords)
            continue
        c = convert.onnx.to_canonical(arrays, **keywords)
        x = x.swapaxes(0, 1) if attributes.get("layout") else x
        x = x[::-1].copy() if reverse else x
        states = np.zeros((c.spec.num_dirs, x.shape[1], c.spec.num_units), x.dtype)
        y, hy, cy = run_ours(c, np.ascontiguousarray(x), states, states, [len(x)] * x.shape[1])
        y = (y[::-1] if reverse else y).reshape(*y.shape[:2], c.spec.num_dirs, -1).swapaxes(1, 2)
        places = [place for place, name in zip((y, hy, cy), node.output, strict=False) if name]
        assert places
        for ours, theirs in zip(places, outputs, strict=True):
            if attributes.get("layout"):
                ours = ours.swapaxes(0, 1) if ours.ndim == 3 else ours.transpose(2, 0, 1, 3)  # noqa: PLW2901
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-7)
