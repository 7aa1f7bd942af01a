"""How many examples a property gets: a tenth of its number while developing, a fifth in CI, ten times it at night."""

import os

from hypothesis import settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
_SCALE = {"dev": 0.1, "faults": 0.1, "ci": 0.2, "nightly": 10}[PROFILE]


def examples(number: int) -> settings:
    """Decorate a property that gets `number` examples, scaled by the profile."""
    return settings(max_examples=max(10, int(number * _SCALE)))
