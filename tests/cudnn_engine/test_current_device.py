"""What is done for a device is done while it is the current one, whichever was; the one before is current again after.

The stand-in fails what takes memory, launches or waits while another is. CuPy takes memory on the current device, and
waits for its stream, wherever the arrays of a call are.
"""

import copy
import pickle
import sys

import numpy as np
import pytest

from pycudnnrnn import CudnnLSTM, engines, ops
from pycudnnrnn.errors import StateError
from pycudnnrnn.testing.strategies import make_problem
from tests.helpers.every_call import CALLS, EveryCall
from tests.stand_in.host_cupy import lift, use_host_cupy
from tests.stand_in.host_device import HostDevice, host

OTHER = 5


class Second(HostDevice):
    """Another device of the same process: one of the two is current."""

    index = 1

    def __init__(self, first):
        self._first = first
        super().__init__()

    @property
    def here(self):
        return self._first.here

    @here.setter
    def here(self, index):
        self._first.here = index


@pytest.fixture
def two(play, monkeypatch):
    """Two devices on one shim, by their names; CuPy's functions are done by NumPy."""
    played, first, device = play()
    made = {"cuda:0": first, "cuda:1": played.engine_and_device(Second(device))[0]}
    devices = {name: engine.runtime.device for name, engine in made.items()}
    for each in devices.values():
        use_host_cupy(each)
        each.shim = played
    for name, engine in made.items():
        monkeypatch.setitem(engines._made, name, engine)
    token = engines._override.set(None)
    device.here = OTHER
    yield devices
    engines._override.reset(token)
    assert device.here == OTHER


@pytest.mark.parametrize("name", [name for name in CALLS if name != "params"])
def test_a_call_is_made_where_its_arrays_are(play, name):
    _, _, device = play()
    model = EveryCall(device)
    with device.where(OTHER):
        model.calls[name]()
        assert device.here == OTHER


def same(*pairs):
    for found, expected in pairs:
        assert np.array_equal(host(found), host(expected))


def test_a_layer_is_built_moved_cast_and_written_to_where_it_lives(play, monkeypatch):
    _, _, device = play()
    monkeypatch.setitem(sys.modules, "cupy", use_host_cupy(device))
    with device.where(OTHER):
        layer = CudnnLSTM(2, 3, dtype="float64", device="cuda:0", seed=1)
        layer.build((None, None, 4))
        starting = host(layer.params).copy()
        layer.to(dtype="float32")
        same((layer.params, starting.astype("f4")))
        layer.params = 2 * starting
        same((layer.params, (2 * starting).astype("f4")), (layer.trainable_variables[0].numpy(), layer.params))
        same((copy.deepcopy(layer).params, layer.params), (layer.to("cpu").params, (2 * starting).astype("f4")))
        assert device.here == OTHER


def test_cuda_is_whichever_device_is_current_at_the_call(monkeypatch):
    current = iter(("first", "second"))
    monkeypatch.setattr("pycudnnrnn.engines.cudnn.engine.cudnn_engine", lambda index: index or next(current))
    monkeypatch.setattr(engines, "_made", {})
    assert [engines.engine_for(name) for name in ("cuda", "cuda:7", "cuda", "cuda:7")] == ["first", 7, "second", 7]


def put(two, problem, name):
    """A problem's arrays on a device."""
    with two[name].where(two[name].index):
        return {key: lift(getattr(problem, key), two[name]) for key in ("x", "hx", "params", "dy", "dhy")}


def drop(two, op, name, times=1):
    """Run training forwards on a device; the output of the last."""
    problem = make_problem(op, 3, 2, None, seed=5)
    arrays = put(two, problem, name)
    for _ in range(times):
        output, _ = op(arrays["x"], arrays["hx"], arrays["params"])
    return host(output).copy()


def test_dropout_that_ran_on_two_devices_is_saved_once_both_go_on_from_one(two):
    op = ops.CudnnGRU(2, 3, 4, dropout=0.5, seed=3, dtype="float64")
    drop(two, op, "cuda:0", times=2)
    assert op.memory(3, 2, True, device="cuda:1").reserve_nbytes
    assert [state.position for state in op.dropout_states()] == [2], "there it has not run"
    drop(two, op, "cuda:1")
    for save in (op.dropout_states, lambda: pickle.dumps(op), lambda: copy.deepcopy(op)):
        with pytest.raises(StateError, match="the dropout states of cuda:0 and cuda:1 differ"):
            save()
    assert [op.dropout_state(name).position for name in two] == [2, 1]
    drop(two, op, "cuda:1")
    assert op.dropout_states() == [op.dropout_state("cuda:0")], "equal states are one"
    op.set_dropout_state(op.dropout_state("cuda:1"))
    assert [state.position for state in pickle.loads(pickle.dumps(op)).dropout_states()] == [2]
    assert np.array_equal(*(drop(two, op, name) for name in two))
