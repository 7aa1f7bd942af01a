"""Layers and their checkpoints on a GPU: from there to a machine without one, and back."""

import sys

import numpy as np
import pytest

from pycudnnrnn import CudnnLSTM, Saver


@pytest.fixture(autouse=True)
def _cupys_namespace(cuda, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", cuda.device.xp)  # on the stand-in, its own


def both(kind=CudnnLSTM):
    """Two layers that start alike, on the CPU and on the device."""
    layers = [kind(2, 6, direction="bidirectional", seed=3, device=device) for device in ("cpu", "cuda")]
    for layer in layers:
        layer.build((None, None, 5))
    return layers


def on_host(layer):
    return layer.op.move_params(layer.params, "cpu")


def test_a_checkpoint_goes_from_the_device_to_the_cpu_and_back_bit_for_bit(cuda, tmp_path):
    on_cpu, on_gpu = both()
    on_gpu.params += cuda.put(np.random.default_rng(1).normal(size=on_gpu.params.shape).astype("f4"))
    path = Saver({"m": on_gpu, "step": np.array(3)}).save(tmp_path / "gpu.safetensors")
    Saver({"m": on_cpu, "step": np.array(0)}).restore(path)
    expected = on_host(on_gpu)
    assert np.array_equal(on_host(on_cpu), expected)
    on_gpu.params[...] = 0
    Saver({"m": on_gpu, "step": np.array(0)}).restore(path)
    assert np.array_equal(on_host(on_gpu), expected)
    assert np.array_equal(on_gpu.to("cpu").params, expected)
