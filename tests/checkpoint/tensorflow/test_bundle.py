"""TensorFlow's checkpoints are read bit for bit without it, and it reads ours; what is damaged is refused.

The oracle is TensorFlow: it writes the files, and it reads them.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pycudnnrnn import checkpoint
from pycudnnrnn.checkpoint._paths import with_suffix
from pycudnnrnn.errors import ArgumentError, CheckpointError
from tests.checkpoint.tensorflow.arrays import arrays
from tests.checkpoint.tensorflow.conftest import run_tensorflow
from tests.helpers.bundles import write_bundle

CONTENTS = arrays()
READABLE = [name for name in CONTENTS if name not in {"strings", "v1"}]


def equal(ours, theirs):
    assert (ours.dtype, ours.shape, ours.tobytes()) == (theirs.dtype, theirs.shape, theirs.tobytes())


@pytest.mark.parametrize("name", READABLE)
def test_every_array_is_what_tensorflow_was_given(files, name):
    found = checkpoint.read_tensorflow(files / name)
    if name == "object-1":
        found.pop("save_counter/.ATTRIBUTES/VARIABLE_VALUE")
    assert found.keys() == CONTENTS[name].keys()
    for own, array in CONTENTS[name].items():
        equal(found[own], array)
        assert found[own].flags.writeable


@pytest.mark.parametrize("given", ["shards", "shards.index", "."])
def test_a_checkpoint_is_named_as_tensorflow_names_it_by_its_index_or_by_its_folder(files, tmp_path, given):
    for path in files.glob("shards.*"):
        shutil.copy(path, tmp_path)
    # TensorFlow writes whole paths: those of the machine that it ran on.
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/gone/shards"\nall_model_checkpoint_paths: "x"\n')
    assert checkpoint.read_tensorflow(tmp_path / given).keys() == CONTENTS["shards"].keys()


def test_the_files_that_mutants_are_made_of_are_tensorflows(files):
    own = sorted((Path(__file__).parent / "files").iterdir())
    assert [path.name for path in own] == sorted(path.name for path in files.glob("mixed.*"))
    assert all(path.read_bytes() == (files / path.name).read_bytes() for path in own)


def test_names_pick_what_is_read(files):
    (array,) = checkpoint.read_tensorflow(files / "many", names=["layer_00007/kernel/Adam_1"]).values()
    equal(array, np.array([7], "f4"))
    assert list(checkpoint.read_tensorflow(files / "shards", names=("v2/1", "v0/0"))) == ["v2/1", "v0/0"]
    assert checkpoint.read_tensorflow(files / "shards", names=[]) == {}


def test_a_missing_name_names_what_is_near(files):
    with pytest.raises(CheckpointError, match="'v2/1x' is not there; the file has 'v0/0'"):
        checkpoint.read_tensorflow(files / "shards", names=["v2/1x"])
    with pytest.raises(ArgumentError, match="Invalid names"):
        checkpoint.read_tensorflow(files / "shards", names=[3])


def test_strings_are_named_and_never_read(files):
    with pytest.warns(UserWarning, match="left out, as they hold no numbers: 's'"):
        found = checkpoint.read_tensorflow(files / "strings")
    assert list(found) == ["x"]
    with pytest.raises(CheckpointError, match="'s': it is of TensorFlow's dtype 7"):
        checkpoint.read_tensorflow(files / "strings", names=["s"])


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("v1", "format: not a checkpoint of TensorFlow 0.12 or later"),
        ("nothing", "unreadable: "),
        ("shards.data-00001-of-00003", "give its prefix"),
        ("names.npz", "unreadable: "),
    ],
)
def test_what_is_no_checkpoint_is_said_to_be_what_it_is(files, given, text):
    with pytest.raises(CheckpointError) as raised:
        checkpoint.read_tensorflow(files / given)
    assert text in str(raised.value)


def copied(files, tmp_path, name):
    for path in files.glob(f"{name}.*"):
        shutil.copy(path, tmp_path)
    return tmp_path / name


def test_a_set_of_files_that_is_cut_short_is_refused_by_the_file_that_is(files, tmp_path):
    prefix = copied(files, tmp_path, "shards")
    shard = tmp_path / "shards.data-00001-of-00003"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    with pytest.raises(CheckpointError, match="ends at byte 116 of shard 1, which is cut short"):
        checkpoint.read_tensorflow(prefix)
    shard.unlink()
    with pytest.raises(CheckpointError, match="data-00001-of-00003"):
        checkpoint.read_tensorflow(prefix, names=["v0/0"])


def test_one_bit_anywhere_in_a_tensor_or_the_index_is_seen(files, tmp_path):
    prefix = copied(files, tmp_path, "partitioned")
    for suffix, step in ((".data-00000-of-00001", 4999), (".index", 1)):
        path = with_suffix(prefix, suffix)
        whole = path.read_bytes()
        for place in range(0, len(whole), step):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            with pytest.raises(CheckpointError):
                checkpoint.read_tensorflow(prefix)
        path.write_bytes(whole)
    assert checkpoint.read_tensorflow(prefix).keys() == CONTENTS["partitioned"].keys()


@pytest.mark.parametrize("over", [1, *(pytest.param(n, marks=pytest.mark.long) for n in (0, 2))])
def test_tensorflow_reads_what_is_written_over_what_was_there_too(tmp_path, over):
    for _ in range(over):
        write_bundle(tmp_path / "ours-1", {"before": np.zeros(3)})
    tensors = {f"{name}/{own}": a for name in ("dtypes", "many", "large") for own, a in CONTENTS[name].items()}
    write_bundle(tmp_path / "ours-1", tensors)
    found = json.loads(run_tensorflow("read_files", tmp_path / "ours-1", tmp_path / "out.npz"))
    theirs = np.load(tmp_path / "out.npz")
    assert sorted(tensors) == [name for name, *_ in found]
    for i, (name, dtype, shape) in enumerate(found):
        assert (dtype, tuple(shape)) == (tensors[name].dtype.name, tensors[name].shape), name
        assert theirs[f"arr_{i}"].tobytes() == tensors[name].tobytes(), name
