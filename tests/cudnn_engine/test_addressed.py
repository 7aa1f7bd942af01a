"""Batches on raw addresses, which torch's and JAX's calls share: what they refuse, and what is kept for them."""

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.engines.cudnn.native_calls import NativeCalls
from pycudnnrnn.errors import ArgumentError, EngineError
from pycudnnrnn.passes import BACKWARD_DATA, FORWARD, CallConfig
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import Algorithm

STREAM = 0x7000
SCHEDULE = Schedule(4, 3)


@pytest.mark.parametrize("off", ["params", "d_params"])
def test_params_that_cudnn_cannot_use_where_they_are_never_reach_it(play, off):
    played, engine, _ = play()
    batch = engine.addressed(STREAM, CallConfig(ops.CudnnGRU(1, 3, 4).spec, SCHEDULE, True), drops=False)
    at = dict.fromkeys((*BACKWARD_DATA.names, *FORWARD.names, "d_params", "workspace"), 0x1000) | {off: 0x1008}
    played.calls.clear()
    with pytest.raises(ArgumentError, match=f"Invalid {off}: 0x1008.*aligned"):
        batch.backward(STREAM, SCHEDULE, at)
    if off == "params":
        with pytest.raises(ArgumentError, match=r"Invalid params: 0x1008.*aligned"):
            batch.forward(STREAM, SCHEDULE, at)
    assert not played.calls


@pytest.mark.parametrize("grown", [0, 1], ids=["workspace", "reserve"])
def test_what_cudnn_wants_with_other_states_is_never_more_than_the_caller_was_told(play, monkeypatch, grown):
    played, engine, device = play()
    batch = engine.addressed(STREAM, CallConfig(ops.CudnnGRU(2, 3, 4, dropout=0.5).spec, SCHEDULE, True), drops=True)
    memory = device.zeros((1 << 16,), np.dtype(np.uint8))
    at = device.address(memory)
    told = [batch.workspace_nbytes, batch.reserve_nbytes]
    asked = [size + (place == grown) for place, size in enumerate(told)]
    monkeypatch.setattr(NativeCalls, "_ask_sizes", lambda *_: asked)
    with pytest.raises(EngineError, match=f"{asked[0]} and {asked[1]} bytes here, of {told[0]} and {told[1]} bytes"):
        batch.forward(STREAM, SCHEDULE, dict.fromkeys((*FORWARD.names, "workspace"), at), states=at)
    assert not played.launches


def test_a_backward_of_another_algorithm_is_checked_by_itself(play):
    played, engine, _ = play()
    small_h = CallConfig(ops.CudnnLSTM(1, 192, 4, algo="persist_static_small_h").spec, SCHEDULE, True)
    engine.addressed(STREAM, small_h._replace(backward_algo=Algorithm.STANDARD), drops=False)
    played.calls.clear()
    with pytest.raises(ArgumentError, match="Invalid num_units: 192, expecting at most 128 in training"):
        engine.addressed(STREAM, small_h, drops=False)
    standard = CallConfig(ops.CudnnLSTM(1, 8, 4).spec, SCHEDULE.hardly_ragged(), True)
    with pytest.raises(ArgumentError, match=r"Invalid sequence_lengths: .*persist_static_small_h"):
        engine.addressed(STREAM, standard._replace(backward_algo=Algorithm.PERSIST_STATIC_SMALL_H), drops=False)
    assert not played.calls
