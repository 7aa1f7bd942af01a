"""Cells and layers: the same weights give the same numbers, before training and after it."""

import contextlib
import copy
import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import CudnnCompatibleGRUCell, CudnnCompatibleLSTMCell, RNNSpec, ops
from pycudnnrnn._tf1.tensors import cell_scope
from pycudnnrnn.cells import CudnnCompatibleRNNReluCell, CudnnCompatibleRNNTanhCell, LSTMStateTuple
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.saveable import CudnnOpaqueParamsSaveable
from pycudnnrnn.testing import use_engine
from pycudnnrnn.testing.strategies import make_problem, specs
from tests.helpers.cells import run_cells
from tests.helpers.examples import examples
from tests.helpers.layouts import ShuffledEngine
from tests.helpers.pairwise import pairwise

CLASSES = {
    "lstm": CudnnCompatibleLSTMCell, "gru": CudnnCompatibleGRUCell, "rnn_tanh": CudnnCompatibleRNNTanhCell,
    "rnn_relu": CudnnCompatibleRNNReluCell,
}  # fmt: skip
ALL = list(CLASSES.values())


def saveable_of(params, spec, scope=None):
    return CudnnOpaqueParamsSaveable.of(params, spec, scope, "saveable")


def steps_of(problem):
    """Return a cell for each layer and direction, with the tensors of a saveable, as functions of a step."""
    spec, steps = problem.spec, []
    tensors = saveable_of(problem.params, spec, "m").tensors()
    only = {"num_proj": spec.num_proj, "cell_clip": spec.cell_clip} if spec.mode == "lstm" else {}
    for p in range(spec.num_pseudo_layers):
        layer = p // spec.num_dirs
        mode = "linear_input" if layer else spec.input_mode
        kind = CLASSES[spec.mode]
        cell = kind(spec.num_units, dtype=spec.dtype, input_mode=mode, bias_mode=spec.bias_mode, **only)
        cell.build((None, spec.layer_input_size(layer)))
        for name, variable in cell.variables_by_name().items():
            variable.assign(tensors[f"m/{cell_scope(spec, p)}{name}"])
        steps.append(functools.partial(step_of, cell))
    return steps


def step_of(cell, x, h, *c):
    output, state = cell(x, (*c, h) if c else h)
    return (output, state.c) if c else (output,)


def agree(problem, xp=np):
    make = torch.from_numpy if xp is torch else xp.asarray
    states = (problem.hx, problem.cx) if problem.spec.has_cell_state else (problem.hx,)
    fwd, dirs = problem.forward(is_training=False), problem.spec.num_dirs
    lengths = problem.full_lengths
    results = run_cells(steps_of(problem), make(problem.x), [*map(make, states)], lengths, num_dirs=dirs, xp=xp)
    for ours, oracle in zip(results, (fwd.output, fwd.output_h, fwd.output_c), strict=True):
        assert isinstance(ours, type(None if oracle is None else make(oracle)))
        assert oracle is None or np.abs(np.asarray(ours) - oracle).max() <= 1e-12


@examples(400)
@given(
    specs(), st.integers(0, 2**16), st.sampled_from([None, [4, 0, 2]]), st.integers(1, 4), st.sampled_from([None, 4]),
    st.sampled_from([np, torch]),
)  # fmt: skip
def test_cells_with_restored_weights_are_the_layer(spec, seed, lengths, T, permuted, xp):
    with use_engine(ShuffledEngine(permuted)) if permuted else contextlib.nullcontext():
        problem = make_problem(ops.from_spec(spec), T, 3, lengths if T == 4 else None, seed)
        agree(problem, xp)


@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_cells_take_arrays_of_a_library_that_knows_the_array_api_alone(mode):
    """JAX's namespace, whose arrays NumPy's functions would turn into NumPy's."""
    spec = RNNSpec(mode, 2, 3, 4, "linear_input", "bidirectional", "float64", cell_clip=0.3 if mode == "lstm" else None)
    problem = make_problem(ops.from_spec(spec), 3, 2, [3, 1], 7)
    with jax.enable_x64(True):
        agree(problem, jnp)


@pytest.mark.parametrize(("kind", "make"), pairwise(ALL, [np.asarray, jnp.asarray]))
def test_a_cell_takes_its_own_state_in_bfloat16(kind, make):
    """NumPy's product of two such matrices is float32, and its DLPack does not have the type."""
    cell = kind(3, dtype="bfloat16")
    state = jax.tree.map(make, cell.zero_state(2, "bfloat16"))
    assert str(cell(*cell(jax.tree.leaves(state)[0], state))[0].dtype) == "bfloat16"


# --- one cell ---------------------------------------------------------------------------------------------------------


