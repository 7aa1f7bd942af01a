"""The compiled cells beside NumPy's: the same numbers and the same NaN, whatever the spec, the lengths and the threads.

Where the environment names NumPy's kernels for the whole run, what compares the two still runs both.
"""

import dataclasses
import hashlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.engines.numpy_engine import kernels_in_use, walk
from pycudnnrnn.engines.numpy_engine.cells import CELLS
from pycudnnrnn.engines.numpy_engine.compiled import cells as compiled
from pycudnnrnn.engines.numpy_engine.compiled import kernels, products, threads, vectors
from pycudnnrnn.errors import ArgumentError, MissingDependencyError
from pycudnnrnn.spec import RNNSpec
from pycudnnrnn.testing.strategies import make_problem
from tests.numpy_engine.test_forks import forked

pytestmark = pytest.mark.compiled

ROOT = Path(__file__).parents[2]
RAGGED = [3, 7, 0, 5, 7, 1, 2, 7, 6]
EPS_MOST = 32
"""Units in the last place, of the largest number of an array, that the order of sums and another tanh may make."""

SPECS = {
    "lstm": RNNSpec("lstm", 2, 11, 6),
    "lstm projected": RNNSpec("lstm", 2, 11, 6, num_proj=5),
    "lstm clipped": RNNSpec("lstm", 2, 11, 6, cell_clip=0.3),
    "lstm projected, clipped, bidirectional": RNNSpec(
        "lstm", 2, 11, 6, num_proj=5, cell_clip=0.2, direction="bidirectional"
    ),
    "gru": RNNSpec("gru", 2, 11, 6),
    "gru bidirectional": RNNSpec("gru", 2, 11, 6, direction="bidirectional"),
    "tanh": RNNSpec("rnn_tanh", 2, 11, 6, direction="bidirectional"),
    "relu": RNNSpec("rnn_relu", 2, 11, 6),
}
CHOICES = {
    "numpy": kernels_in_use.KernelsInUse("numpy", "asked for by a test", CELLS),
    "numba": kernels_in_use.KernelsInUse("numba", "asked for by a test", compiled.CELLS),
}


@pytest.fixture
def running(monkeypatch):
    """Run what follows by the kernels that are named."""

    def chosen(name):
        monkeypatch.setattr(kernels_in_use, "kernels_in_use", lambda: CHOICES[name])
        kernels_in_use.cell_of.cache_clear()

    yield chosen
    kernels_in_use.cell_of.cache_clear()


def problem_of(spec, lengths=None, T=7, B=9, **changed):
    return dataclasses.replace(make_problem(ops.from_spec(spec), T, B, lengths, seed=1), **changed)


def found_in(problem):
    """All results and gradients, and the output of inference, in float64."""
    found = problem.results() | {"inference": problem.forward(is_training=False).output}
    return {name: np.asarray(array, np.float64) for name, array in found.items()}


def assert_alike(found, expected, dtype):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(np.isnan(found[name]), np.isnan(array), err_msg=name)
        off = np.nanmax(np.abs(found[name] - array), initial=0) / max(1, np.nanmax(np.abs(array), initial=0))
        assert off <= EPS_MOST * np.finfo(dtype).eps, name


