"""The cell as TF documents it: `CudnnCompatibleGRUCell` r1.4, the members that are not every base layer's."""

import numpy as np
import pytest

from pycudnnrnn import CudnnCompatibleGRUCell, CudnnCompatibleLSTMCell
from pycudnnrnn.testing import reference
from tests.helpers.tf_pages import B, I, U, normal


def values_of(cell):
    return {variable.name.partition("/")[2]: variable.numpy() for variable in cell.variables}


def test_the_cell_takes_its_arguments():
    cell = CudnnCompatibleGRUCell(U, None, "zeros")
    cell.build((None, I))
    values = values_of(cell)
    assert all(not values[name].any() for name in values if name.endswith("kernel"))
    assert (values["gates/bias"] == 1).all()
    assert not values["candidate/hidden_projection/bias"].any()
    with pytest.raises(TypeError):
        CudnnCompatibleGRUCell(U, reuse="yes")


@pytest.mark.parametrize("member", ["name", "scope_name", "dtype", "state_size", "output_size"])
def test_the_cell_says_what_it_is(member):
    cell = CudnnCompatibleGRUCell(U)
    cell(normal(B, I), normal(B, U))
    expected = {"name": "cudnn_compatible_gru_cell", "scope_name": "cudnn_compatible_gru_cell", "dtype": "float64",
                "state_size": U, "output_size": U}  # fmt: skip
    assert getattr(cell, member) == expected[member]


@pytest.mark.parametrize("member", ["__call__", "call", "apply"])
def test_the_cell_computes_the_documented_equations(member):
    cell, x, h = CudnnCompatibleGRUCell(U, dtype="float64"), normal(B, I), normal(B, U)
    cell.build((None, I))
    for variable in cell.variables:
        variable.assign(normal(*variable.shape))
    v = values_of(cell)
    gates = reference.sigmoid(np.concatenate([x, h], axis=1) @ v["gates/kernel"] + v["gates/bias"])
    r, u = gates[:, :U], gates[:, U:]
    b_input, b_hidden = (v[f"candidate/{which}_projection/bias"] for which in ("input", "hidden"))
    recurrent = h @ v["candidate/hidden_projection/kernel"] + b_hidden
    candidate = np.tanh(x @ v["candidate/input_projection/kernel"] + r * recurrent + b_input)
    expected = (1 - u) * candidate + u * h
    output, state = getattr(cell, member)(x, h)
    assert np.allclose(output, expected, atol=1e-14)
    assert np.array_equal(output, state)
    with pytest.raises(ValueError, match="state"):
        getattr(cell, member)(x, normal(B, U + 1))


def test_the_first_call_may_name_the_scope():
    cell = CudnnCompatibleGRUCell(U)
    cell(normal(B, I), normal(B, U), scope="rnn/gru")
    cell(normal(B, I), normal(B, U), scope="later")
    assert cell.scope_name == "rnn/gru"
    assert cell.variables[0].name == "rnn/gru/gates/kernel"


def test_the_cell_needs_a_known_depth():
    with pytest.raises(ValueError, match=r"Expected inputs.shape\[-1\] to be known"):
        CudnnCompatibleGRUCell(U).build((B, None))
    cell = CudnnCompatibleGRUCell(U)
    cell.build((None, I))
    assert cell.built
    assert len(cell.variables) == 6


def test_zero_state_takes_an_integer_a_float_or_a_unit_array():
    cell = CudnnCompatibleGRUCell(U)
    for batch in (B, float(B), np.array(B), np.array([B])):
        state = cell.zero_state(batch, "float16")
        assert (state.shape, state.dtype, state.any()) == ((B, U), "float16", False)
    c, h = CudnnCompatibleLSTMCell(U, num_proj=1).zero_state(B, "float64")
    assert (c.shape, h.shape) == ((B, U), (B, 1))
    with pytest.raises(ValueError):
        cell.zero_state(1.5, "float32")
