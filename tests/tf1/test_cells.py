"""Cells and layers: the same weights give the same numbers, before training and after it."""

import contextlib
import copy
import dataclasses
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import CudnnCompatibleGRUCell, CudnnCompatibleLSTMCell, RNNSpec, ops
from pycudnnrnn.cells import (
    CellStack,
    CudnnCompatibleRNNReluCell,
    CudnnCompatibleRNNTanhCell,
    LSTMStateTuple,
    cell_of,
)
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError
from pycudnnrnn.saveable import CudnnOpaqueParamsSaveable
from pycudnnrnn.testing import PermutedLayoutEngine, use_engine
from pycudnnrnn.testing.strategies import make_problem, specs
from tests.helpers.examples import examples
from tests.helpers.pairwise import pairwise

ALL = [CudnnCompatibleLSTMCell, CudnnCompatibleGRUCell, CudnnCompatibleRNNTanhCell, CudnnCompatibleRNNReluCell]


def saveable_of(params, spec, scope="m"):
    return CudnnOpaqueParamsSaveable.of(params, spec, scope, "saveable")


def train(problem, steps):
    """Take SGD steps, clipped, towards a target that the RNN can follow."""
    target = np.abs(np.tanh(problem.dy))
    for _ in range(steps):
        fwd = problem.forward()
        gradient = fwd.backward(fwd.output - target).params
        problem.params[:] -= 0.01 * gradient / max(1, np.linalg.norm(gradient))


def agree(problem, stack, tolerance):
    lstm = problem.spec.has_cell_state
    states = (problem.hx, problem.cx) if lstm else (problem.hx,)
    fwd = problem.forward(is_training=False)
    outputs, after = stack(problem.x, states, sequence_lengths=problem.lengths)
    for ours, theirs in zip((outputs, *after), (fwd.output, fwd.output_h, fwd.output_c), strict=False):
        assert np.abs(ours - theirs).max(initial=0) <= tolerance
    return outputs


@examples(300)
@given(specs(), st.integers(0, 2**16), st.booleans(), st.sampled_from([None, 4]))
def test_cells_with_restored_weights_are_the_layer(spec, seed, ragged, permuted):
    with use_engine(PermutedLayoutEngine(permuted)) if permuted else contextlib.nullcontext():
        problem = make_problem(ops.from_spec(spec), 4, 3, [4, 0, 2] if ragged else None, seed)
        stack = CellStack(spec, "m")
        stack.load(saveable_of(problem.params, spec).tensors())
        agree(problem, stack, 1e-12)


# TF lists these four configurations, and runs the first with one direction and the second with two.
CONFIGURATIONS = [(1, 3, 4, 5, 6), (2, 8, 4, 8, 16), (2, 3, 4, 5, 6), (1, 2, 2, 4, 1)]


@pytest.mark.parametrize(
    ("direction", "mode", "sizes"),
    pairwise(["unidirectional", "bidirectional"], ["lstm", "gru", "rnn_tanh", "rnn_relu"], CONFIGURATIONS),
)
def test_after_128_training_steps_cells_and_layer_agree_to_1e_12(direction, mode, sizes):
    """TF's testCudnnCompatible*: train on cuDNN, save, restore into cells; and here also back again."""
    L, T, U, I, B = sizes
    spec = RNNSpec(mode, L, U, I, direction=direction, dtype="float64")
    problem = make_problem(ops.from_spec(spec), T, B, None, seed=L * 100 + T)
    problem.params[:] = np.abs(problem.params) * 0.3 if mode == "rnn_relu" else problem.params  # no unit is dead
    before = problem.params.copy()
    train(problem, 128)
    assert np.isfinite(problem.params).all()
    assert np.abs(problem.params - before).max() > 1e-3
    stack = CellStack(spec)
    stack.load(saveable_of(problem.params, spec, None).tensors())
    outputs = agree(problem, stack, 1e-12)

    stack.cells[0].variables[0].assign_add(0.125)  # a cell that was trained further
    back = np.zeros_like(problem.params)
    saveable_of(back, spec, None).restore(stack.tensors())
    moved = agree(dataclasses.replace(problem, params=back), stack, 1e-12)
    assert not np.allclose(moved, outputs)


