"""TensorFlow's checkpoints that are not what they say: each is refused with `CheckpointError`, or holds what it says.

200,000 mutants in CI, a tenth of that while developing: each reason to refuse has to be reached often.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.examples import PROFILE

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
COUNT = {"dev": 20_000, "ci": 200_000, "nightly": 2_000_000}[PROFILE]
LEAST = COUNT // 2000
"""100 of 200,000."""

REASONS = {
    "unreadable", "size", "header form", "too many tensors", "metadata", "missing tensor", "dtype", "shape", "offsets",
    "hash",
}  # fmt: skip
"""Those of the reader; the others are of our own format."""

OVERHEAD_MAX = 16 << 20
"""Bytes beyond twice the files: Python's objects for an index of as many names as there may be."""


def test_mutants_are_refused_for_every_reason_and_cost_little_memory(measured):
    command = [sys.executable, "-m", "tests.fuzz.bundle_mutants", "--count", str(COUNT), "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(json.dumps({key: value for key, value in found.items() if key != "by_mutation"}))
    reached = found["reasons"]
    assert sum(reached.values()) == COUNT
    assert reached.keys() - {"accepted"} == REASONS
    rarest = min(count for reason, count in reached.items() if reason != "accepted")
    assert rarest >= LEAST, reached
    assert reached["accepted"] < COUNT // 6
    assert found["peak_over_twice_the_file"][0] <= OVERHEAD_MAX, found["peak_over_twice_the_file"]
    measured("R4", bundles=COUNT, bundle_reasons=len(reached) - 1, times_the_rarest_bundle_reason=rarest)
