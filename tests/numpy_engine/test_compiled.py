"""The compiled cells beside NumPy's: the same numbers and the same NaN, whatever the spec, the lengths and the threads.

Where the environment names NumPy's kernels for the whole run, what compares the two still runs both.
"""

import dataclasses
import itertools
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.engines.numpy_engine import calls, engine, kernels_in_use
from pycudnnrnn.engines.numpy_engine.calls import blocks_of
from pycudnnrnn.engines.numpy_engine.cells import CELLS, Steps
from pycudnnrnn.engines.numpy_engine.compiled import cells as compiled
from pycudnnrnn.engines.numpy_engine.compiled import kernels, products, teams, threads
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import RNNSpec
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.prepared import ON_HOST, Prepared
from tests.helpers.pairwise import pairwise
from tests.helpers.results import assert_same
from tests.numpy_engine.test_forks import forked
from tests.numpy_engine.test_memory import check_told

pytestmark = pytest.mark.compiled

RAGGED = [3, 7, 0, 5, 7, 1, 2, 7, 6]
EPS_MOST = 32
"""Units in the last place, of the largest number of an array, that the order of sums and another tanh may make."""

SPECS = {
    "lstm": RNNSpec("lstm", 2, 11, 6),
    "lstm projected, clipped": RNNSpec("lstm", 2, 11, 6, num_proj=5, cell_clip=0.2),
    "lstm bidirectional": RNNSpec("lstm", 2, 11, 6, direction="bidirectional"),
    "gru": RNNSpec("gru", 2, 11, 6),
    "gru bidirectional": RNNSpec("gru", 2, 11, 6, direction="bidirectional"),
    "tanh": RNNSpec("rnn_tanh", 2, 11, 6, direction="bidirectional"),
    "relu": RNNSpec("rnn_relu", 2, 11, 6),
}
SKIPPED = {
    "lstm skip": RNNSpec("lstm", 2, 11, 11, input_mode="skip_input"),
    "gru skip": RNNSpec("gru", 2, 11, 11, input_mode="skip_input", direction="bidirectional"),
}
BATCHES = {
    "equal": (7, 9, None),
    "ragged": (7, 9, RAGGED),
    "one": (1, 1, None),
    "few": (40, 2, None),
    "many": (9, 33, None),
    "many end early": (6, 140, [6] * 2 + [3] * 138),
}
"""Tiles have several heights, and matrices are packed where rows are many."""

LIMITS = {
    "as they are": {},
    "threads": {"WORK_MIN": 1, "WORK_TO_WAKE": 1, "MEETING": 0},
    "blocks": {"WORK_TO_WAKE": 1, "BLOCK_ROWS": 9, "BLOCK_ROWS_A_UNIT": 0},
    "a last block of one row": {"BLOCK_ROWS": 1, "BLOCK_ROWS_A_UNIT": 0},
}
"""What decides how work is cut: as small as a test needs."""

CHOICES = {
    "numpy": kernels_in_use.KernelsInUse("numpy", "asked for by a test", CELLS),
    "numba": kernels_in_use.KernelsInUse("numba", "asked for by a test", compiled.CELLS),
}


@pytest.fixture
def running(monkeypatch):
    """Run what follows by the kernels that are named."""

    def chosen(name):
        monkeypatch.setattr(kernels_in_use, "kernels_in_use", lambda: CHOICES[name])
        monkeypatch.setattr(kernels_in_use, "ROWS_MIN", 0)
        monkeypatch.setattr(threads, "in_team", threads.number)  # also beside busy processes
        monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: range(8), raising=False)
        forget()

    def forget():
        kernels_in_use._cell_of.cache_clear()
        engine._calls_of.cache_clear()

    yield chosen
    forget()


def problem_of(spec, T=7, B=9, lengths=None):
    return make_problem(ops.from_spec(spec), T, B, lengths, seed=1)


