"""The one opener of files that others may have put there."""

import os
from pathlib import Path

import pytest

from pycudnnrnn._files import Source


@pytest.fixture
def path(tmp_path):
    (tmp_path / "file").write_bytes(bytes(range(10)))
    return tmp_path / "file"


@pytest.mark.timeout(300)
def test_what_is_not_a_regular_file_is_refused_and_neither_waited_for_nor_left_open(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("pipe", "link", "", "nothing", "nul\0", "half \ud800", "../" * 99 + "dev/zero"):
        with pytest.raises(OSError, match=r"regular|directory|not a path|No such"):
            Source(f"{tmp_path}/{name}")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_it_is_opened_once_and_read_as_it_was_then(tmp_path, path):
    with Source(path) as source:
        (tmp_path / "other").write_bytes(b"another")
        (tmp_path / "other").rename(path)
        assert source.whole(10) == bytes(range(10))
    with Source(path) as source, path.open("ab") as file:
        file.write(b"more")
        file.flush()
        assert source.whole(10) == b"another"


def test_more_than_the_most_is_not_read_and_a_file_that_becomes_shorter_is_an_error(path):
    with Source(path) as source:
        with pytest.raises(OSError, match="at most 9"):
            source.whole(9)
        os.truncate(path, 4)
        for read in (source.whole, lambda count: source.readinto(bytearray(count))):
            with pytest.raises(OSError, match="shorter"):
                read(10)