@pytest.mark.parametrize(
    ("direction", "kind", "lengths", "time_major"),
    pairwise(
        ["unidirectional", "bidirectional"], [("lstm", None), ("lstm", 2), ("gru", None), ("rnn_tanh", None)],
        [None, (5, 1, 0, 3)], [False, True],
    ),
)  # fmt: skip
def test_gradients_are_those_of_the_cells(direction, kind, lengths, time_major):
    """TF's test_training with autograd over the cells: it had one layer, one direction, and no length of 0."""
    mode, num_proj = kind
    spec = RNNSpec(mode, 2, 3, 4, direction=direction, dtype="float64", num_proj=num_proj)
    problem = make_problem(ops.from_spec(spec), 5, 4, lengths, 7)
    x, dy = (a if time_major else np.ascontiguousarray(a.swapaxes(0, 1)) for a in (problem.x, problem.dy))
    states, d_states = (problem.hx, problem.cx), (problem.dhy, problem.dcy)
    if mode != "lstm":
        states, d_states = states[:1], d_states[:1]
    options = {"sequence_lengths": lengths, "time_major": time_major}
    grads = problem.op.forward(x, *states, problem.params, **options).backward(dy, *d_states)

    stack = CellStack(spec)
    stack.load(saveable_of(problem.params, spec, None).tensors())
    for cell in stack.cells:
        for variable in cell.variables:
            variable.value = torch.tensor(variable.value, requires_grad=True)
    given_arrays = [torch.tensor(a, requires_grad=True) for a in (x, *states)]
    outputs, after = stack(given_arrays[0], tuple(given_arrays[1:]), **options)
    results, upstream = (outputs, *after), map(torch.from_numpy, (dy, *d_states))
    sum((a * b).sum() for a, b in zip(results, upstream, strict=True)).backward()

    for ours, theirs in zip((grads.input, grads.input_h, grads.input_c), given_arrays, strict=False):
        assert np.abs(ours - theirs.grad.numpy()).max() < 1e-12
    of_params = saveable_of(grads.params, spec, None).tensors()
    for name, variable in stack._named().items():
        # Each of the two biases that TF sums has the whole gradient, so their sum has it twice.
        twice = 2 if name.endswith(("cell/bias", "gates/bias")) else 1
        assert np.abs(of_params[name] / twice - variable.value.grad.numpy()).max() < 1e-12, name


def test_a_stack_runs_batch_major_and_on_torch():
    spec = RNNSpec("lstm", 2, 3, 5, direction="bidirectional", dtype="float64", num_proj=2, cell_clip=0.3)
    problem = make_problem(ops.from_spec(spec), 4, 3, [4, 0, 2], 1)
    stack = CellStack(spec)
    stack.load(saveable_of(problem.params, spec, None).tensors())
    states, options = (problem.hx, problem.cx), {"sequence_lengths": problem.lengths}
    expected, after = stack(problem.x, states, **options)
    batch_major, _ = stack(problem.x.swapaxes(0, 1), states, time_major=False, **options)
    assert np.array_equal(batch_major.swapaxes(0, 1), expected)
    in_torch, h_and_c = stack(torch.from_numpy(problem.x), tuple(map(torch.from_numpy, states)), **options)
    assert isinstance(in_torch, torch.Tensor)
    assert np.allclose(in_torch.numpy(), expected, atol=1e-14)
    assert np.allclose(h_and_c[1].numpy(), after[1], atol=1e-14)
    assert stack(problem.x[:0], states)[0].shape == (0, 3, 4)


