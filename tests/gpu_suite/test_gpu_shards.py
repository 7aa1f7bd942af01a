"""How the GPU suite is shared out: each test is in one shard, and each shard runs what decides most first."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu import shards

ROOT = Path(__file__).parents[2]

COLLECT = """
import json, os, sys
import pytest
from tests.gpu.shards import SHARDS, VARIABLE, arrange

class Order:
    def pytest_collection_finish(self, session):
        def named(items):
            return [[item.path.stem, item.get_closest_marker("apart") is not None, item.nodeid] for item in items]

        self.found = {"": named(session.items)}
        for name in SHARDS:
            os.environ[VARIABLE] = name
            chosen, others = arrange(session.items)
            self.found[name] = named(chosen)
            assert len(chosen) + len(others) == len(session.items)

order = Order()
sys.stdout = sys.stderr
words = ["-c", "tests/gpu/pytest.ini", "--rootdir", ".", "-p", "no:cacheprovider", "tests/gpu", "--collect-only", "-q"]
status = pytest.main(words, [order])
print(json.dumps(order.found), file=sys.__stdout__)
sys.exit(status)
"""


@pytest.fixture(scope="module")
def order():
    """By shard, and for the whole suite under "": each test's file, whether it is apart, and its name; in order."""
    environment = os.environ | {"PYCUDNNRNN_GPU_ON_SHIM": "1", "PYTHONPATH": str(ROOT), shards.VARIABLE: ""}
    command = [sys.executable, "-c", COLLECT]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.long
def test_every_test_of_the_suite_is_in_one_shard(order):
    whole = [name for *_, name in order[""]]
    parts = [name for shard in shards.SHARDS for *_, name in order[shard]]
    assert len(whole) == len(set(whole)) > 300
    assert sorted(parts) == sorted(whole)
    assert all(order[shard] for shard in shards.SHARDS)
    assert {file for file, *_ in order["soak"]} == {"test_soak"}, "it reads the driver's memory, which others take"
    assert not {"soak", "accepted"} & set(shards.SIDE_BY_SIDE)


@pytest.mark.long
def test_what_decides_most_runs_first_and_what_may_take_its_process_last(order):
    for name, tests in order.items():
        assert [apart for _, apart, _ in tests] == sorted(apart for _, apart, _ in tests), name
        for apart, wanted in ((False, shards.FILES), (True, shards.APART)):
            files = [file.removeprefix("test_") for file, is_apart, _ in tests if is_apart == apart]
            listed = [file for file in wanted if file in files]
            assert [file for file, _ in itertools.groupby(files)] == listed, name
    first = ["layout", "numbers", "questions", "safe_ways", "torch", "jax", "graphs"]
    assert list(shards.FILES)[:7] == first
    assert (shards.APART[:3], shards.APART[-1]) == (("questions", "safe_ways", "lost"), "algorithms")
    assert {apart for _, apart, _ in order["apart"]} == {True}
