"""How many examples a property gets: a tenth of the CI number while developing, ten times as many at night."""

import os

from hypothesis import settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
_SCALE = {"dev": 0.1, "faults": 0.1, "ci": 1, "nightly": 10}[PROFILE]


def examples(in_ci: int) -> settings:
    """Decorate a property that gets `in_ci` examples in CI."""
    return settings(max_examples=max(10, int(in_ci * _SCALE)))
