"""What is done for a device is done while it is the current one, whichever was; the one before is current again after.

The stand-in fails what takes memory, launches or waits while another is. CuPy takes memory on the current device, and
waits for its stream, wherever the arrays of a call are.
"""

import copy
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from pycudnnrnn import CudnnLSTM, engines
from tests.helpers.every_call import CALLS, Model
from tests.stand_in.host_cupy import use_host_cupy
from tests.stand_in.host_device import host

OTHER = 5


@pytest.mark.parametrize("name", [name for name in CALLS if name != "params"])
def test_a_call_is_made_where_its_arrays_are(device, name):
    model = Model(device)
    with device.where(OTHER):
        CALLS[name](model)
        assert device.here == OTHER


def same(*pairs):
    for array, expected in pairs:
        assert np.array_equal(host(array), host(expected))


def test_a_layer_is_built_moved_cast_and_written_to_where_it_lives(device, monkeypatch):
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
    current = iter((3, 5))

    def device_of(index):
        return SimpleNamespace(index=next(current) if index is None else index)

    monkeypatch.setattr("pycudnnrnn.engines.cudnn.device.CudaDevice", device_of)
    monkeypatch.setattr("pycudnnrnn.engines.cudnn.engine.CudnnEngine", lambda _, device: device)
    monkeypatch.setattr(engines, "_engines", {})
    got = [engines.engine_for(name) for name in ("cuda", "cuda:7", "cuda", "cuda:7", "cuda:3")]
    assert [engine.index for engine in got] == [3, 7, 5, 7, 3]
    assert got[0] is got[4]
