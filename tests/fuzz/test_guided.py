"""The targets of coverage-guided fuzzing hold for what they begin with and for small changes, and the fuzzer runs."""

import random
import subprocess
import sys

import pytest

from tests.fuzz.guided import NAMES, ROOT
from tests.fuzz.targets import TARGETS
from tests.helpers.oracles import need

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
    command = [sys.executable, "-m", "tests.fuzz.guided", *names, "--seconds", "0", "--runs", "500", "--seed", "1"]
    done = subprocess.run([*command, "--folder", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ran = dict(line.split()[:2] for line in done.stdout.splitlines())
    assert list(ran) == names
    assert all(int(count.removeprefix("#")) >= 500 for count in ran.values()), "the fuzzer may end one run later"