def found_in(problem):
    """All results and gradients, and the output of inference, in float64; of an op that has made no call yet."""
    problem = dataclasses.replace(problem, op=ops.from_spec(problem.spec))
    found = problem.results() | {"inference": problem.forward(is_training=False).output}
    return {name: np.asarray(array, np.float64) for name, array in found.items()}


def assert_alike(found, expected, dtype):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(np.isnan(found[name]), np.isnan(array), err_msg=name)
        off = np.nanmax(np.abs(found[name] - array), initial=0) / max(1, np.nanmax(np.abs(array), initial=0))
        assert off <= EPS_MOST * np.finfo(dtype).eps, name


@pytest.mark.parametrize(
    ("name", "batch", "units", "bias_mode", "limit", "dtype"),
    pairwise(SPECS, BATCHES, (11, 67), ("double", "none", "single_input"), LIMITS, ("float64", "float32")),
)
def test_compiled_cells_give_the_numbers_of_numpys(running, monkeypatch, name, batch, units, bias_mode, limit, dtype):
    problem = problem_of(SPECS[name].replace(num_units=units, bias_mode=bias_mode, dtype=dtype), *BATCHES[batch])
    running("numpy")
    expected = found_in(problem)
    monkeypatch.setattr(threads, "number", lambda: 6)
    for constant, value in LIMITS[limit].items():
        monkeypatch.setattr(calls if constant.startswith("BLOCK") else compiled, constant, value)
    running("numba")
    assert_alike(found_in(problem), expected, dtype)


@pytest.mark.parametrize("where", ["x", "hx", "params", "dy", "the first dy"])
@pytest.mark.parametrize(("name", "value"), pairwise(SPECS, (np.nan, np.inf, -np.inf)))
def test_nan_and_infinity_go_where_numpys_cells_send_them(running, name, where, value):
    """An infinite gradient of a later step is NaN in all before it, whatever a cell makes of it."""
    problem = problem_of(SPECS[name], *BATCHES["ragged"])
    array = getattr(problem, where.removeprefix("the first "))
    array.reshape(-1)[0 if "first" in where else array.size // 3] = value
    running("numpy")
    expected = found_in(problem)
    running("numba")
    found = found_in(problem)
    for key, wanted in expected.items():
        np.testing.assert_array_equal(np.isnan(found[key]), np.isnan(wanted), err_msg=key)


def moved(array):
    raw = np.empty(array.nbytes + 5, np.uint8)[5:]
    out = raw.view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("change", [moved, read_only])
@pytest.mark.parametrize("name", ["gru bidirectional", "lstm projected, clipped"])
def test_memory_at_any_address_or_that_may_only_be_read_is_worked_on_as_it_lies(running, name, change):
    running("numba")
    problem = problem_of(SPECS[name])
    expected, names = found_in(problem), ("params", "x", "hx", "cx", "dy", "dhy", "dcy")
    changed = dataclasses.replace(problem, **{name: change(getattr(problem, name)) for name in names})
    assert_alike(found_in(changed), expected, "float32")


def bits(problem, *, retain=False, **keywords):
    inference = problem.forward(is_training=False, sequence_lengths=problem.lengths)
    training = problem.forward(**keywords)
    gradients = training.backward(*problem.upstream(), retain=retain)
    arrays = {
        "inference": inference.output, "y": training.output, "hy": training.output_h, "cy": training.output_c,
        "dx": gradients.input, "dhx": gradients.input_h, "dcx": gradients.input_c, "dparams": gradients.params,
    }  # fmt: skip
    return {name: array.tobytes() for name, array in arrays.items() if array is not None}


@pytest.fixture(params=["sequences", "columns"])
def eager(running, monkeypatch, request):
    """Let the compiled cells use every thread that they may, whatever the work: each for its sequences, or for all."""
    running("numba")
    for constant, value in LIMITS["threads"].items():
        monkeypatch.setattr(compiled, constant, value)
    if request.param == "columns":
        monkeypatch.setattr(compiled, "NEAR_NBYTES", 0)
    return lambda number: monkeypatch.setenv(threads.VARIABLE, str(number))


@pytest.mark.parametrize(
    ("name", "batch", "units", "bias_mode", "more", "dtype"),
    pairwise(
        SPECS | SKIPPED, BATCHES, (11, 67), ("double", "none", "single_input"), ("", "dropout", "recompute", "copy"),
        ("float64", "float32"),
    ),
)  # fmt: skip
def test_results_have_the_same_bits_whatever_the_number_of_threads(eager, name, batch, units, bias_mode, more, dtype):
    spec = (SPECS | SKIPPED)[name]
    sizes = {"num_units": units} | ({"input_size": units} if name in SKIPPED else {})
    spec = spec.replace(**sizes, bias_mode=bias_mode, dtype=dtype)
    if more == "dropout":
        spec = spec.replace(dropout=0.4, seed=3)
    recompute = more == "recompute" and spec.num_dirs == 1
    keywords = {"checkpoint_every": 2} if recompute else {"retain": True} if more == "copy" else {}
    expected = None
    for number in (1, 2, 3, 8):
        eager(number)
        found = bits(problem_of(spec, *BATCHES[batch]), **keywords)
        expected = expected or found
        assert {key for key in expected if found[key] != expected[key]} == set()


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([7] * 9, [1, 2, 3, 4]),
        ([9, 8, 8, 5, 5, 5, 2, 1, 1], [1, 2, 3, 1]),
        ([5] * 3, [1, 2, 3, 3]),
        ([50, 1, 1, 1], [1] * 4),
    ],
    ids=str,
)
def test_groups_of_sequences_share_the_rows_about_equally_and_are_one_where_they_cannot(lengths, expected):
    schedule = Schedule(max(lengths), len(lengths), tuple(lengths))
    ((_, steps),) = blocks_of(SPECS["lstm"], schedule.steps)
    for number, count in enumerate(expected, 1):
        groups = steps.groups(number, back=False)
        rows = [[row for low, high in places.tolist() for row in range(low, high)] for _, places in groups]
        assert sorted(itertools.chain(*rows)) == list(range(sum(lengths)))
        assert len(groups) == count
        assert count == 1 or max(map(len, rows)) * number <= 1.5 * sum(lengths)
        for (sequences, places), (same, reverse) in zip(groups, steps.groups(number, back=True), strict=True):
            assert sequences == same
            np.testing.assert_array_equal(reverse, places[::-1])


