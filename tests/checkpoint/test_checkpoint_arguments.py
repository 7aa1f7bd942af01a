"""Arguments of savers that look like others: errors that name them, and nothing written."""

import numpy as np
import pytest

from pycudnnrnn import CudnnGRU, Saver, checkpoint
from pycudnnrnn.errors import ArgumentError
from tests.helpers.layers import built


@pytest.fixture
def saver(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Saver({"a": np.zeros(3)})


@pytest.mark.parametrize("path", ["", ".", "..", "/", "nul\0", "half \ud800"])
def test_what_is_not_the_name_of_a_file_is_refused_by_name(saver, tmp_path, path):
    for call in (
        lambda: saver.save(path),
        lambda: saver.save(path, global_step=3),
        lambda: checkpoint.save(path, built(CudnnGRU)),
    ):
        with pytest.raises(ArgumentError, match=r"^Invalid path"):
            call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", [np.array([1, 2]), np.array([]), [1, 2], "3", 1.5, -1, True])
def test_a_step_is_one_integer(saver, tmp_path, step):
    with pytest.raises(ArgumentError, match=r"^Invalid global_step"):
        saver.save("m", global_step=step)
    assert list(tmp_path.iterdir()) == []
    assert saver.save("m", global_step=np.array([7])).name == "m-7"


def test_a_key_that_no_file_can_hold_is_refused_at_once():
    with pytest.raises(ArgumentError, match=r"^Invalid items.*udc80"):
        Saver({"\udc80": np.zeros(3)})