def test_the_lstm_cells_state_is_c_then_h():
    cell, x, c, h = CudnnCompatibleLSTMCell(3, num_proj=2), np.ones((2, 5)), np.ones((2, 3)), np.ones((2, 2))
    output, state = cell(x, (c, h))
    assert isinstance(state, LSTMStateTuple)
    assert output is state.h
    assert state.c.shape == (2, 3)
    assert cell.state_size == (3, 2)
    for bad in (c, (c,), (c, h, h)):
        with pytest.raises(ValueError, match=r"Expecting state to be a tuple with length 2\."):
            cell(x, bad)


NAMES = ["cudnn_compatible_lstm_cell", "cudnn_compatible_gru_cell", "basic_rnn_cell", "basic_rnn_cell"]


@pytest.mark.parametrize(("kind", "name"), list(zip(ALL, NAMES, strict=True)))
def test_a_fresh_cell_starts_with_tfs_values_and_each_matrix_with_draws_of_its_own(kind, name):
    cell, twin, other, another = cells = [kind(4, seed=seed) for seed in (3, 3, None, None)]
    for one in cells:
        one.build((None, 4))
    assert cell.name == name
    values = {name: variable.numpy() for name, variable in cell.variables_by_name().items()}
    for of, value in values.items():
        if of.endswith("bias"):
            assert (value == (of == "gates/bias")).all(), of
        else:
            bound = np.sqrt(6 / sum(value.shape))
            assert 0.5 * bound < np.abs(value).max() <= bound
    assert len({value.tobytes() for value in values.values() if value.any() and value.shape == (4, 4)}) in {0, 2}
    assert all(map(np.array_equal, cell.get_weights(), twin.get_weights()))
    assert not np.array_equal(other.get_weights()[0], another.get_weights()[0])


OPTIONS = {"reuse": True, "kernel_initializer": "random_normal", "name": "own", "dtype": "float16", "seed": 3,
           "input_mode": "skip_input", "bias_mode": "single_recurrent"}  # fmt: skip


@pytest.mark.parametrize("kind", ALL)
def test_a_cell_comes_back_from_its_pickle_its_copy_and_its_config(kind):
    options = OPTIONS | ({"num_proj": 2, "cell_clip": (-0.5, 1.0)} if kind is CudnnCompatibleLSTMCell else {})
    cell = kind(4, **options)
    assert cell.get_config() == {"num_units": 4} | options
    x, state = np.ones((2, 4), "f2"), cell.zero_state(2, "float16")
    expected, _ = cell(x, state, scope="around")
    twins = pickle.loads(pickle.dumps(cell)), copy.deepcopy(cell)
    assert all([v.name for v in twin.variables] == [v.name for v in cell.variables] for twin in twins)
    for twin in (*twins, kind.from_config(cell.get_config())):
        assert np.array_equal(twin(x, state)[0], expected)
    assert cell.compute_output_shape((None, 4)) == (None, expected.shape[1])


@pytest.mark.parametrize("bias", [-1000.0, -80.0, -20.0, 0.0, 1000.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-14)])
def test_a_gate_that_is_nearly_closed_lets_its_share_through(bias, dtype, tolerance):
    """0.002 of 1e6 at a bias of -20, where 1 + tanh(-10) is 0 in float32. No gate overflows."""
    cell = CudnnCompatibleLSTMCell(1, dtype=dtype, kernel_initializer="zeros")
    cell.build((None, 1))
    cell.variables_by_name()["bias"].assign([0, 0, bias, 0])  # i, c, f, o
    x, c, h = (np.full((1, 1), value, dtype) for value in (0, 1e6, 0))
    expected = float(1e6 / (1 + np.exp(np.longdouble(-bias))))
    for make in (np.asarray, torch.from_numpy):
        _, state = cell(make(x), (make(c), make(h)))
        assert np.allclose(np.asarray(state.c), expected, rtol=tolerance, atol=0)


def test_a_cell_takes_the_dtype_and_width_of_its_first_input_and_names_what_does_not_fit():
    x, h, tanh = np.ones((2, 5), "f2"), np.ones((2, 3), "f2"), CudnnCompatibleRNNTanhCell(3)
    tanh(x, h)
    assert tanh.dtype == "float16"
    lstm = CudnnCompatibleLSTMCell(4, num_proj=3)
    for text, call in {
        "inputs shape": lambda: tanh(np.ones((2, 6), "f2"), h),
        "state": lambda: tanh(x, (h,)),
        "inputs: .*array API": lambda: tanh(memoryview(b""), h),
        "state c shape": lambda: lstm(x, (h, h)),
        r"state shape: \(1, 3\)": lambda: tanh(x, h[:1]),
        r"state h shape: \(1, 3\)": lambda: lstm(x, (np.ones((2, 4), "f2"), h[:1])),
        "inputs dtype: float64, expecting float16, the cell's": lambda: tanh(x.astype("f8"), h),
        "state dtype: torch.float32": lambda: tanh(x, torch.ones(2, 3)),
        "state h dtype: int64": lambda: lstm(x, (np.ones((2, 4), "f2"), h.astype(int))),
    }.items():
        with pytest.raises((ArgumentError, ArgumentTypeError), match=f"Invalid {text}"):
            call()
