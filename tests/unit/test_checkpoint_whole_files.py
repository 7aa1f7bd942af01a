"""A save that fails or is killed leaves a whole file, and a restore that fails changes nothing."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pycudnnrnn import Saver
from pycudnnrnn.errors import ArgumentError, CheckpointError
from tests.helpers.layers import built

ROOT = Path(__file__).parents[2]


CALLS = {name: (os, name) for name in ("open", "fsync", "close", "replace")} | {"write": (Path, "write_bytes")}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_save_that_fails_leaves_the_old_file_and_no_other(call, error, tmp_path, monkeypatch):
    layer = built()
    saver = Saver({"m": layer})
    path = saver.save(tmp_path / "m.safetensors")
    before, params = path.read_bytes(), layer.params.copy()
    layer.params += 1
    owner, name = CALLS[call]
    real = getattr(owner, name)

    def fail(*arguments, **keywords):
        if call == "close":
            real(*arguments)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        with pytest.raises(type(error)):
            saver.save(path)
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint.json", "m.safetensors"]
    saver.restore(path)
    assert np.array_equal(layer.params, params)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_killed_in_a_save_leaves_a_whole_file(call, moment, tmp_path):
    path = tmp_path / "m.safetensors"
    code = f"""
import os, numpy as np
from pathlib import Path
from pycudnnrnn import Saver
array = np.arange(1000.0)
saver = Saver({{"a": array}})
saver.save({str(path)!r})
array += 1
owner = Path if {call!r} == "write" else os
real = getattr(owner, {CALLS[call][1]!r})
def die(*arguments, **keywords):
    if {moment!r} == "after":
        real(*((arguments[0], arguments[1][:100]) if {call!r} == "write" else arguments), **keywords)
    os._exit(9)
setattr(owner, {CALLS[call][1]!r}, die)
saver.save({str(path)!r})
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, capture_output=True)
    assert done.returncode == 9, done.stderr
    array = np.zeros(1000)
    Saver({"a": array}).restore(path)
    first = 1 if (call, moment) == ("replace", "after") else 0
    assert np.array_equal(array, np.arange(1000.0) + first)


def test_a_file_has_the_usual_permissions(tmp_path):
    path = Saver({"a": np.arange(5.0)}).save(tmp_path / "m")
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_restore_takes_all_or_nothing(tmp_path):
    layer, step = built(), np.array([1, 2])
    path = Saver({"m": layer, "step": step}).save(tmp_path / "m")
    expected = layer.params.copy()
    other, frozen = built(seed=5), np.array([0, 0])
    frozen.flags.writeable = False
    before = other.params.copy()
    with pytest.raises(ArgumentError, match="read-only"):
        Saver({"m": other, "step": frozen}).restore(path)
    assert np.array_equal(other.params, before)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="SHA-256 differs"):
        Saver({"m": other, "step": step}).restore(path)
    assert np.array_equal(other.params, before)
    assert np.array_equal(layer.params, expected)
