"""Dropout's random states on the CUDA path: what moves them on, what does not, and who waits for whom."""

import dataclasses

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.testing.strategies import make_problem
from tests.stand_in.host_device import Stream, host
from tests.stand_in.problem import on_device, run


def gru():
    return ops.CudnnGRU(2, 5, 4, dropout=0.5, seed=3, dtype="float64")


@pytest.mark.parametrize("lengths", [None, [4, 0, 2]], ids=["whole", "in parts"])
def test_a_training_call_that_keeps_no_reserve_drops_as_one_that_does(shim, device, lengths):
    op = gru()
    problem = make_problem(op, 4, 3, lengths, seed=1)
    arrays = on_device(device, problem)
    start = op.dropout_state("cuda:0")
    expected = run(problem, arrays)["y"]
    op.set_dropout_state(start)
    output, _ = op(arrays["x"], arrays["hx"], arrays["params"], sequence_lengths=lengths)
    assert np.array_equal(host(output), expected)
    still, _ = op(arrays["x"], arrays["hx"], arrays["params"], is_training=False, sequence_lengths=lengths)
    assert not np.array_equal(host(still), expected)
    name, (*_, reserve_nbytes, reserve), _ = shim.calls[-1]
    assert (name, reserve_nbytes, reserve) == ("cudnnRNNForward", 0, 0)


def test_a_state_that_cannot_be_continued_is_refused(shim):
    op = gru()
    state = op.dropout_state("cuda:0")
    for wrong in (dataclasses.replace(state, data=state.data[:-1]), dataclasses.replace(state, position=3, data=b"")):
        other = gru()
        other.set_dropout_state(wrong)
        with pytest.raises(ArgumentError, match="state"):
            other.prepare(4, 3, is_training=True, device="cuda:0")


READS = {
    "a state": lambda op, plan, arrays: op.dropout_state("cuda:0"),
    "a forward in parts": lambda op, plan, arrays: op(arrays["x"], None, arrays["params"], sequence_lengths=[4, 0, 2]),
    "a capture": lambda op, plan, arrays: plan.capture(arrays["params"]),
}


@pytest.mark.parametrize("read", READS)
def test_states_are_read_after_the_forward_that_moved_them_on(device, monkeypatch, read):
    op, waited = gru(), []
    arrays = on_device(device, make_problem(op, 4, 3, None, seed=1))
    plan = op.prepare(4, 3, is_training=True, device="cuda:0")
    op.forward(arrays["x"], None, arrays["params"])
    before, device.current = device.current, Stream()
    for name in ("copy", "to_host"):
        copy = getattr(device, name)
        monkeypatch.setattr(device, name, lambda array, copy=copy: waited.append([*device.waits]) or copy(array))
    READS[read](op, plan, arrays)
    assert waited[0] == [(device.current, before)]
