"""TensorFlow's checkpoints are read bit for bit without it, and it reads ours. The oracle is TensorFlow."""

import json
from pathlib import Path

import numpy as np
import pytest

from pycudnnrnn import checkpoint
from pycudnnrnn.errors import ArgumentError, CheckpointError
from tests.checkpoint.tensorflow.arrays import arrays

CONTENTS = arrays()
READABLE = [name for name in CONTENTS if name != "strings"]


def equal(ours, expected):
    assert (ours.dtype, ours.shape, ours.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


def check(contents, name):
    assert contents.keys() == CONTENTS[name].keys()
    for key, array in CONTENTS[name].items():
        equal(contents[key], array)
        assert contents[key].flags.writeable


@pytest.mark.parametrize("name", READABLE)
def test_every_array_is_what_tensorflow_was_given(files, name):
    contents = checkpoint.read_tensorflow(files / name)
    if name == "object-1":
        contents.pop("save_counter/.ATTRIBUTES/VARIABLE_VALUE")
    check(contents, name)


@pytest.mark.parametrize("over", range(3))
def test_tensorflow_reads_what_is_written_over_what_was_there_too(files, over):
    tensors = {f"{name}/{key}": a for name in ("dtypes", "many", "large") for key, a in CONTENTS[name].items()}
    tensors = tensors if over == 1 else CONTENTS["shards"]
    expected = np.load(files / f"ours/over-{over}.npz")
    contents = json.loads((files / f"ours/over-{over}.json").read_text())
    assert sorted(tensors) == [name for name, *_ in contents]
    for i, (name, dtype, shape) in enumerate(contents):
        assert (dtype, tuple(shape)) == (tensors[name].dtype.name, tensors[name].shape), name
        assert expected[f"arr_{i}"].tobytes() == tensors[name].tobytes(), name


def test_the_files_that_are_stored_for_machines_without_tensorflow_are_its_own(files):
    paths = sorted((Path(__file__).parent / "files").iterdir())
    assert [path.name for path in paths] == sorted(path.name for path in files.glob("mixed.*"))
    assert all(path.read_bytes() == (files / path.name).read_bytes() for path in paths)


def test_stored_files_are_read_where_tensorflow_is_not_installed():
    check(checkpoint.read_tensorflow(Path(__file__).parent / "files/mixed"), "mixed")


def test_names_pick_what_is_read_and_what_has_no_numbers_is_left_out(files):
    (array,) = checkpoint.read_tensorflow(files / "many", names="layer_00007/kernel/Adam_1").values()
    equal(array, np.array([7], "f4"))
    assert list(checkpoint.read_tensorflow(files / "shards", names=("v2/1", "v0/0"))) == ["v2/1", "v0/0"]
    assert checkpoint.read_tensorflow(files / "shards", names=[]) == {}
    with pytest.raises(CheckpointError, match="'v2/1x' is not there; the file has 'v0/0'"):
        checkpoint.read_tensorflow(files / "shards", names=["v2/1x"])
    with pytest.raises(ArgumentError, match="Invalid names"):
        checkpoint.read_tensorflow(files / "shards", names=[3])
    with pytest.warns(UserWarning, match="left out, as they hold no numbers: 's'"):
        assert list(checkpoint.read_tensorflow(files / "strings")) == ["x"]
    with pytest.raises(CheckpointError, match="'s': it is of TensorFlow's dtype 7"):
        checkpoint.read_tensorflow(files / "strings", names=["s"])
    with pytest.raises(CheckpointError, match=r"format: not a checkpoint of TensorFlow 0\.12 or later: give"):
        checkpoint.read_tensorflow(files / "shards.data-00001-of-00003")
