"""Files that are not what they say: each is refused with `CheckpointError`, or holds what was saved.

200,000 mutants in CI, a tenth of that while developing: each reason to refuse has to be reached often, since mutants
that all die at the first bytes show nothing.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pycudnnrnn.checkpoint import REASONS
from tests.helpers.examples import PROFILE

ROOT = Path(__file__).parents[2]
COUNT = {"dev": 20_000, "ci": 200_000, "nightly": 2_000_000}[PROFILE]
LEAST = COUNT // 2000
"""100 of 200,000."""

ELSEWHERE = {"unreadable"}
"""No content of a file leads there: tests/unit/test_checkpoint_refusals.py does."""


@pytest.mark.long
def test_mutants_are_refused_for_every_reason_and_cost_little_memory(measured):
    command = [sys.executable, "-m", "tests.fuzz.checkpoint_mutants", "--count", str(COUNT), "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(json.dumps({key: value for key, value in found.items() if key != "by_mutation"}))
    reached = found["reasons"]
    assert sum(reached.values()) == COUNT
    assert set(reached) - {"accepted"} == set(REASONS) - ELSEWHERE
    assert min(reached.values()) >= LEAST, reached
    assert reached["accepted"] < COUNT // 10
    assert found["peak_bytes"][0] <= 2 * found["expected_bytes"] + (16 << 20), found["peak_bytes"]
    rarest = min(count for reason, count in reached.items() if reason != "accepted")
    measured(
        "R4", files=COUNT, reasons=len(reached) - 1, times_the_rarest_reason=rarest, accepted=reached["accepted"],
        peak_bytes=found["peak_bytes"][0], worst_ms=round(1000 * found["worst_seconds"][0], 1),
    )  # fmt: skip
