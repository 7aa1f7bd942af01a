"""Which kernels run on the CPU and by how many threads, and where the compiled ones are kept."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pycudnnrnn.engines.numpy_engine import kernels_in_use
from pycudnnrnn.engines.numpy_engine.cells import CELLS
from pycudnnrnn.engines.numpy_engine.compiled import cells as compiled
from pycudnnrnn.engines.numpy_engine.compiled import kernels, products, teams, threads, vectors
from pycudnnrnn.errors import ArgumentError, MissingDependencyError
from pycudnnrnn.spec import RNNSpec

pytestmark = pytest.mark.compiled

ROOT = Path(__file__).parents[2]


def test_what_is_kept_on_disk_is_found_by_the_whole_source():
    source = b"".join(Path(module.__file__).read_bytes() for module in (kernels, products, teams, vectors))
    assert int.from_bytes(hashlib.sha256(source + bytes([products.VECTOR_NBYTES])).digest()[:6], "big") == kernels.STAMP
    run = kernels.ready(kernels.plain_back, np.dtype("float64"))
    assert all(f"omitted(default={kernels.STAMP})" in str(signature) for signature in run.signatures)


def test_without_a_folder_to_keep_them_in_kernels_are_compiled_all_the_same(monkeypatch):
    njit, kept = kernels.numba.njit, []

    def refusing(**options):
        kept.append(options.get("cache", False))
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr(kernels.numba, "njit", refusing)
    made = kernels.kernel(kernels.plain_back.py_func)
    assert kept == [True, False]
    assert made.py_func is kernels.plain_back.py_func


def kernels_for(monkeypatch, word=None):
    monkeypatch.delenv(kernels_in_use.VARIABLE, raising=False)
    if word is not None:
        monkeypatch.setenv(kernels_in_use.VARIABLE, word)
    return kernels_in_use.kernels_in_use.__wrapped__()


def test_the_environment_names_the_kernels(monkeypatch):
    assert kernels_for(monkeypatch).kernels == "numba"
    assert kernels_for(monkeypatch, "").kernels == "numba"
    assert kernels_for(monkeypatch, "numba").cells is compiled.CELLS
    assert kernels_for(monkeypatch, "numpy").cells is CELLS
    with pytest.raises(ArgumentError, match=r"Invalid PYCUDNNRNN_CPU_KERNELS: 'cython', expecting 'numba' or 'numpy'"):
        kernels_for(monkeypatch, "cython")


def test_without_numba_numpys_kernels_run_and_nothing_is_said(monkeypatch):
    monkeypatch.setattr(kernels_in_use.importlib.util, "find_spec", lambda _: None)
    found = kernels_for(monkeypatch)
    assert (found.kernels, found.why) == ("numpy", "numba is not installed")
    with pytest.raises(MissingDependencyError, match=r"fast"):
        kernels_for(monkeypatch, "numba")


def test_small_work_and_half_precision_do_without_numba(monkeypatch):
    monkeypatch.setattr(kernels_in_use, "ROWS_MIN", 32)
    monkeypatch.setattr(kernels_in_use, "kernels_in_use", lambda: pytest.fail("numba is imported"))
    spec, half = RNNSpec("gru", 1, 64, 2), {"dtype": "float16", "compute_dtype": "float16"}
    large = spec.replace(num_units=1024)
    for one, rows, steps in ((spec, 31, 31), (large, 30, 3), (large, 14, 7), (large.replace(**half), 1000, 100)):
        assert type(kernels_in_use.cell_of(one, rows, steps)) is CELLS["gru"]
    for one, *batch in ((spec, 32, 32), (large, 32, 1), (large, 16, 8)):
        with pytest.raises(pytest.fail.Exception, match="numba is imported"):
            kernels_in_use.cell_of(one, *batch)


SMALL = """
import numpy as np
from pycudnnrnn import ops
op = ops.CudnnGRU(1, 3, 2)
print(op.forward(np.ones((32, 1, 2), "f"), None, op.init_params(0)).output.shape)
"""


@pytest.mark.parametrize(
    ("how", "warning", "error"),
    [
        ("broken", "RuntimeWarning: the CPU runs without compiled kernels, for", "numba cannot be used"),
        ("NUMBA_DISABLE_JIT", "", "PYCUDNNRNN_CPU_KERNELS=numba, but numba does not compile"),
    ],
)
def test_where_numba_cannot_be_used_numpys_kernels_run(tmp_path, how, warning, error):
    if how == "broken":
        (tmp_path / "numba.py").write_text("raise RuntimeError('an ABI of another year')")
    environment = os.environ | {how: "1", "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    for word, code, text in (("", 0, warning), ("numba", 1, f"EngineError: {error}")):
        named = environment | {kernels_in_use.VARIABLE: word}
        done = subprocess.run([sys.executable, "-c", SMALL], capture_output=True, text=True, check=False, env=named)
        assert (done.returncode, done.stdout) == (code, "" if code else "(32, 1, 3)\n")
        assert text in done.stderr
        assert bool(text) == bool(done.stderr)


ENDING = """
import atexit, threading
import numpy as np
from concurrent.futures import ThreadPoolExecutor, thread
from pycudnnrnn import ops

op = ops.CudnnLSTM(1, 128, 64)
params, x = op.init_params(1), np.random.default_rng(1).normal(size=(60, 64, 64)).astype("f")

def train():
    fwd = op.forward(x, None, None, params)
    return fwd.backward(fwd.output).params.tobytes()

expected = train()

def after(who):
    print(f"{who} {train() == expected}\\n", end="", flush=True)

class Last:
    def __del__(self):
        after("__del__")

def thread_after_all():
    threading.main_thread().join()
    after("thread")

def busy_meanwhile():
    same, closed = [], 0
    while closed < 5:
        closed += thread._shutdown  # pools are closed
        same.append(train() == expected)
    after(f"busy {all(same)}")

ThreadPoolExecutor(1).submit(busy_meanwhile)
for work in (busy_meanwhile, busy_meanwhile, thread_after_all):
    threading.Thread(target=work).start()
atexit.register(after, "atexit")
atexit.register(Last().__init__)
"""


def test_what_runs_while_the_main_thread_ends_and_afterwards_gets_the_same_bits():
    """Python closes every pool of threads some time before the main thread counts as ended."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), kernels_in_use.VARIABLE: "numba", threads.VARIABLE: "2"}
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, check=False, env=environment)
    assert sorted(done.stdout.splitlines()) == [
        "__del__ True", "atexit True", *["busy True True"] * 3, "thread True",
    ], done.stderr  # fmt: skip
    assert "Error" not in done.stderr  # a slow machine may be told that kernels are compiled
    assert done.returncode == 0
