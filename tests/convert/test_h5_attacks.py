"""HDF5 files that no program would write: read once, or refused by name."""

import os

import h5py
import numpy as np
import pytest

from pycudnnrnn.convert.keras import read_h5
from pycudnnrnn.errors import ConvertError


@pytest.fixture
def made(tmp_path):
    """Make a file by a function of it, and return its path."""

    def make(build):
        with h5py.File(tmp_path / "made.h5", "w") as file:
            build(file)
        return tmp_path / "made.h5"

    return make


def refused(path, why):
    with pytest.raises(ConvertError, match=why):
        read_h5(path)


def test_a_maze_of_hard_links_is_walked_once(made):
    def maze(file):
        group = file
        for _ in range(30):
            below = group.create_group("a")
            group["b"] = below
            group = below
        group["kernel"] = np.ones((3, 4), "f4")
        group["again"] = group["kernel"]

    found = read_h5(made(maze))
    assert list(found) == ["a/" * 30 + "again"]
    np.testing.assert_array_equal(next(iter(found.values())), np.ones((3, 4)))


@pytest.mark.parametrize("shape", [(2**40,), (2**20, 2**20)])
def test_arrays_that_take_more_than_a_hundred_times_the_file_are_refused(made, shape):
    def build(file):
        chunks = (2**10,) * len(shape) if len(shape) > 1 else None
        file.create_dataset("kernel", shape=shape, chunks=chunks, dtype="f4")

    refused(made(build), "'kernel': declares more than 100 times the bytes of the file")


def test_the_limit_is_one_on_all_arrays_together(made):
    def build(file):
        for k in range(20):
            file.create_dataset(f"{k:02}", shape=(100_000,), dtype="f4")  # never written

    path = made(build)
    assert 20 * 400_000 > 100 * path.stat().st_size > 400_000
    refused(path, "with the arrays before it")


def test_a_damaged_chunk_is_an_error_that_names_the_file(made):
    def damaged(file):
        dataset = file.create_dataset("kernel", shape=(64, 10), chunks=(64, 10), dtype="f4", compression="gzip")
        dataset.id.write_direct_chunk((0, 0), b"\x78\x9cno such stream")

    path = made(damaged)
    refused(path, f"{path}: cannot be read as HDF5: ")


def test_filters_that_h5py_can_be_asked_for_are_read(made):
    array = np.random.default_rng(0).normal(size=(70, 30)).astype("f4")
    for keywords in (
        {"compression": "gzip", "shuffle": True, "fletcher32": True}, {"compression": "lzf", "shuffle": True},
        {"fletcher32": True}, {"chunks": (7, 4), "compression": "gzip"}, {"chunks": True, "maxshape": (None, None)},
    ):  # fmt: skip
        path = made(lambda file, keywords=keywords: file.create_dataset("kernel", data=array, **keywords))
        np.testing.assert_array_equal(read_h5(path)["kernel"], array)


def test_a_group_inside_itself_is_walked_once(made):
    def build(file):
        file["a/kernel"] = np.ones(3)
        file["a/b"] = file

    assert list(read_h5(made(build))) == ["a/kernel"]


def test_a_name_that_is_not_text_is_refused(made):
    refused(made(lambda file: file.create_dataset(b"kernel\x80", data=np.ones(3))), "cannot be read as HDF5")


def test_a_pipe_is_not_waited_for(tmp_path, patience):
    os.mkfifo(tmp_path / "pipe.h5")
    refused(tmp_path / "pipe.h5", "not a regular file")