@pytest.mark.parametrize("lengths", [None, RAGGED], ids=["equal", "ragged"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SPECS)
def test_compiled_cells_give_the_numbers_of_numpys(running, name, dtype, lengths):
    problem = problem_of(SPECS[name].replace(dtype=dtype), lengths)
    running("numpy")
    expected = found_in(problem)
    running("numba")
    assert_alike(found_in(problem), expected, dtype)


@pytest.mark.parametrize("bias_mode", ["none", "single_input", "single_recurrent"])
@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_tanh"])
def test_each_bias_mode(running, mode, bias_mode):
    problem = problem_of(RNNSpec(mode, 2, 11, 6, bias_mode=bias_mode))
    running("numpy")
    expected = found_in(problem)
    running("numba")
    assert_alike(found_in(problem), expected, "float32")


@pytest.mark.parametrize("B", [1, 2, 5, 16, 33])
@pytest.mark.parametrize("T", [1, 40])
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_each_number_of_sequences_has_a_product_of_its_own(running, name, T, B):
    """Tiles have several heights, matrices are packed where rows are many, and many are split among threads."""
    problem = problem_of(SPECS[name].replace(dtype="float64", num_units=64), T=T, B=B)
    running("numpy")
    expected = found_in(problem)
    running("numba")
    assert_alike(found_in(problem), expected, "float64")


@pytest.mark.parametrize("units", [11, 67])
@pytest.mark.parametrize("name", SPECS)
def test_a_matrix_too_large_for_each_thread_to_read_is_split_by_columns(running, monkeypatch, name, units):
    monkeypatch.setattr(threads, "number", lambda: 3)
    monkeypatch.setattr(compiled, "WORK_MIN", 1)
    monkeypatch.setattr(compiled, "LARGE_NBYTES", 0)
    problem = problem_of(SPECS[name].replace(dtype="float64", num_units=units), RAGGED)
    running("numpy")
    expected = found_in(problem)
    running("numba")
    assert_alike(found_in(problem), expected, "float64")


@pytest.mark.parametrize("kernels_name", CHOICES)
@pytest.mark.parametrize("name", ["lstm projected, clipped, bidirectional", "gru"])
def test_gradients_of_many_blocks_are_those_of_one(running, monkeypatch, name, kernels_name):
    problem = problem_of(SPECS[name].replace(dtype="float64"), RAGGED)
    running(kernels_name)
    expected = found_in(problem)
    monkeypatch.setattr(walk, "BLOCK_ROWS", 9)
    monkeypatch.setattr(walk, "BLOCK_ROWS_A_UNIT", 0)
    assert_alike(found_in(problem), expected, "float64")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["x", "hx", "params", "dy"])