class Namespace:
    """Arrays that know only array API names, as a strict library's do."""

    def __init__(self):
        for name in (
            "exp",
            "tanh",
            "where",
            "ones_like",
            "zeros_like",
            "full_like",
            "maximum",
            "broadcast_to",
            "reshape",
        ):
            setattr(self, name, self.wrap(getattr(np, name)))
        self.concat = self.wrap(lambda arrays, axis: np.concatenate(arrays, axis=axis))
        self.stack = self.wrap(np.stack)
        self.permute_dims = self.wrap(np.transpose)
        self.zeros = self.wrap(np.zeros)
        self.from_dlpack = Strict

    @staticmethod
    def wrap(function):
        def bare(a):
            return [bare(item) for item in a] if isinstance(a, (list, tuple)) else getattr(a, "a", a)

        return lambda *args, **kwargs: Strict(function(*map(bare, args), **kwargs))


class Strict:
    def __init__(self, a):
        self.a, self.shape, self.ndim, self.dtype = a, a.shape, a.ndim, a.dtype

    def __array_namespace__(self):
        return Namespace()

    def __getitem__(self, key):
        return Strict(self.a[key])

    def __neg__(self):
        return Strict(-self.a)


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "matmul", "lt", "gt"):

    def _operate(self, other, name=f"__{_name}__"):
        return Strict(getattr(self.a, name)(getattr(other, "a", other)))

    setattr(Strict, f"__{_name}__", _operate)


@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
@pytest.mark.parametrize("input_mode", ["linear_input", "skip_input"])
def test_cells_need_nothing_but_the_array_api(mode, input_mode):
    clip = {"cell_clip": 0.2} if mode == "lstm" else {}
    spec = RNNSpec(mode, 2, 4, 4, input_mode, "bidirectional", "float64", **clip)
    problem = make_problem(ops.from_spec(spec), 3, 2, [3, 1], 1)
    stack = CellStack(spec)
    stack.load(saveable_of(problem.params, spec, None).tensors())
    states = (problem.hx, problem.cx) if mode == "lstm" else (problem.hx,)
    expected, _ = stack(problem.x, states, sequence_lengths=problem.lengths)
    found, _ = stack(Strict(problem.x), tuple(map(Strict, states)), sequence_lengths=problem.lengths)
    assert np.array_equal(found.a, expected)


# --- one cell ---------------------------------------------------------------------------------------------------------


def test_the_lstm_cells_state_is_c_then_h():
    cell = CudnnCompatibleLSTMCell(3, seed=1)
    x, c, h = (np.random.default_rng(i).normal(size=(2, n)) for i, n in enumerate((5, 3, 3)))
    output, state = cell(x, (c, h))
    assert isinstance(state, LSTMStateTuple)
    assert output is state.h
    kernel, bias = (v.numpy() for v in cell.variables)
    i, g, f, o = np.split(np.concatenate([x, h], axis=1) @ kernel + bias, 4, axis=1)
    expected = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
    assert np.allclose(state.c, expected, atol=1e-14)
    assert np.allclose(output, np.tanh(expected) / (1 + np.exp(-o)), atol=1e-14)
    assert cell.state_size == (3, 3)
    for bad in (c, (c,), (c, h, h)):
        with pytest.raises(ValueError, match=r"Expecting state to be a tuple with length 2\."):
            cell(x, bad)


@pytest.mark.parametrize("kind", ALL)
def test_a_fresh_cell_starts_with_tfs_values(kind):
    cell = kind(4, seed=3)
    cell.build((None, 6))
    values = {v.name.partition("/")[2]: v.numpy() for v in cell.variables}
    expected_ones = {"gates/bias"} if kind is CudnnCompatibleGRUCell else set()
    for name, value in values.items():
        if name.endswith("bias"):
            assert (value == (name in expected_ones)).all(), name
        else:
            bound = np.sqrt(6 / sum(value.shape))
            assert 0.5 * bound < np.abs(value).max() <= bound
    twin = kind(4, seed=3)
    twin.build((None, 6))
    assert all(np.array_equal(a, b) for a, b in zip(cell.get_weights(), twin.get_weights(), strict=True))
    names = {
        CudnnCompatibleLSTMCell: "cudnn_compatible_lstm_cell",
        CudnnCompatibleGRUCell: "cudnn_compatible_gru_cell",
    }
    assert cell.name == names.get(kind, "basic_rnn_cell")


