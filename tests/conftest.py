"""One BLAS thread a worker, and the hypothesis profiles: dev (default), ci (CI=true), nightly."""

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from hypothesis import HealthCheck, settings  # noqa: E402

from tests.helpers.examples import PROFILE  # noqa: E402

# Fixtures are factories here: each example makes what it needs from them.
_checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
_common = {"deadline": None, "suppress_health_check": _checks, "print_blob": True}
settings.register_profile("dev", **_common)
settings.register_profile("ci", **_common, derandomize=True, database=None)
settings.register_profile("nightly", **_common)
settings.load_profile(PROFILE)
