"""Runs: turns, budgets, processes, and that every row which was asked for is reported."""

import os

import numpy as np
import pytest

from benchmarks.adapters import NotRun
from benchmarks.hosts import Failed, Local, Remote
from benchmarks.problems import GROUPS, rows_of
from benchmarks.results_files import load
from benchmarks.runner import Part, Results, Settings, run
from tests.benchmarks.rows import Fake, smoke


def refuse(_row):
    raise NotRun("it has no such thing")


def test_competitors_take_turns_and_nothing_that_one_does_ends_the_run(tmp_path):
    def broken():
        raise ZeroDivisionError("in the middle")

    Fake.log = []
    hosts = [Fake("a"), Fake("b"), Fake("refuses", results=refuse), Fake("breaks", sample=broken)]
    results = Results(tmp_path / "out.jsonl", {"versions": {}})
    rows = [smoke(), smoke("gru")]
    run([Part(rows, [(host.name, 2, host) for host in hosts])], results, Settings(rounds=3, sample_s=0))
    names = [host.name for host in hosts]
    assert Fake.log[:4] == [f"{name} started" for name in names], "side by side"
    assert Fake.log[4:11] == ["a", "b", "breaks", "b", "a", "a", "b"]
    assert Fake.log[-4:] == [f"{name} closed" for name in names]
    written = load(tmp_path / "out.jsonl")
    assert written.environment["versions"] == dict.fromkeys(names, "1")
    assert "finished" in written.environment
    by_name = {(row["competitor"], row["problem"]): row for row in written.rows}
    for row in rows:
        found = {name: by_name[name, row.problem.name] for name in names}
        assert (found["a"]["median_us"], found["a"]["round_medians_us"]) == (5.0, [5.0] * 3)
        assert (found["refuses"]["status"], found["refuses"]["reason"]) == ("not_run", "it has no such thing")
        assert (found["breaks"]["status"], found["breaks"]["reason"]) == ("failed", "ZeroDivisionError: in the middle")


@pytest.mark.parametrize(
    ("settings", "timed", "reason"),
    [
        (Settings(1, 0, budget_s=25), 3, "the run's budget of 25 s was spent"),
        (Settings(1, 0, rows_max=2), 2, "the run's 2 rows were measured"),
    ],
)
def test_what_is_not_reached_is_listed_as_not_run_with_the_reason(settings, timed, reason, tmp_path):
    """Each row takes 10 s of this clock."""
    now = 0.0

    def work():
        nonlocal now
        now += 10
        return [5.0]

    rows = rows_of(["smoke"], lambda row: row.dtype == "float32")
    results = Results(tmp_path / "out.jsonl", {"versions": {}})
    parts = [Part(rows, [("a", None, Fake("a", work))]), Part(rows[:1], [("b", None, Fake("b"))])]
    run(parts, results, settings, clock=lambda: now)
    written = load(tmp_path / "out.jsonl").rows
    assert [row["status"] for row in written] == ["ok"] * timed + ["not_run"] * (len(rows) + 1 - timed)
    assert {row["reason"] for row in written[timed:]} == {reason}
    asked = [(row.problem.name, row.which, row.dtype) for row in (*rows, rows[0])]
    assert [(row["problem"], row["pass"], row["dtype"]) for row in written] == asked


@pytest.mark.parametrize("when", ["start", "versions", "results", "sample", "advance"])
def test_an_interrupt_at_any_time_leaves_a_file_with_every_row_once(when, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    host, asked = Fake("a"), list(GROUPS["smoke"].rows())
    results = Results(tmp_path / "out.jsonl", {"versions": {}})
    if when != "advance":
        monkeypatch.setattr(host, when, interrupt)
    run([Part(asked, [("a", None, host)])], results, Settings(1, 0), interrupt if when == "advance" else lambda _: None)
    written = load(tmp_path / "out.jsonl")
    assert "finished" in written.environment
    assert [(row["problem"], row["pass"], row["dtype"]) for row in written.rows] == [
        (row.problem.name, row.which, row.dtype) for row in asked
    ]
    done = when == "advance"
    assert [row["status"] for row in written.rows[: done + 1]] == ["ok"] * done + ["not_run"]
    assert {row["reason"] for row in written.rows[done:]} == {"interrupted"}


def test_rows_are_on_the_disk_as_they_come(tmp_path):
    path, seen = tmp_path / "out.jsonl", []
    results = Results(path, {"versions": {}})
    part = Part([smoke(), smoke("gru")], [("a", None, Fake("a"))])
    run([part], results, Settings(1, 0), advance=lambda _: seen.append(len(path.read_text().splitlines())))
    assert seen == [2, 3]


def test_a_competitor_in_a_process_of_its_own_answers_as_one_in_this():
    remote = Remote("numpy", threads=1)
    try:
        row = smoke("gru", "step")
        theirs, ours = remote.results(row), Local("numpy").results(row)
        assert theirs.keys() == ours.keys()
        for name, array in ours.items():
            np.testing.assert_allclose(theirs[name], array, rtol=1e-5, atol=1e-6)
        assert len(os.sched_getaffinity(remote._process.pid)) == 1
        remote.prepare(row)
        assert len(remote.sample(0.001).times_us) >= 3
        with pytest.raises(NotRun, match="TF32"):
            remote.results(smoke(dtype="tf32"))
        remote._process.kill()
        with pytest.raises(Failed, match="ended with exit code -9"):
            remote.sample(0.001)
        assert remote.results(row).keys() == ours.keys(), "it is started again"
    finally:
        remote.close()


def test_one_that_gives_no_answer_is_not_asked_again_and_its_threads_leave_no_trace_here():
    """It may take long to start; a question may not."""
    before, remote = dict(os.environ), Remote("numpy", 7, answer_within_s=0.001)
    assert remote.versions()
    with pytest.raises(Failed, match="prepare: no answer within"):
        remote.prepare(smoke())
    with pytest.raises(NotRun, match="not asked again: it hung"):
        remote.results(smoke())
    remote.release()
    remote.close()
    assert dict(os.environ) == before
