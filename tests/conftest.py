"""One BLAS thread a worker, and the hypothesis profiles: dev (default), ci (CI=true), nightly."""

import json
import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

from tests.helpers.examples import PROFILE  # noqa: E402

# Fixtures are factories here: each example makes what it needs from them.
_checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
_common = {"deadline": None, "suppress_health_check": _checks, "print_blob": True}
settings.register_profile("dev", **_common)
settings.register_profile("ci", **_common, derandomize=True, database=None)
settings.register_profile("nightly", **_common)
settings.load_profile(PROFILE)


@pytest.fixture
def measured(record_property):
    """Say what a row of the reliability table measured: `measured("R12", calls=10_000)`.

    Numbers of one name are summed over the tests of a row; of those named worst_ or peak_ the largest counts.
    """

    def record(row, **numbers):
        record_property(row, json.dumps(numbers))

    return record


def pytest_collection_modifyitems(items):
    for item in items:
        property_ = getattr(item, "obj", None)
        if getattr(property_, "is_hypothesis_test", False):
            count = property_._hypothesis_internal_use_settings.max_examples
            item.user_properties.append(("R7", json.dumps({"properties": 1, "examples": count})))