def test_each_matrix_of_a_cell_has_draws_of_its_own():
    cell = CudnnCompatibleGRUCell(4, seed=3)
    cell.build((None, 4))
    into, of = (cell.variables_by_name()[f"candidate/{side}_projection/kernel"] for side in ("input", "hidden"))
    assert into.shape == of.shape
    assert not np.array_equal(into, of)


@pytest.mark.parametrize("kind", ALL)
def test_cells_pickle_and_copy_with_their_weights(kind):
    cell = kind(3, seed=2)
    x, state = np.ones((2, 5)), cell.zero_state(2, "float64")
    expected = cell(x, state, scope="around")[0]
    twins = pickle.loads(pickle.dumps(cell)), copy.deepcopy(cell)
    assert all([v.name for v in twin.variables] == [v.name for v in cell.variables] for twin in twins)
    for twin in (*twins, kind.from_config(cell.get_config())):
        assert np.array_equal(twin(x, state)[0], expected)
    assert cell.compute_output_shape((None, 5)) == (None, 3)


OPTIONS = {"reuse": True, "kernel_initializer": "zeros", "name": "own", "dtype": "float16", "seed": 3,
           "input_mode": "skip_input", "bias_mode": "single_recurrent"}  # fmt: skip


@pytest.mark.parametrize("kind", ALL)
def test_a_config_has_every_argument(kind):
    given_options = OPTIONS | ({"num_proj": 2, "cell_clip": (-0.5, 1.0)} if kind is CudnnCompatibleLSTMCell else {})
    cell = kind(4, **given_options)
    assert cell.get_config() == {"num_units": 4} | given_options
    twin = kind.from_config(cell.get_config())
    for each in (cell, twin):
        each.build((None, 4))
    assert [(v.name, v.shape) for v in twin.variables] == [(v.name, v.shape) for v in cell.variables]
    x, state = np.ones((2, 4), "f2"), cell.zero_state(2, "float16")
    assert np.array_equal(twin(x, state)[0], cell(x, state)[0])


def test_a_cell_takes_the_dtype_of_its_first_input_and_keeps_its_width():
    cell = CudnnCompatibleRNNTanhCell(3)
    assert cell.dtype is None
    cell(np.ones((2, 5), "float16"), np.zeros((2, 3), "float16"))
    assert cell.dtype == "float16"
    for bad in (np.ones((2, 6), "float16"), np.ones(5, "float16")):
        with pytest.raises(ArgumentError, match="inputs shape"):
            cell(bad, np.zeros((2, 3), "float16"))
    for bad in (None, (np.zeros((2, 3)),)):
        with pytest.raises(ArgumentTypeError, match="state"):
            cell(np.ones((2, 5), "float16"), bad)
    with pytest.raises(ArgumentTypeError, match="array API"):
        CudnnCompatibleRNNTanhCell(3, dtype="float32")(memoryview(np.ones((2, 5))), None)


