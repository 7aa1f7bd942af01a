"""How figures are made: percentiles, ratios, sample sizes, and the numeric gate."""

import numpy as np
import pytest

from benchmarks import adapters, data, host_cost, timing
from benchmarks.adapters import NotRun
from benchmarks.hosts import Failed, Local
from benchmarks.problems import rows_of
from benchmarks.results_files import load
from benchmarks.runner import Part, Results, Settings, check, run
from benchmarks.timing import Sample
from tests.benchmarks.rows import Fake, smoke


class StillClock:
    """A device on which every call takes `us`, and whose queue is its own."""

    def __init__(self, us):
        self.us, self.now, self.calls, self.waits = us, 0.0, 0, 0

    def call(self):
        self.calls += 1
        self.now += self.us

    def mark(self):
        return self.now

    def microseconds(self, start, stop):
        return stop - start

    def synchronize(self):
        self.waits += 1


def test_an_event_sample_times_as_many_calls_together_as_events_can_resolve():
    clock = StillClock(us=30.0)
    assert timing.calls_for(2000, clock.call, clock) == 128, "a power of two that lasts 2 ms: 64 do not"
    sample = timing.event_sample(clock.call, clock, seconds=0.001, least=5)
    assert sample.times_us == pytest.approx([30.0] * len(sample.times_us))
    assert 3 <= len(sample.times_us) <= 5
    assert set(sample.figures) == {"latency_us", "pipelined_us", "host_us"}


def test_a_summary_has_the_median_of_medians_and_percentiles_of_all():
    found = timing.summary(
        [Sample([1, 2, 9], {"host_us": 4}), Sample([3, 3, 3], {"host_us": 6}), Sample([7], {"host_us": 5})]
    )
    assert (found["median_us"], found["round_medians_us"], found["rounds"], found["calls"]) == (3, [2, 3, 7], 3, 7)
    assert found["host_us"] == 5
    assert found["p10_us"] == pytest.approx(np.percentile([1, 2, 9, 3, 3, 3, 7], 10))
    assert found["p90_us"] == pytest.approx(np.percentile([1, 2, 9, 3, 3, 3, 7], 90))


# --- the numbers that are checked before anything is timed


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_what_is_drawn_is_the_same_number_in_every_type(dtype):
    drawn = data.draw(smoke().problem.replace(input_sets=4))
    cast = drawn.cast(data.spec_of(smoke().problem, dtype).dtype.numpy)
    arrays, same = ((*d.xs, d.dy, *d.canonical.weights, *d.canonical.biases) for d in (drawn, cast))
    for array, in_type in zip(arrays, same, strict=True):
        assert in_type.dtype == data.spec_of(smoke().problem, dtype).dtype.numpy
        assert (in_type.astype(np.float32) == array).all()
        assert len(np.unique(array)) > 4
    assert len(drawn.xs) == 4
    assert len({x.tobytes() for x in drawn.xs}) == 4


@pytest.mark.parametrize(("which", "result"), [("infer", "y"), ("infer", "cy"), ("step", "dx"), ("step", "dw")])
def test_wrong_numbers_have_no_time(which, result):
    def results(factor):
        def changed(row):
            found = Local("numpy").results(row)
            return found | {result: found[result] * factor}

        return Fake("wrong", sample=None, results=changed)

    row = smoke(which=which)
    assert check(row, results(1))["error"] < 1e-6
    found = Results(None, {"versions": {}})
    run([Part([row], [("wrong", None, results(1.001))])], found, Settings(1, 0.001))
    assert found.rows[0]["status"] == "failed"
    assert "wrong numbers: an error of" in found.rows[0]["reason"]
    assert found.rows[0]["median_us"] is None
    with pytest.raises(Failed, match="an error of nan"):
        check(row, results(np.nan))


def test_results_of_another_shape_or_name_are_refused():
    wanted = {"y": np.ones((2, 3)), "hy": np.ones(3)}
    assert data.worst_error({"y": np.ones((2, 3))}, wanted) == 0, "a state may be left out"
    with pytest.raises(ValueError, match="of shape"):
        data.worst_error({"y": np.ones((3, 2))}, wanted)
    with pytest.raises(ValueError, match="expecting y, hy, got hy"):
        data.worst_error({"hy": np.ones(3)}, wanted)


# --- the competitors, and the host's cost

CPU = ("numpy", "torch-cpu", "torch-ours-cpu", "jax-cpu", "jax-ours-cpu", "onnxruntime")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("name", CPU)
def test_every_cpu_competitor_computes_what_the_numpy_engine_computes(name):
    """Checked, and called twice more: states are carried, and inputs taken in turn."""
    rows = rows_of(["smoke"], lambda row: row.dtype == "float32")
    odd = ({"P": 4, "H": 7}, {"D": 2, "L": 2, "B": 3}, {"T": 9, "B": 5, "lengths": "unsorted"}, {"carried": True},
           {"T": 9, "B": 5, "lengths": "unsorted", "layout": "packed"}, {"input": "skip", "I": 8})  # fmt: skip
    lstm = [row for row in rows if row.problem.cell == "lstm"]
    rows += [row._replace(problem=row.problem.replace(**sizes)) for row in lstm for sizes in odd]
    refused = 0
    for row in rows:
        try:
            check(row, Local(name))
            Local(name).prepare(row)
        except NotRun:
            refused += 1
    assert refused <= (14 if name == "onnxruntime" else 4), f"of {len(rows)}"


@pytest.mark.parametrize("carried", [False, True])
def test_a_call_goes_through_the_inputs_from_the_states_that_the_last_one_left_where_they_carry(carried):
    given = []

    def infer(x, *states):
        given.append((x, states))
        return "y", len(given)

    problem = smoke().problem.replace(carried=carried)
    call, step = (adapters.in_turn(problem, which, "ab", infer, lambda x: f"step {x}") for which in ("infer", "step"))
    for _ in range(3):
        call()
    assert given == [("a", ()), ("b", (1,)), ("a", (2,))] if carried else [("a", ()), ("b", ()), ("a", ())]
    assert [step(), step(), step()] == ["step a", "step b", "step a"]


@pytest.mark.long
def test_the_hosts_share_is_timed_row_by_row(monkeypatch, tmp_path):
    monkeypatch.setattr(host_cost, "BLOCKS", 1)
    monkeypatch.setattr(host_cost, "BLOCK", 3)
    monkeypatch.setattr(host_cost, "IMPORTS", 1)
    monkeypatch.setattr("sys.argv", ["host_cost", "--out", str(tmp_path / "host.jsonl")])
    host_cost.main()
    rows = load(tmp_path / "host.jsonl").rows
    assert [row["goal"] for row in rows] == ["B1", "B2", "B3", None, "B6", "B6", None, None, None, "B8"]
    assert all(row["median_us"] > 0 for row in rows)
