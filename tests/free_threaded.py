"""The tests that threads matter to, with the GIL off: `make free-threaded PYTHON=python3.14t`.

Every module of the package is imported, too; those that cannot be, since what they need is not there, are named. It is
a failure when the GIL is on at the end: any extension module may turn it on.
"""

import importlib
import pkgutil
import platform
import sys
import sysconfig
import warnings

import pytest

import pycudnnrnn
from pycudnnrnn import libcudnn

TESTS = (
    "tests/unit/test_threads.py", "tests/unit/test_schedule.py", "tests/unit/test_layout.py",
    "tests/unit/test_plan_hold.py", "tests/unit/test_error_texts.py", "tests/properties/test_laws.py",
    "tests/properties/test_numpy_walk.py", "tests/shim/test_concurrency.py", "tests/shim/test_plan.py",
    "tests/shim/test_bound.py", "tests/shim/test_graphs.py", "tests/abi/test_owners.py", "tests/abi/test_exits.py",
    "tests/abi/test_status.py", "tests/abi/test_arguments.py",
)  # fmt: skip


def gil() -> bool:
    return getattr(sys, "_is_gil_enabled", lambda: True)()


def import_all() -> tuple[int, dict[str, str]]:
    """Import every module; return how many came, and why the others did not."""
    missing = {}
    names = [m.name for m in pkgutil.walk_packages(pycudnnrnn.__path__, "pycudnnrnn.") if "__main__" not in m.name]
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing[name] = str(error)
    return len(names) - len(missing), missing


def main() -> None:
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise SystemExit(f"needs a free-threaded Python: make free-threaded PYTHON=python3.14t, not {sys.executable}")
    status = pytest.main(["-q", "-p", "no:cacheprovider", *TESTS, *sys.argv[1:]])
    with warnings.catch_warnings(action="error"):
        count, missing = import_all()
    print(f"Python {platform.python_version()}, free-threaded; {libcudnn.load()}")
    print(
        f"{count} modules imported, {len(missing)} not:",
        *(f"{name}: {why}" for name, why in missing.items()),
        sep="\n  ",
    )
    raise SystemExit("the GIL is on: an extension module turned it on" if gil() else status)


if __name__ == "__main__":
    main()
