"""What is done for a device is done while it is the current one, whichever was; the one before is current again after.

The stand-in fails what takes memory, launches or waits while another is. CuPy takes memory on the current device, and
waits for its stream, wherever the arrays of a call are.
"""

import copy
import itertools
import json
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from pycudnnrnn import CudnnGRU, CudnnLSTM, Saver, _arrays, checkpoint, engines, ops
from pycudnnrnn.errors import StateError
from pycudnnrnn.ops._dropout import Dropouts
from pycudnnrnn.testing.strategies import make_problem
from tests.helpers.every_call import CALLS, EveryCall
from tests.stand_in.host_cupy import lift, use_host_cupy
from tests.stand_in.host_device import HostDevice, host
from tests.stand_in.problem import on_device
from tests.stand_in.problem import run as run_problem

OTHER = 5
OP = ops.CudnnLSTM(2, 3, 4, dtype="float64")


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


WAYS = {
    "one call": {},
    "parts": {"lengths": [3, 0]},
    "chunks": {"checkpoint_every": 1},
    "both directions": {"direction": "bidirectional"},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_runs_where_its_arrays_are_whichever_way(play, way):
    _, _, device = play()
    options = {"lengths": None, "direction": "unidirectional"} | WAYS[way]
    op = ops.CudnnLSTM(2, 3, 4, direction=options.pop("direction"), dtype="float64")
    problem = make_problem(op, 3, 2, options.pop("lengths"), seed=5)
    arrays = on_device(device, problem)
    expected = run_problem(problem, arrays, **options)
    with device.where(OTHER):
        for _ in range(2):
            found = run_problem(problem, arrays, **options)
            assert all(np.array_equal(found[name], expected[name]) for name in expected)
        assert device.here == OTHER


@pytest.fixture
def elsewhere(play, monkeypatch):
    """A device whose arrays CuPy's functions take, while another one is current."""
    _, _, device = play()
    monkeypatch.setitem(sys.modules, "cupy", use_host_cupy(device))
    with device.where(OTHER):
        yield device
        assert device.here == OTHER


def params_on(device, seed=1):
    with device.where(device.index):
        return lift(OP.init_params(seed), device)


def same(*pairs):
    for found, expected in pairs:
        assert np.array_equal(host(found), host(expected))


def test_params_are_made_where_they_are_asked_for(elsewhere):
    expected = OP.init_params(2)
    same((OP.init_params(2, "cuda:0"), expected), (OP.move_params(expected, "cuda:0"), expected))


def test_params_change_their_form_where_they_are(elsewhere):
    params = params_on(elsewhere)
    weights, biases = OP.params_to_canonical(params)
    same(*zip([*weights, *biases], itertools.chain(*OP.params_to_canonical(OP.init_params(1))), strict=True))
    same((OP.canonical_to_params(weights, biases), params))
    out = OP.move_params(params, "cuda:0")
    OP.canonical_to_params(*OP.params_to_canonical(out, copy=False), out=out)
    same((out, params), (OP.move_params(params, "cpu"), params))


def test_a_layer_is_built_moved_cast_and_written_to_where_it_lives(elsewhere):
    layer = CudnnLSTM(2, 3, dtype="float64", device="cuda:0", seed=1)
    layer.build((None, None, 4))
    starting = host(layer.params).copy()
    layer.to(dtype="float32")
    same((layer.params, starting.astype("f4")))
    layer.params = 2 * starting
    same((layer.params, (2 * starting).astype("f4")), (layer.trainable_variables[0].numpy(), layer.params))
    same((copy.deepcopy(layer).params, layer.params), (layer.to("cpu").params, (2 * starting).astype("f4")))


def test_a_checkpoint_is_written_and_restored_where_the_arrays_are(elsewhere, tmp_path):
    layer = CudnnLSTM(2, 3, dtype="float64", device="cuda:0", seed=1)
    layer.build((None, None, 4))
    with elsewhere.where(elsewhere.index):
        array = lift(np.arange(4.0), elsewhere)
    saver = Saver({"layer": layer, "array": array})
    path, before = saver.save(tmp_path / "a"), host(layer.params).copy()
    host(layer.params)[...], host(array)[...] = 0, 0
    saver.restore(path)
    same((layer.params, before), (array, np.arange(4.0)))


def test_an_op_is_written_from_where_its_params_are(elsewhere, tmp_path):
    op = ops.CudnnLSTM(2, 3, 4, dtype="float64", dropout=0.5, seed=3)
    params = op.move_params(op.init_params(1), "cuda:0")
    loaded, found = checkpoint.load_op(checkpoint.save(tmp_path / "unused", op, params))
    assert elsewhere.here == OTHER
    assert np.array_equal(found, op.init_params(1))
    assert loaded.dropout_states() == [ops.DropoutState("cudnn", 3)], "the params' engine, where nothing has run"
    there = op.dropout_state("cuda:0")
    loaded, _ = checkpoint.load_op(checkpoint.save(tmp_path / "used", op, params))
    assert loaded.dropout_states() == [there]
    assert there.data


def test_params_go_from_one_device_to_another_through_the_host(two):
    expected = OP.init_params(3)
    there = OP.move_params(expected, "cuda:1")
    assert _arrays.kind_of("there", there).device == "cuda:1"
    back = OP.move_params(there, "cuda:0")
    assert _arrays.kind_of("back", back).device == "cuda:0"
    same((there, expected), (back, expected))


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


def test_random_states_that_differ_are_not_one_however_many_forwards_moved_them():
    dropouts = Dropouts(OP.spec, {})
    for device, data in (("cuda:0", b"a"), ("cuda:1", b"b")):
        state = ops.DropoutState("cudnn", 3, 1, data)
        dropout = SimpleNamespace(state=lambda state=state: state)
        dropouts.on(SimpleNamespace(name="cudnn", device=device, dropout=lambda *_, dropout=dropout: dropout))
    with pytest.raises(StateError, match="the dropout states of cuda:0 and cuda:1 differ"):
        dropouts.states()


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


def test_a_layer_that_moves_to_another_device_takes_its_dropout_along(two):
    layer, other = (CudnnGRU(2, 3, dropout=0.5, seed=3, dtype="float64", device="cuda:0") for _ in range(2))
    for each in (layer, other):
        each.build((None, None, 4))
        drop(two, each.op, "cuda:0", times=2)
    layer.to("cuda:1")
    assert np.array_equal(drop(two, layer.op, "cuda:1"), drop(two, other.op, "cuda:0"))
    assert layer.op.dropout_state("cuda:1").position == 3
    assert [state.position for state in layer.op.dropout_states()] == [3]


def test_the_demo_runs_on_the_device_that_it_is_told(elsewhere, capsys, tmp_path):
    import char_lm

    text = tmp_path / "text"
    text.write_text("one two three four five six seven eight nine ten\n" * 400)
    arguments = ["--device", "cuda:0", "--text", text, "--units", "4", "--updates", "1", "--out", tmp_path, "--json"]
    char_lm.main([*map(str, arguments)], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["restored_equal"]