@pytest.mark.parametrize("library", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bias", [-1000.0, -80.0, -20.0, -15.0, 0.0, 15.0, 1000.0])
def test_a_gate_that_is_nearly_closed_lets_its_share_through(bias, dtype, library):
    """0.002 of 1e6 at a bias of -20, where 1 + tanh(-10) is 0 in float32. No gate overflows."""
    cell = CudnnCompatibleLSTMCell(1, dtype=dtype, kernel_initializer="zeros")
    cell.build((None, 1))
    cell.variables_by_name()["bias"].assign([0, 0, bias, 0])  # i, c, f, o
    x, c, h = (library(np.full((1, 1), value, dtype)) for value in (0, 1e6, 0))
    _, state = cell(x, (c, h))
    share = 1 / (1 + np.exp(np.longdouble(-bias)))
    assert np.allclose(np.asarray(state.c), float(1e6 * share), rtol=1e-6 if dtype == "float32" else 1e-14, atol=0)


def test_a_gates_slope_is_steepest_in_its_middle():
    """A quarter at 0, where an absolute value has no slope that an autograd could know."""
    cell = CudnnCompatibleLSTMCell(1, dtype="float64", kernel_initializer="zeros")
    cell.build((None, 1))
    bias = cell.variables_by_name()["bias"]
    bias.value = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    one, zero = torch.ones((1, 1), dtype=torch.float64), torch.zeros((1, 1), dtype=torch.float64)
    _, state = cell(zero, (one, zero))
    state.c.sum().backward()
    assert bias.value.grad.tolist() == [0, 0.5, 0.25, 0]


LIBRARIES = {"numpy": np.asarray, "torch": torch.from_numpy, "array API": Strict}


@pytest.mark.parametrize(("library", "other", "kind"), pairwise(LIBRARIES, ["float64", "float16", "int64"], ALL))
def test_a_cell_refuses_inputs_and_states_of_another_dtype_and_names_both(kind, other, library):
    cell, make = kind(3, dtype="float32"), LIBRARIES[library]
    x, state = np.ones((2, 5), "f4"), np.zeros((2, 3), "f4")
    odd = make(state.astype(other))
    states = {"state": odd}
    if kind is CudnnCompatibleLSTMCell:
        states = {"state c": (odd, make(state)), "state h": (make(state), odd)}
        state = (state, state)
    cell(x, state)
    with pytest.raises(ArgumentError, match=rf"Invalid inputs dtype: .*{other}, expecting float32, the cell's"):
        cell(make(x.astype(other)), state)
    for name, states_given in states.items():
        with pytest.raises(ArgumentError, match=rf"Invalid {name} dtype: .*{other}, expecting float32, the cell's"):
            cell(make(x), states_given)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("steps", [0, 2])
def test_a_stack_refuses_inputs_and_states_of_another_dtype_and_names_both(library, steps):
    make = LIBRARIES[library]
    stack = CellStack(RNNSpec("lstm", 2, 3, 5, dtype="float32"))
    x, h, c = np.ones((steps, 2, 5), "f4"), np.zeros((2, 2, 3), "f4"), np.zeros((2, 2, 3), "f4")
    with pytest.raises(ArgumentError, match=r"Invalid inputs dtype: .*float64, expecting float32, the cell's"):
        stack(make(x.astype("f8")))
    for i in range(2):
        states = [make(h), make(c)]
        states[i] = make(h.astype("f8"))
        with pytest.raises(ArgumentError, match=rf"Invalid initial_state\[{i}\] dtype: .*float64, expecting float32"):
            stack(make(x), tuple(states))
        states[i] = h.tolist()
        with pytest.raises(ArgumentTypeError, match=rf"Invalid initial_state\[{i}\]: <class 'list'>"):
            stack(make(x), tuple(states))


@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_what_padding_holds_does_not_leak_out_of_a_stack(mode):
    stack = CellStack(RNNSpec(mode, 2, 3, 4, direction="bidirectional"))
    x = np.random.default_rng(1).normal(size=(3, 2, 4)).astype("f4")
    outputs, states = stack(x, sequence_lengths=[3, 1])
    x[1:, 1] = np.nan
    found, after = stack(x, sequence_lengths=[3, 1])
    assert not outputs[1:, 1].any()
    assert all(map(np.array_equal, (found, *after), (outputs, *states)))


@pytest.mark.parametrize("i", [0, 1])
def test_an_lstms_state_of_another_width_is_named(i):
    cell = CudnnCompatibleLSTMCell(4, num_proj=2)
    state = [np.zeros((2, 4), "f4"), np.zeros((2, 2), "f4")]
    state[i] = np.zeros((2, 3), "f4")
    with pytest.raises(ArgumentError, match=f"Invalid state {'ch'[i]} shape"):
        cell(np.zeros((2, 5), "f4"), state)
    assert not cell.built


def test_a_cell_of_a_higher_layer_does_not_skip():
    spec = RNNSpec("rnn_relu", 2, 3, 3, "skip_input")
    shapes = []
    for layer in range(2):
        cell = cell_of(spec, layer)
        cell.build((None, 3))
        shapes.append(cell.variables[0].shape)
    assert shapes == [(3, 3), (6, 3)]
    with pytest.raises(ArgumentError, match="Invalid layer: 2"):
        cell_of(spec, 2)
