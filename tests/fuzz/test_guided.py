"""The targets of coverage-guided fuzzing hold for what they begin with, and the fuzzer would find a fault."""

import json
import os
import random
import subprocess
import sys

import pytest

from pycudnnrnn import Saver
from pycudnnrnn.errors import CheckpointError
from tests.fuzz.guided import NAMES
from tests.fuzz.targets import TARGETS
from tests.helpers.oracles import need
from tests.helpers.tree import copy_tree, plant

CHANGES = 20
"""Changed inputs a seed, here; a fuzzer makes thousands a minute."""


def test_every_target_has_a_name():
    assert tuple(TARGETS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_target_takes_its_seeds_and_changes_of_them(name, tmp_path):
    target, rng = TARGETS[name], random.Random(0)
    seeds = list(target.seeds(tmp_path))
    assert seeds
    for data in seeds:
        target.run(data, tmp_path / "data")
        for _ in range(CHANGES if target.change else 1):
            target.run(target.changed(rng, data, lambda part: part[:-1]), tmp_path / "data")


BEHIND_THE_HASH = (
    "pycudnnrnn/checkpoint/_items.py",
    """raise Refusal("mismatch", f"{key!r} was another kind of item")""",
    "raise RuntimeError(key)",
)
"""One step behind the seeds: of the changes that keep header and hash right, one in ten leads there."""


def guided(folder, target, runs):
    results = folder / "guided.json"
    bounds = ["--seconds", "0", "--runs", str(runs), "--seed", "1", "--folder", str(folder / "kept")]
    command = [sys.executable, "-m", "tests.fuzz.guided", target, *bounds, "--json", str(results)]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done, json.loads(results.read_text())[target]


@pytest.mark.long
def test_the_fuzzer_finds_a_wrong_exception_behind_header_and_hash_and_nothing_in_the_code_as_it_is(tmp_path):
    need("atheris")
    copy_tree(tmp_path)
    done, right = guided(tmp_path, "spec", 2000)
    assert (done.returncode, right["finding"]) == (0, ""), done.stderr
    assert right["runs"] >= 2000
    assert right["corpus"] > right["seeds"] > 0
    plant(tmp_path, *BEHIND_THE_HASH)
    done, wrong = guided(tmp_path, "checkpoint", 20_000)
    assert done.returncode == 1
    assert "RuntimeError" in wrong["finding"]
    assert wrong["runs"] < 20_000
    (crasher,) = (tmp_path / "kept" / "checkpoint").glob("crash-*")
    with pytest.raises(CheckpointError):
        Saver({}).restore(crasher)  # in the code as it is