@pytest.mark.parametrize(("lengths", "number"), [([20] * 4, 2), ([20] * 2 + [1] * 30, 1)], ids=["running", "ended"])
def test_a_thread_has_sequences_to_itself_if_so_many_still_run(running, monkeypatch, lengths, number):
    running("numba")
    monkeypatch.setenv(threads.VARIABLE, "2")
    monkeypatch.setattr(compiled, "WORK_TO_WAKE", 1)
    rooms, asked, groups = compiled._packed({"R": np.empty((11, 11), np.float32)}), [], Steps.groups
    monkeypatch.setattr(compiled, "NEAR_NBYTES", rooms["R"].nbytes // 2)  # two for each thread
    monkeypatch.setattr(Steps, "groups", lambda steps, n, **order: asked.append(n) or groups(steps, n, **order))
    problem_of(SPECS["relu"], 20, len(lengths), lengths).forward()
    assert asked == [number] * SPECS["relu"].num_layers


@pytest.mark.parametrize("name", ["lstm projected, clipped", "gru bidirectional"])
def test_a_plan_computes_with_params_that_it_holds_what_it_computes_without(eager, name):
    eager(3)
    problem = problem_of(SPECS[name])
    buffers = Prepared(ON_HOST, problem=problem, device=None)
    buffers.plan.hold(buffers.params)
    for _ in range(2):
        buffers.step()
        assert_same(buffers.results(ON_HOST), problem.results())


def test_none_begins_while_one_thread_works_alone(eager, monkeypatch):
    eager(4)
    noted = []
    monkeypatch.setattr(threads, "note", lambda start, ran, number: noted.append(number))
    problem_of(SPECS["gru bidirectional"]).forward()
    assert noted == [4] * 6, "each layer packs its directions' weights, and runs both with two threads each"
    monkeypatch.setattr(threads, "in_team", lambda: 1)
    problem_of(SPECS["gru bidirectional"]).forward()
    assert noted[6:] == [1] * 8


def test_the_prediction_of_memory_counts_what_both_directions_take_at_once(running, monkeypatch):
    running("numba")
    monkeypatch.setenv(threads.VARIABLE, "2")
    check_told(ops.CudnnGRU(1, 400, 400, input_mode="skip_input", direction="bidirectional"), 100, 20, False)


def busy(kernel, helper):
    """Every thread of the pool does something else."""


def ended(kernel, helper):
    raise RuntimeError("cannot schedule new futures after interpreter shutdown")


def late(kernel, helper):
    threading.Timer(0.001, kernel, [helper]).start()


@pytest.mark.parametrize("submit", [busy, ended, late])
@pytest.mark.parametrize("name", ["lstm", "lstm bidirectional"])
def test_threads_that_do_not_start_or_start_late_are_not_waited_for(eager, monkeypatch, submit, name):
    eager(1)
    expected = bits(problem_of(SPECS[name], *BATCHES["many"]))
    monkeypatch.setattr(compiled, "_pool", lambda: SimpleNamespace(submit=submit))
    monkeypatch.setattr(compiled, "_awake", [])
    for number in (2, 6):
        eager(number)
        assert bits(problem_of(SPECS[name], *BATCHES["many"])) == expected


def test_helpers_have_places_of_their_own_and_are_not_asked_once_they_have_ended(eager):
    eager(3)
    compiled._awake.clear()
    compiled._packed({"R": np.empty((11, 67), np.float32)})
    helpers = list(compiled._awake)
    assert sorted(helper[3] for helper in helpers) == [1, 2]
    for helper in helpers:
        assert any(helper[0] == teams.GONE or time.sleep(0.001) for _ in range(10_000)), "it looks for more for ever"
    problem_of(SPECS["gru"]).forward()
    assert not {id(helper) for helper in helpers} & {id(helper) for helper in compiled._awake}


def test_all_groups_get_as_many_threads(eager):
    matrix, rooms = np.ones((11, 67), np.float32), np.zeros((2, 5, 11, products.PANEL_NBYTES // 4), np.float32)
    compiled._awake.clear()
    compiled._together(5, [(kernels.packed, [(room, matrix) for room in rooms])])
    assert len(compiled._awake) == 3
    assert (rooms.sum(axis=(1, 2, 3)) == matrix.sum()).all()


@pytest.mark.parametrize("name", SPECS)
def test_a_thread_that_comes_late_or_leaves_early_changes_nothing(eager, monkeypatch, name):
    """Threads of a team begin at any moment; here one after the other, so that each finds what the former left."""
    eager(1)
    expected = bits(problem_of(SPECS[name], *BATCHES["ragged"]))

    def one_by_one(number, phases):
        for kernel, groups in phases:
            size = number // len(groups)
            for arguments, team in zip(groups, teams.new(len(groups), size), strict=True):
                for place in reversed(range(size)):
                    compiled._ready(kernel, arguments[0].dtype)(*arguments, team, place)

    monkeypatch.setattr(compiled, "_together", one_by_one)
    eager(3)
    assert bits(problem_of(SPECS[name], *BATCHES["ragged"])) == expected


def test_a_fork_has_threads_of_its_own(eager):
    eager(2)
    problem, helper = problem_of(SPECS["gru"], T=4, B=16), np.zeros(teams.LINE, np.int64)
    compiled._awake[:] = [helper]
    assert forked(lambda: problem.forward() and 1 // (compiled._awake[-1] is not helper)) == 0, (
        "it waits for the parent's"
    )
    compiled._awake.clear()
