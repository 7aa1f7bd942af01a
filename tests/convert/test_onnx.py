"""ONNX: the model that we write, in onnxruntime."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import RNNSpec, convert
from pycudnnrnn.errors import ConvertError
from pycudnnrnn.testing.strategies import specs
from tests.helpers.examples import examples
from tests.helpers.oracles import equal_models, need, random_call, random_canonical, run_ours, worst
from tests.helpers.pairwise import pairwise

need("onnx", "onnxruntime")
import onnxruntime  # noqa: E402

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


SPECS = [
    RNNSpec(mode, layers, 4, 3, direction=direction)
    for mode, layers, direction in (
        ("lstm", 1, "unidirectional"), ("lstm", 2, "bidirectional"), ("gru", 2, "bidirectional"),
        ("rnn_tanh", 2, "unidirectional"), ("rnn_relu", 1, "bidirectional"),
    )
]  # fmt: skip


@pytest.mark.parametrize(("states", "lengths", "batch_first"), pairwise([False, True], [False, True], [False, True]))
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_written_model_computes_the_same_and_needs_its_input_alone(spec, states, lengths, batch_first):
    """For any T and B; a sequence without steps ends in its initial states."""
    c, more = random_canonical(spec, 1), [f"initial_{s}" for s in ("h", "c")[: 1 + spec.has_cell_state]] * states
    model = convert.onnx.to_model(c, sequence_lens=lengths, states=states, batch_first=batch_first)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of every input that may be left out
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    assert [value.name for value in session.get_inputs()] == ["input"]
    optional = more + ["sequence_lens"] * lengths
    assert [value.name for value in session.get_overridable_initializers()] == optional
    for T, B in ((5, 3), (1, 7)):
        x, hx, cx, _ = random_call(spec, 1, (T, B))
        inputs = {"input": x.swapaxes(0, 1) if batch_first else x}
        full = {"initial_h": hx, "initial_c": cx, "sequence_lens": np.arange(B, dtype="i4") % (T + 1)}
        for names in ((), optional[:1], optional):
            given = {name: full[name] for name in names}
            y, hy, *cy = session.run(None, inputs | given)
            state, cell = (given.get(name, np.zeros_like(hx)) for name in ("initial_h", "initial_c"))
            ours = run_ours(c, x, state, cell, given.get("sequence_lens", [T] * B))
            assert worst(ours, (y.swapaxes(0, 1) if batch_first else y, hy, cy[0] if cy else None)) <= FLOAT32


def test_a_dtype_that_the_operators_do_not_take_is_not_written():
    with pytest.raises(ConvertError, match="not bfloat16"):
        convert.onnx.to_model(random_canonical(RNNSpec("lstm", 1, 4, 3, dtype="bfloat16"), 1))
