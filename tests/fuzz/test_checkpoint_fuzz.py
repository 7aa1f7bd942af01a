"""Files that are not what they say: each is refused with `CheckpointError`, or holds what was saved.

200,000 mutants of each kind in CI, a tenth of that while developing: each reason to refuse has to be reached often,
since mutants that all die at the first bytes show nothing.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pycudnnrnn.checkpoint import REASONS
from tests.helpers.examples import PROFILE

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
COUNT = {"dev": 20_000, "ci": 200_000, "nightly": 2_000_000}[PROFILE]
LEAST = COUNT // 2000
"""100 of 200,000."""

OURS = set(REASONS) - {"unreadable"}
"""No content of a file leads there: tests/checkpoint/test_checkpoint_refusals.py does."""

TENSORFLOWS = {"unreadable", "format", "mismatch", "hash"}
"""Those of the reader of TensorFlow's checkpoints."""

BEYOND_MAX = 16 << 20
"""Bytes beyond what is fair for a file: Python's objects for a header or an index of as many names as there may be."""


@pytest.mark.parametrize(
    ("kind", "reasons", "accepted_of"), [("checkpoint", OURS, 10), ("bundle", TENSORFLOWS, 6)], ids=["ours", "bundle"]
)
def test_mutants_are_refused_for_every_reason_and_cost_little_memory(kind, reasons, accepted_of):
    command = [sys.executable, "-m", f"tests.fuzz.{kind}_mutants", "--count", str(COUNT), "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(json.dumps({key: value for key, value in found.items() if key != "by_mutation"}))
    reached = found["reasons"]
    assert sum(reached.values()) == COUNT
    accepted = reached.pop("accepted")
    assert reached.keys() == reasons
    assert min(reached.values()) >= LEAST, reached
    assert LEAST <= accepted < COUNT // accepted_of
    assert found["peak_bytes_beyond"][0] <= BEYOND_MAX, found["peak_bytes_beyond"]
