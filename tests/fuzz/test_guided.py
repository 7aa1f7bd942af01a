"""The targets of coverage-guided fuzzing hold for what they begin with and for small changes, and the fuzzer runs."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.guided import NAMES
from tests.fuzz.targets import TARGETS
from tests.helpers.oracles import need

ROOT = Path(__file__).parents[2]
CHANGES = 20
"""Changed inputs a seed, here; a fuzzer makes thousands a minute."""


@pytest.mark.parametrize("name", NAMES)
def test_a_target_takes_its_seeds_and_changes_of_them(name, tmp_path):
    if name == "keras":  # which writes the configurations that it begins with
        need("keras")
    target, rng = TARGETS[name], random.Random(0)
    seeds = list(target.seeds(tmp_path))
    assert seeds
    for data in seeds:
        target.run(data, tmp_path / "data")
        for _ in range(CHANGES if target.change else 1):
            target.run(target.changed(rng, data, lambda part: part[:-1]), tmp_path / "data")


@pytest.mark.long
def test_the_fuzzer_finds_nothing_in_its_first_runs(tmp_path):
    need("atheris")
    names = ["checkpoint", "list", "bundle"]  # Keras's and ONNX's files are read by libraries in C
    command = [sys.executable, "-m", "tests.fuzz.guided", *names, "-runs=500", "-seed=1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counts = re.findall(r"^Done (\d+) runs in", done.stderr, re.MULTILINE)
    assert len(counts) == len(names)
    assert all(int(count) >= 500 for count in counts), "the fuzzer may end one run later"
