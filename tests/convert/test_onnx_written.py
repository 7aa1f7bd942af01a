"""The model that `onnx.to_model` writes: which of its inputs may be left out, and what it computes then."""

import numpy as np
import pytest

from pycudnnrnn import RNNSpec, convert
from tests.helpers.oracles import equal_models, need, random_canonical, run_ours, worst

need("onnx", "onnxruntime")
import onnxruntime  # noqa: E402

FLOAT32 = 3e-6
I, U = 3, 4
SPECS = [
    RNNSpec(mode, layers, U, I, direction=direction)
    for mode in ("lstm", "gru", "rnn_tanh", "rnn_relu")
    for layers, direction in ((1, "unidirectional"), (2, "bidirectional"))
]


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
def test_a_written_model_needs_its_input_alone(spec, sequence_lens):
    c = random_canonical(spec, 1)
    session = session_of(convert.onnx.to_model(c, sequence_lens=sequence_lens))
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
    session = session_of(convert.onnx.to_model(c, sequence_lens=True))
    x, states = problem(spec, 5, 4)
    for lengths in ([5, 0, 3, 1], [0, 0, 0, 0], [5, 5, 5, 5]):
        assert error(c, session, x, states, lengths) <= FLOAT32
        assert error(c, session, x, {}, lengths) <= FLOAT32
    with pytest.raises(Exception, match="Invalid value/s in sequence_lens"):
        session.run(None, {"input": x, "sequence_lens": np.array([5, 6, 1, 1], np.int32)})


def test_a_written_model_refuses_states_of_another_size():
    c = random_canonical(SPECS[1], 3)
    session = session_of(convert.onnx.to_model(c))
    for wrong in ((4, 3, U), (2, 2, U), (4, 2, 1)):
        with pytest.raises(Exception, match=r"initial_h|Expand"):
            session.run(None, {"input": np.zeros((5, 2, I), "f4"), "initial_h": np.zeros(wrong, "f4")})


@pytest.mark.parametrize("sequence_lens", [False, True])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_written_model_is_read_back_with_and_without_lengths(spec, sequence_lens):
    c = random_canonical(spec, 4)
    equal_models(convert.onnx.from_model(convert.onnx.to_model(c, sequence_lens=sequence_lens)), c)
