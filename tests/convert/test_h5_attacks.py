"""HDF5 files made to take memory or time: each refused, or read at a price that its own size accounts for."""

import os
import zlib

import h5py
import numpy as np
import pytest

from pycudnnrnn.convert.keras import read_h5
from pycudnnrnn.convert.keras.h5_walk import _MOST_LINKS
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


def test_groups_have_no_more_names_than_any_model_needs(made):
    def crowd(file):
        one = file.create_group("one")
        for i in range(_MOST_LINKS // 300 + 1):
            group = file.create_group(f"{i}")
            for j in range(300):
                group[f"{j}"] = one

    def small(file):
        for i in range(300):
            file[f"{i}"] = np.ones(1, "f4")

    assert len(read_h5(made(small))) == 300
    refused(made(crowd), "names")


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [((1,), (2**28,)), ((2**40,), None), ((30_000,), (1,)), ((2**20, 2**20), (2**10, 2**10))],
    ids=["a chunk larger than its array", "an array never written", "30,000 chunks", "2**40 elements in chunks"],
)
def test_what_takes_more_than_the_file_accounts_for_is_refused(made, shape, chunks):
    def build(file):
        maximum = (None,) * len(shape) if chunks else None
        file.create_dataset("kernel", shape=shape, maxshape=maximum, chunks=chunks, dtype="f4")

    refused(made(build), "declares more bytes than the file can hold")


def test_a_chunk_that_unpacks_to_more_than_it_declares_is_refused_before_it_is_unpacked(made):
    def bomb(file):
        dataset = file.create_dataset("kernel", shape=(64, 1000), chunks=(64, 1000), dtype="f4", compression="gzip")
        dataset.id.write_direct_chunk((0, 0), zlib.compress(bytes(64 << 20), 9))

    def padded(file):
        dataset = file.create_dataset("kernel", shape=(64, 10), chunks=(64, 10), dtype="f4", compression="gzip")
        dataset.id.write_direct_chunk((0, 0), zlib.compress(bytes(64 * 10 * 4)) + bytes(1 << 20))

    def damaged(file):
        dataset = file.create_dataset("kernel", shape=(64, 10), chunks=(64, 10), dtype="f4", compression="gzip")
        dataset.id.write_direct_chunk((0, 0), b"\x78\x9cno such stream")

    refused(made(bomb), "unpacks to more than it holds")
    refused(made(padded), "more bytes than it unpacks to")
    refused(made(damaged), "damaged chunk")


def test_filters_that_h5py_can_be_asked_for_are_read_and_others_are_not(made):
    array = np.random.default_rng(0).normal(size=(70, 30)).astype("f4")
    for keywords in (
        {"compression": "gzip", "shuffle": True, "fletcher32": True}, {"compression": "lzf", "shuffle": True},
        {"fletcher32": True}, {"chunks": (7, 4), "compression": "gzip"}, {"chunks": True, "maxshape": (None, None)},
    ):  # fmt: skip
        path = made(lambda file, keywords=keywords: file.create_dataset("kernel", data=array, **keywords))
        np.testing.assert_array_equal(read_h5(path)["kernel"], array)
    refused(made(lambda file: file.create_dataset("kernel", data=array, scaleoffset=3)), "filters that are not read")


def test_a_name_that_is_not_text_is_refused(made):
    refused(made(lambda file: file.create_dataset(b"kernel\x80", data=np.ones(3))), "cannot be read as HDF5")


def test_a_pipe_is_not_waited_for(tmp_path, patience):
    os.mkfifo(tmp_path / "pipe.h5")
    refused(tmp_path / "pipe.h5", "not a regular file")
