"""What cuDNN's documents leave open, nothing relies on: there the stand-in refuses, or leaves undone."""

import contextlib
import types

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.errors import ArgumentError, EngineError
from pycudnnrnn.passes import CallConfig
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec
from pycudnnrnn.testing.goldens import KINDS
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.prepared import Prepared
from tests.stand_in.host_device import host
from tests.stand_in.problem import on_device, run, run_on

RAGGED = [4, 1, 3]


def test_a_prepared_backward_fills_the_callers_dx_behind_each_end_and_no_other(device):
    for lengths in (RAGGED, None):
        problem = make_problem(ops.CudnnGRU(1, 3, 4), 4, 3, lengths, seed=5)
        b = Prepared(types.SimpleNamespace(put=device.from_host), problem=problem, device="cuda:0")
        filled, plain = [], device.zero_at
        device.zero_at = lambda *what, plain=plain, filled=filled: filled.append(what[:2]) or plain(*what)
        b.forward()
        b.backward_data()
        device.zero_at = plain
        assert filled == ([(b.dx.data.ptr, b.dx.nbytes)] if lengths else []), "equal lengths write all of it"
        for i, length in enumerate(lengths or []):
            assert host(b.dx)[:length, i].all()
            assert not host(b.dx)[length:, i].any()


@pytest.mark.parametrize("lengths", [None, [4, 1, 3], [4, 0, 3]], ids=["equal", "ragged", "in parts"])
@pytest.mark.parametrize("known", [False, True], ids=["first call", "known call"])
def test_data_that_begin_on_any_element_are_copied_for_cudnn(device, known, lengths):
    """The stand-in refuses what is not aligned, since nobody knows what cuDNN makes of it."""
    problem = make_problem(ops.CudnnLSTM(2, 3, 4, direction="bidirectional"), 4, 3, lengths, seed=5)
    arrays = on_device(device, problem)
    expected = run(problem, arrays)
    if not known:
        problem.op.set_dropout_state(problem.op.dropout_state("cuda:0"))  # which forgets the calls that it knows
    for name in arrays.keys() - {"params"}:
        behind = device.empty((arrays[name].size + 1,), arrays[name].dtype)[1:].reshape(arrays[name].shape)
        host(behind)[...] = host(arrays[name])
        results = run(problem, arrays | {name: behind})
        assert all(np.array_equal(results[result], expected[result]) for result in expected), name


@pytest.mark.parametrize(("kind", "most"), [("lstm", 128), ("gru", 128), ("rnn_tanh", 256), ("rnn_relu", 256)])
def test_small_h_refuses_the_training_of_more_units_than_it_has_a_backward_for(device, kind, most):
    for units in (most, most + 1):
        op = KINDS[kind](1, units, 2, algo="persist_static_small_h")
        op.prepare(2, 1, device="cuda:0")
        text = f"num_units: {units}, expecting at most {most} in training"
        with contextlib.nullcontext() if units == most else pytest.raises(ArgumentError, match=text):
            run_on(device, make_problem(op, 2, 1, None, seed=0))


@pytest.mark.parametrize("told", ["workspace_nbytes", "reserve_nbytes"])
def test_what_takes_more_memory_than_was_told_is_not_run(shim, told):
    config = CallConfig(RNNSpec("gru", 2, 3, 4, dropout=0.5), Schedule(4, 3), keep_reserve=True)
    batch = shim.native.addressed(0x10, config, drops=True)
    setattr(batch, told, getattr(batch, told) - 1)
    with pytest.raises(EngineError, match="asks for workspace and reserve of"):
        batch.forward(0x10, config.schedule, {"params": 0x1000})
