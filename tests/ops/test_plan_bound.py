"""A plan that gets the same arrays again checks nothing again, and reads and writes what is in them then."""

import dataclasses

import numpy as np
import pytest
import torch

from pycudnnrnn import ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.numpy_engine.kernels_in_use import cell_of
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.passes import PASSES
from pycudnnrnn.testing.strategies import make_problem
from tests.helpers.recorded import RecordingEngine
from tests.helpers.results import assert_same

LENGTHS = (3, 1)


class Buffers:
    """Arrays for all passes of a plan, by name; `write` puts a problem's values into them."""

    def __init__(self, plan, problem):
        made = {"params": problem.params, "x": problem.x, "hx": problem.hx, "cx": problem.cx, "y": problem.dy}
        made |= {"hy": problem.hx, "cy": problem.cx, "dy": problem.dy, "dhy": problem.dhy, "dcy": problem.dcy}
        made |= {"dx": problem.x, "dhx": problem.hx, "dcx": problem.cx, "d_params": problem.params}
        absent = () if problem.spec.has_cell_state else ("cx", "cy", "dcx", "dcy")
        self.arrays = {name: None if name in absent else array.copy() for name, array in made.items()}
        self.arrays["reserve"] = np.empty(plan.reserve_nbytes, np.uint8)
        self.plan = plan

    def write(self, problem):
        for name in ("params", "x", "hx", "cx", "dy", "dhy", "dcy"):
            if self.arrays[name] is not None:
                self.arrays[name][...] = getattr(problem, name)

    def results(self, **others):
        arrays = self.arrays | others
        for which, run in zip(
            PASSES, (self.plan.forward, self.plan.backward_data, self.plan.backward_weights), strict=True
        ):
            run(*map(arrays.get, which.names))
        names = {"y": "y", "hy": "hy", "cy": "cy", "dx": "dx", "dhx": "dhx", "dcx": "dcx", "dparams": "d_params"}
        return {name: arrays[other].copy() for name, other in names.items() if arrays[other] is not None}


def problems(dtype="float64", name="CudnnLSTM"):
    op = getattr(ops, name)(2, 3, 4, dtype=dtype)
    return [make_problem(op, 3, 2, LENGTHS, seed=seed) for seed in (1, 2)]


@pytest.mark.parametrize("name", ["CudnnLSTM", "CudnnGRU"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_the_same_arrays_are_read_and_written_again_as_they_are_then(name, dtype):
    one, two = problems(dtype, name)
    buffers = Buffers(one.op.prepare(3, 2, is_training=True, sequence_lengths=LENGTHS), one)
    for problem in (one, two, one):
        buffers.write(problem)
        assert_same(buffers.results(), problem.results())


def test_the_same_arrays_are_bound_once_and_others_are_checked():
    one, two = problems()
    with use_engine(engine := RecordingEngine()):
        buffers = Buffers(one.op.prepare(3, 2, is_training=True, sequence_lengths=LENGTHS), one)
    for _ in range(3):
        buffers.results()
    assert engine.binds == 3
    wrong = buffers.arrays["x"].astype("float32")
    with pytest.raises(ArgumentError, match="Invalid x dtype: float32, expecting float64"):
        buffers.results(x=wrong)
    with pytest.raises(ArgumentError, match="Invalid hy: memory that hx has, too"):
        buffers.plan.forward(*map((buffers.arrays | {"hy": buffers.arrays["hx"]}).get, PASSES[0].names))
    assert_same(buffers.results(), one.results())
    assert_same(buffers.results(x=two.x), dataclasses.replace(one, x=two.x).results())


def test_a_tensor_is_read_where_its_memory_is_now():
    one, two = problems()
    plan = one.op.prepare(3, 2, sequence_lengths=LENGTHS)
    arrays = [torch.from_numpy(array.copy()) for array in (one.params, one.x, one.hx, one.cx, one.dy, one.hx, one.cx)]
    params, x, hx, cx, y, *_ = arrays
    for problem in (one, two):
        for tensor, array in ((params, problem.params), (x, problem.x), (hx, problem.hx), (cx, problem.cx)):
            tensor.data = torch.from_numpy(array.copy())
        plan.forward(*arrays)
        np.testing.assert_array_equal(y.numpy(), problem.results()["y"])


def test_params_that_are_held_between_two_calls_are_those_that_run():
    one, _ = problems("float16")
    plan = one.op.prepare(3, 2, is_training=True, sequence_lengths=LENGTHS)
    buffers = Buffers(plan, one)
    expected = buffers.results()
    plan.hold(buffers.arrays["params"])
    buffers.arrays["params"][:] = 0
    assert_same(buffers.results(), expected)
    plan.hold(None)
    assert not np.array_equal(buffers.results()["y"], expected["y"])


def test_a_hold_that_fails_holds_nothing(monkeypatch):
    op = ops.CudnnLSTM(1, 8, 3)
    params, other = op.init_params(seed=1), op.init_params(seed=2)
    x, y, expected = np.ones((4, 2, 3), "f4"), np.empty((4, 2, 8), "f4"), np.empty((4, 2, 8), "f4")
    op.prepare(4, 2).forward(other, x, None, None, expected, None, None)
    plan = op.prepare(4, 2)
    plan.hold(params)
    with monkeypatch.context() as patch:
        patch.setattr(type(cell_of(op.spec, 8)), "held_weights", lambda *_: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            plan.hold(other)
    plan.forward(other, x, None, None, y, None, None)
    assert np.array_equal(y, expected)


def test_infinite_biases_are_data_for_a_plan_that_holds_them():
    op = ops.CudnnLSTM(1, 8, 3)
    params, (first, *_) = op.init_params(seed=1), op.layout().biases
    params[first.slice], params[op.layout().region(gate="input", kind="bias", side="recurrent").slice] = np.inf, -np.inf
    with np.errstate(all="raise"):
        op.prepare(4, 2).hold(params)


@pytest.mark.parametrize("name", ["reserve", "dx"])
def test_memory_that_products_cannot_be_written_to_is_refused(name):
    op = ops.CudnnLSTM(1, 8, 4)
    plan, params = op.prepare(3, 2, is_training=True), op.init_params(seed=1)
    reserve = np.zeros(plan.reserve_nbytes + 1, np.uint8)[name == "reserve" :][: plan.reserve_nbytes]
    x, y, dx = np.ones((3, 2, 4), "f4"), np.empty((3, 2, 8), "f4"), np.empty(3 * 2 * 4 * 4 + 1, np.uint8)
    dx = dx[1:].view("f4").reshape(3, 2, 4)
    d_state = np.zeros((1, 2, 8), "f4")

    def step():
        plan.forward(params, x, None, None, y, None, None, reserve)
        plan.backward_data(params, y, y.copy(), None, d_state, None, None, d_state.copy(), None, dx, reserve)

    with pytest.raises(ArgumentError, match=f"Invalid {name}: .*memory aligned to 4 bytes"):
        step()
