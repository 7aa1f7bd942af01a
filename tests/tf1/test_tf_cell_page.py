"""The cell as TF documents it: `CudnnCompatibleGRUCell` r1.4, the members that are not every base layer's."""

import numpy as np
import pytest

from pycudnnrnn import CudnnCompatibleGRUCell, CudnnCompatibleLSTMCell
from tests.helpers.tf_pages import B, I, U, normal


def test_the_cell_takes_its_arguments_and_says_what_it_is():
    cell = CudnnCompatibleGRUCell(U, None, "zeros")
    cell(normal(B, I), normal(B, U))
    expected = {"name": "cudnn_compatible_gru_cell", "scope_name": "cudnn_compatible_gru_cell", "dtype": "float64",
                "state_size": U, "output_size": U, "built": True}  # fmt: skip
    assert {member: getattr(cell, member) for member in expected} == expected
    values = {name: variable.numpy() for name, variable in cell.variables_by_name().items()}
    assert len(values) == 6
    assert [name for name in values if values[name].any()] == ["gates/bias"]
    with pytest.raises(TypeError):
        CudnnCompatibleGRUCell(U, reuse="yes")
    with pytest.raises(ValueError, match=r"Expected inputs.shape\[-1\] to be known"):
        CudnnCompatibleGRUCell(U).build((B, None))


def test_zero_state_takes_an_integer_a_float_or_a_unit_array():
    cell = CudnnCompatibleGRUCell(U)
    for batch in (B, float(B), np.array(B), np.array([B])):
        state = cell.zero_state(batch, "float16")
        assert (state.shape, state.dtype, state.any()) == ((B, U), "float16", False)
    c, h = CudnnCompatibleLSTMCell(U, num_proj=1).zero_state(B, "float64")
    assert (c.shape, h.shape) == ((B, U), (B, 1))
    with pytest.raises(ValueError):
        cell.zero_state(1.5, "float32")
