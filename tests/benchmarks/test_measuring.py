"""How figures are made: percentiles, ratios, sample sizes, and the numeric gate."""

import numpy as np
import pytest

from benchmarks import data, figures, timing
from benchmarks.adapters import NotRun
from benchmarks.hosts import Failed
from benchmarks.problems import GROUPS, PASSES, Problem, parse, rows_of
from benchmarks.runner import Settings, check
from benchmarks.timing import Sample
from tests.benchmarks.rows import Fake, local, odd, ran, smoke


class StillClock:
    """A device on which every call takes `us`, and whose queue is its own."""

    def __init__(self, us):
        self.us, self.now = us, 0.0

    def call(self):
        self.now += self.us

    def mark(self):
        return self.now

    def microseconds(self, start, stop):
        return stop - start

    def synchronize(self):
        pass


def test_an_event_sample_times_as_many_calls_together_as_events_can_resolve():
    clock = StillClock(us=30.0)
    assert timing.calls_for(2000, clock.call, clock) == 128, "a power of two that lasts 2 ms: 64 do not"
    sample = timing.event_sample(clock.call, clock, seconds=0.001, least=5)
    assert sample.times_us == pytest.approx([30.0] * len(sample.times_us))
    assert 3 <= len(sample.times_us) <= 5
    assert set(sample.figures) == {"latency_us", "pipelined_us", "host_us", "together"}


@pytest.mark.parametrize("sample", [timing.host_sample, timing.event_sample])
def test_what_runs_before_each_call_is_not_timed(sample):
    clock, log = StillClock(us=30.0), []

    def call():
        log.append("call")
        clock.call()

    def before():
        log.append("before")
        clock.now += 5000

    found = sample(call, clock, seconds=0, before=before)
    assert log[:4] == ["before", "call"] * 2
    assert log.count("before") == log.count("call")
    assert max(found.times_us) < 5000


def test_a_summary_has_the_median_of_medians_and_percentiles_of_all():
    found = timing.summary(
        [Sample([1, 2, 9], {"host_us": 4}), Sample([3, 3, 3], {"host_us": 6}), Sample([7], {"host_us": 5})]
    )
    assert (found["median_us"], found["round_medians_us"], found["rounds"], found["calls"]) == (3, [2, 3, 7], 3, 7)
    assert found["host_us"] == 5
    assert found["p10_us"] == pytest.approx(np.percentile([1, 2, 9, 3, 3, 3, 7], 10))
    assert found["p90_us"] == pytest.approx(np.percentile([1, 2, 9, 3, 3, 3, 7], 90))


# --- the numbers that are checked before anything is timed


@pytest.mark.parametrize(("which", "result"), [("infer", "y"), ("infer", "cy"), ("step", "dx"), ("step", "dw")])
def test_wrong_numbers_have_no_time(which, result):
    def results(factor):
        def changed(row):
            found = local("numpy").results(row)
            return found | {result: found[result] * factor}

        return Fake("wrong", sample=None, results=changed)

    row = smoke(which=which)
    assert check(row, results(1))["error"] < 1e-6
    (found,) = ran(None, [row], [results(1.001)], Settings(1, 0.001)).rows
    assert found["status"] == "failed"
    assert "wrong numbers: an error of" in found["reason"]
    assert found["median_us"] is None
    with pytest.raises(Failed, match="an error of nan"):
        check(row, results(np.nan))


# --- the competitors, and the host's cost

CPU = ("numpy", "torch-cpu", "torch-ours-cpu", "jax-cpu", "jax-ours-cpu", "onnxruntime")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("name", CPU)
def test_every_cpu_competitor_computes_what_the_numpy_engine_computes(name):
    """Checked, and called twice more: states are carried."""
    rows = rows_of(["smoke"], lambda row: row.dtype == "float32")
    lstm = [row for row in rows if row.problem.cell == "lstm"]
    rows += odd(lstm) + [lstm[0]._replace(which=which) for which in PASSES]
    refused = 0
    for row in rows:
        try:
            check(row, local(name))
            local(name).prepare(row)
        except NotRun:
            refused += 1
    assert refused <= {"onnxruntime": 16, "jax-cpu": 11, "numpy": 0}.get(name, 4), f"of {len(rows)}"


# --- problems as text, and what they cost


@pytest.mark.parametrize("group", GROUPS.values(), ids=lambda group: group.name)
def test_the_name_of_a_problem_is_the_text_that_gives_it(group):
    for problem in group.problems:
        (again,) = parse(problem.name)
        assert again == problem.replace(passes=again.passes, dtypes=again.dtypes, tag="")
    assert len({problem.name for problem in group.problems}) == len(group.problems)


def test_sizes_can_be_lists_and_ranges():
    assert [(p.I, p.U) for p in parse("gru T=10 B=5 U=16:130:*2")] == [(16, 16), (32, 32), (64, 64), (128, 128)]
    assert [(p.B, p.T) for p in parse("gru B=1,8 T=10:30:+10 U=4 I=3")] == [
        (b, t) for b in (1, 8) for t in (10, 20, 30)
    ]
    assert [p.T for p in parse("gru T=5 B=1 U=4 T=7,9")] == [7, 9], "the last counts"


@pytest.mark.parametrize(
    "text", ["", "lstm", "lstm T=3 B=2", "foo T=3 B=2 U=4", "lstm T=0 B=2 U=4", "lstm T=3 B=2 U=4 backwards",
             "lstm T=3 B=2 U=a", "lstm T=3 B=2 U=4:8", "lstm T=3 B=2 U=4:8:+", "gru T=3 B=2 U=64:16:*2",
             "gru T=3 B=2 U=16:64:*1", "gru T=3 B=2 U=16:64:+0", "gru T=3 B=2 U=0:8:+2", "lstm T=3 B=2 D=2 U=4"],
)  # fmt: skip
def test_other_texts_are_refused_by_name(text):
    with pytest.raises(ValueError, match="expecting"):
        parse(text)


@pytest.mark.parametrize(
    "sizes", [{}, {"D": 2, "L": 3, "I": 7}, {"P": 2, "L": 2, "U": 5}, {"cell": "gru", "input": "skip", "I": 8},
              {"lengths": "ragged", "B": 5, "T": 9}],
)  # fmt: skip
def test_the_operations_of_a_problem_are_those_of_its_matrices(sizes):
    problem = Problem("lstm", 3, 2, 5, 8).replace(**sizes)
    drawn = data.draw(problem)
    products = sum(weight.size for weight in drawn.canonical.weights)
    steps = sum(drawn.lengths or [problem.T] * problem.B)
    assert figures.flops(problem, "infer") == 2 * steps * products
    assert figures.flops(problem, "step") == 3 * figures.flops(problem, "infer")
    arrays = products + sum(bias.size for bias in drawn.canonical.biases) + steps * (problem.I + drawn.dy.shape[2])
    assert figures.nbytes(problem, "backward-data", "float16") == 2 * arrays


@pytest.mark.parametrize(
    ("arithmetic", "memory", "host_us", "word"),
    [(0.6, 0.3, None, "arithmetic"), (0.3, 0.6, None, "memory"), (0.1, 0.2, None, "host"), (0.1, 0.2, 10, "latency"),
     (0.6, 0.3, 90, "host"), (0.6, 0.3, 10, "arithmetic")],
)  # fmt: skip
def test_a_row_is_bound_by_what_explains_its_time(arithmetic, memory, host_us, word):
    assert figures.bound(arithmetic, memory, 100, host_us) == word
