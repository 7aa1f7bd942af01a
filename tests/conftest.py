"""One BLAS thread a worker, Hypothesis profiles dev (default), ci (CI=true), nightly and faults; common fixtures."""

import gc
import os
import random
import sys

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
# What tests compile is small and runs once or twice: XLA's optimizations take longer than they save.
# tests/interop/test_jax_buffers.py turns them on again.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")  # for tests/interop/test_jax_sharded.py

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, Phase, settings  # noqa: E402

from pycudnnrnn import libcudnn  # noqa: E402
from pycudnnrnn._discovery import NotFoundError  # noqa: E402
from pycudnnrnn.engines.numpy_engine import kernels_in_use  # noqa: E402
from tests.helpers.examples import PROFILE  # noqa: E402

# Fixtures are factories here: each example makes what it needs from them.
_checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
_common = {"deadline": None, "suppress_health_check": _checks, "print_blob": True}
settings.register_profile("dev", **_common, derandomize=True, database=None)
settings.register_profile("ci", **_common, derandomize=True, database=None)
settings.register_profile("nightly", **_common)
# For `python -m tests.faults`: whether an example fails is all that is asked, not which is the smallest.
settings.register_profile("faults", settings.get_profile("dev"), phases=[Phase.explicit, Phase.generate])
settings.load_profile(PROFILE)


def pytest_configure():
    gc.disable()  # until the tests are collected
    if os.environ.get("PYCUDNNRNN_CPU_KERNELS") == "numba":
        kernels_in_use.ROWS_MIN = 0  # the batches of tests are small
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the same tests on every machine; what is for a GPU is in tests/gpu


@pytest.fixture(autouse=True)
def _same_draws():
    """Begin each test with the same state of the frameworks' own generators, whichever tests ran before it."""
    random.seed(0)
    np.random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(0)


@pytest.fixture(autouse=True, scope="module")
def _old_things_rest():
    """Leave what earlier modules made, JAX's and torch's caches above all, out of every later collection."""
    gc.freeze()


@pytest.fixture(scope="session")
def lib():
    """The real libcudnn; without one CI fails, and another machine skips. One that does not load is a failure."""
    try:
        return libcudnn.load()
    except NotFoundError as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI installs libcudnn (make test), and there is none: {error}")
        pytest.skip(f"needs libcudnn (make test installs it): {error}")


@pytest.fixture(scope="session")
def shim_path(tmp_path_factory):
    """The tests' libcudnn, compiled once."""
    from tests.stand_in import shim

    return shim.build(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run `pycudnnrnn` in `tmp_path`; return its exit code, standard output and standard error."""
    from pycudnnrnn.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # what is piped is as wide as it has to be

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["pycudnnrnn", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return ended.value.code or 0, out, err

    return call


@pytest.fixture
def engine_calls():
    """The passes that the CPU's engine runs, as they come; see `RecordingEngine`."""
    from pycudnnrnn.engines import use_engine
    from tests.helpers.recorded import RecordingEngine

    engine = RecordingEngine()
    with use_engine(engine):
        yield engine.ran


def pytest_collection_finish():
    """Collect no garbage while modules are imported, and leave what was imported out of every later collection.

    With torch and JAX imported, one collection takes a tenth of a second, and hundreds of tests ask for one.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