@pytest.mark.parametrize("name", ["lstm", "lstm clipped", "gru", "relu", "tanh"])
def test_nan_and_infinity_go_where_numpys_cells_send_them(running, name, where, value):
    problem = problem_of(SPECS[name], RAGGED)
    array = getattr(problem, where).copy()
    array.reshape(-1)[array.size // 3] = value
    problem = dataclasses.replace(problem, **{where: array})
    running("numpy")
    expected = found_in(problem)
    running("numba")
    found = found_in(problem)
    for key, wanted in expected.items():
        np.testing.assert_array_equal(np.isnan(found[key]), np.isnan(wanted), err_msg=key)


def test_tanh_is_right_to_three_units_in_the_last_place():
    for dtype in (np.float32, np.float64):
        x = np.concatenate([np.linspace(-50, 50, 20001), np.linspace(-1e-3, 1e-3, 1001), [1e-30, 0]]).astype(dtype)
        found, expected = x.copy(), np.tanh(x.astype(np.longdouble))
        _tanh_rows(found)
        off = np.abs(found - expected) / np.spacing(np.abs(expected).astype(dtype))
        assert off.max() <= 3
        edges = np.array([np.nan, np.inf, -np.inf], dtype)
        _tanh_rows(edges)
        np.testing.assert_array_equal(edges, [np.nan, 1, -1])


def _tanh_rows(row):
    """Run `vectors.tanh_of` as the kernels do: a plain cell of one unit, without a product."""
    steps, empty = np.array([[0, len(row)]]), np.empty((0, 1), row.dtype)
    h, y, R, bias = (np.zeros(shape, row.dtype) for shape in ((len(row), 1), (len(row), 1), (0, 0, 1), 1))
    run = kernels.ready(kernels.plain, row.dtype)
    run(h, row[:, None], R, empty, R, bias, y, empty, False, steps)


@pytest.mark.parametrize("offset", [1, 2, 5])
def test_memory_at_any_address_is_worked_on_as_it_lies(running, offset):
    running("numba")
    spec = SPECS["gru bidirectional"]
    problem = problem_of(spec)
    expected = found_in(problem)

    def moved(array):
        raw = np.empty(array.nbytes + offset, np.uint8)[offset:]
        out = raw.view(array.dtype).reshape(array.shape)
        out[...] = array
        return out

    names = ("params", "x", "hx", "dy", "dhy")
    shifted = dataclasses.replace(problem, **{name: moved(getattr(problem, name)) for name in names})
    assert_alike(found_in(shifted), expected, "float32")
    plan = problem.op.prepare(7, 9, is_training=True)
    y, hy, reserve = moved(np.empty_like(expected["y"], np.float32)), moved(problem.hx), None
    reserve = np.empty(plan.reserve_nbytes + offset, np.uint8)[offset:]
    plan.forward(problem.params, problem.x, problem.hx, None, y, hy, None, reserve)
    np.testing.assert_array_equal(y, expected["y"])
    np.testing.assert_array_equal(hy, expected["hy"])


def test_params_that_may_only_be_read(running):
    running("numba")
    problem = problem_of(SPECS["lstm projected"])
    expected = found_in(problem)
    for name in ("params", "x", "hx", "cx", "dy", "dhy", "dcy"):
        getattr(problem, name).flags.writeable = False
    assert_alike(found_in(problem), expected, "float32")


def test_a_batch_split_among_threads_has_the_same_bits_each_time(running, monkeypatch):
    running("numba")
    monkeypatch.setattr(compiled, "WORK_MIN", 1)
    problem = problem_of(SPECS["lstm projected"], T=20, B=32)
    submitted = []
    pool = compiled._pool()
    submit = pool.submit
    monkeypatch.setattr(pool, "submit", lambda *given: (submitted.append(given[-2:]), submit(*given))[1])
    monkeypatch.setenv(threads.VARIABLE, "3")
    first = {name: array.tobytes() for name, array in problem.results().items()}
    assert {(10, 21), (21, 32)} <= set(submitted)
    for _ in range(20):
        assert {name: array.tobytes() for name, array in problem.results().items()} == first
    monkeypatch.setenv(threads.VARIABLE, "1")
    submitted.clear()
    problem.results()
    assert not submitted


def test_a_fork_has_threads_of_its_own(running, monkeypatch):
    running("numba")
    monkeypatch.setattr(compiled, "WORK_MIN", 1)
    monkeypatch.setenv(threads.VARIABLE, "2")
    problem = problem_of(SPECS["gru"], T=4, B=16)
    problem.forward()
    assert forked(problem.forward) == 0


def test_what_is_kept_on_disk_is_found_by_the_whole_source():
    source = b"".join(Path(module.__file__).read_bytes() for module in (kernels, products, vectors))
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


def test_long_compilation_is_logged_once_for_all_kernels(monkeypatch, caplog):
    """Each of five kernels may take less than the time after which a user starts to wonder."""
    monkeypatch.setattr(compiled, "_compiling", compiled.types.SimpleNamespace(seconds=compiled.NOTICE_S - 0.1))
    compiled._notice.cache_clear()
    for _ in range(2):
        with compiled._noticed():
            end = time.monotonic() + 60
            while not caplog.records and time.monotonic() < end:
                time.sleep(0.01)
    assert [record.name for record in caplog.records] == ["pycudnnrnn"]
    assert "compiling the CPU's kernels" in caplog.text
    assert compiled._compiling.seconds > compiled.NOTICE_S - 0.1


OF_A_HOST = """
from llvmlite import binding
real = binding.get_host_cpu_features()
seen = type("Features", (dict,), dict(flatten=real.flatten))({features})
binding.get_host_cpu_features = lambda: seen
from pycudnnrnn.engines.numpy_engine.compiled import kernels
print(kernels.STAMP)
"""


def test_hosts_with_vectors_of_other_sizes_share_no_cached_kernel():
    """One cache may serve several machines: a home on a network, or an image."""
    hosts = ({"avx512f": True, "avx2": True}, {"avx2": True}, {})
    found = [
        subprocess.run(
            [sys.executable, "-c", OF_A_HOST.format(features=features)], capture_output=True, text=True, check=True
        ).stdout
        for features in hosts
    ]
    assert len(set(found)) == len(hosts)


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


BROKEN = """
import numpy as np
from pycudnnrnn import ops
op = ops.CudnnGRU(1, 3, 2)
print(op.forward(np.ones((2, 1, 2), "f"), None, op.init_params(0)).output.shape)
"""


@pytest.mark.parametrize(
    "text", ["raise RuntimeError('an ABI of another year')", "raise ImportError('Numba needs NumPy 2.4 or less')"]
)
def test_a_broken_numba_is_a_warning_and_numpys_kernels(tmp_path, text):
    (tmp_path / "numba.py").write_text(text)
    paths = os.pathsep.join([str(tmp_path), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths}
    environment.pop(kernels_in_use.VARIABLE, None)

    def ran(**more):
        return subprocess.run(
            [sys.executable, "-c", BROKEN], capture_output=True, text=True, check=False, env=environment | more
        )

    done = ran()
    assert (done.returncode, done.stdout) == (0, "(2, 1, 3)\n")
    assert "RuntimeWarning: the CPU runs without compiled kernels, for numba cannot be used" in done.stderr
    quiet = ran(PYCUDNNRNN_CPU_KERNELS="numpy")
    assert (quiet.returncode, quiet.stderr) == (0, "")
    asked = ran(PYCUDNNRNN_CPU_KERNELS="numba")
    assert asked.returncode == 1
    assert "EngineError: numba cannot be used" in asked.stderr


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 15, 400])
def test_a_product_by_tiles_is_the_matrix_product(monkeypatch, n, dtype, transposed, turned):
    """Each height of a tile, a last panel that is full and one that is not, sums that are split and not, and shares."""
    width = products.PANEL_NBYTES // np.dtype(dtype).itemsize
    monkeypatch.setattr(compiled, "WORK_MIN", 1)
    monkeypatch.setenv(threads.VARIABLE, "3")
    rng = np.random.default_rng(n)
    for depth in (1, 7, 33):
        for columns in (1, width - 1, width, 9 * width + 3):
            x, w = rng.normal(size=(n, depth)).astype(dtype), rng.normal(size=(depth, columns)).astype(dtype)
            rows = np.stack([x.T if turned else x] * 2, axis=1).reshape(depth if turned else n, -1)
            rows = rows[:, rows.shape[1] // 2 :]  # as the columns of a gate are
            others = np.ascontiguousarray(w.T).T if transposed else w
            before = rng.normal(size=(n + 1, columns)).astype(dtype)
            for adds in (False, True):
                out = before.copy()
                compiled._multiply(rows, others, out[:n], transposed=turned, adds=adds)
                expected = x.astype("longdouble") @ w + (before[:n] if adds else 0)
                assert np.abs(out[:n] - expected).max() <= 8 * depth * np.finfo(dtype).eps
                np.testing.assert_array_equal(out[n], before[n])


@pytest.mark.parametrize(
    ("own", "openmp", "count"),
    [
        ("3", "2", 3),
        ("", "2", 2),
        ("", " 4, 2", 4),
        ("", "0", 5),
        ("", "many", 5),
        ("", "", 5),
    ],
)
def test_threads_are_as_many_as_is_asked_for_or_as_there_are_processors(monkeypatch, own, openmp, count):
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: {0, 2, 3, 5, 6}, raising=False)
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 8)
    monkeypatch.setenv(threads.VARIABLE, own)
    monkeypatch.setenv("OMP_NUM_THREADS", openmp)
    assert threads.number() == count
    monkeypatch.delattr(threads.os, "sched_getaffinity")
    assert threads.number() == (8 if count == 5 else count)


@pytest.mark.parametrize("word", ["0", "-1", "two", "1.5", "²"])
def test_a_number_of_threads_that_is_none_is_refused(running, monkeypatch, word):
    running("numba")
    problem = problem_of(SPECS["gru"], T=4, B=16)
    monkeypatch.setenv(threads.VARIABLE, word)
    expected = f"Invalid PYCUDNNRNN_CPU_THREADS: '{word}', expecting a number of threads, 1 or more"
    with pytest.raises(ArgumentError, match=re.escape(expected)):
        problem.forward()
