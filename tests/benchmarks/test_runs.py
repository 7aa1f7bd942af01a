"""Runs: turns, budgets, processes, and that every row which was asked for is reported."""

import os

import numpy as np
import pytest

from benchmarks.adapters import COMPETITORS, NotRun
from benchmarks.hosts import Failed, Remote
from benchmarks.problems import rows_of
from benchmarks.results_files import load, place
from benchmarks.runner import Asked, Part, Results, Settings, run
from tests.benchmarks.rows import Fake, local, ran, smoke


def refuse(_row):
    raise NotRun("it has no such thing")


def test_competitors_take_turns_and_nothing_that_one_does_ends_the_run(tmp_path):
    def broken():
        raise ZeroDivisionError("in the middle")

    Fake.log = []
    hosts = [Fake("a"), Fake("b"), Fake("refuses", results=refuse), Fake("breaks", sample=broken)]
    rows = [smoke(), smoke("gru")]
    ran(tmp_path / "out.jsonl", rows, hosts, Settings(rounds=3, sample_s=0))
    names = [host.name for host in hosts]
    assert Fake.log[:4] == [f"{name} started" for name in names], "side by side"
    assert Fake.log[4:11] == ["a", "b", "breaks", "b", "a", "a", "b"]
    assert Fake.log[-4:] == [f"{name} closed" for name in names]
    written = load(tmp_path / "out.jsonl")
    assert written.environment["versions"] == dict.fromkeys(names, "1")
    assert {"finished", "after", "peaks"} <= written.environment.keys()
    assert written.environment["libraries"] == {f"{name} 2": [f"lib{name}.so"] for name in names}
    by_name = {(row["competitor"], row["problem"]): row for row in written.rows}
    for row in rows:
        found = {name: by_name[name, row.problem.name] for name in names}
        assert (found["a"]["median_us"], found["a"]["round_medians_us"]) == (5.0, [5.0] * 3)
        assert (found["refuses"]["status"], found["refuses"]["reason"]) == ("not_run", "it has no such thing")
        assert (found["breaks"]["status"], found["breaks"]["reason"]) == ("failed", "ZeroDivisionError: in the middle")


@pytest.mark.parametrize(
    ("settings", "timed", "reason"),
    [
        (Settings(1, 0, budget_s=25), 2, "the run's budget of 25 s has no room for another row"),
        (Settings(1, 0, budget_s=30), 3, "the run's budget of 30 s has no room for another row"),
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
    parts = [Part(rows, [Asked("a", None, Fake("a", work))]), Part(rows[:1], [Asked("b", None, Fake("b"))])]
    said = []
    run(parts, results, settings, say=said.append, clock=lambda: now)
    assert len(said) == (settings.budget_s is not None)
    assert all(f"about {timed} of {len(rows) + 1} rows" in text for text in said)
    written = load(tmp_path / "out.jsonl").rows
    assert [row["status"] for row in written] == ["ok"] * timed + ["not_run"] * (len(rows) + 1 - timed)
    assert {row["reason"] for row in written[timed:]} == {reason}
    asked = [(row.problem.name, row.which, row.dtype) for row in (*rows, rows[0])]
    assert [(row["problem"], row["pass"], row["dtype"]) for row in written] == asked


@pytest.mark.parametrize("when", ["start", "versions", "results", "sample", "advance"])
def test_an_interrupt_at_any_time_leaves_a_file_with_every_row_once(when, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    host, asked, done = Fake("a"), rows_of(["smoke"]), when == "advance"
    if not done:
        monkeypatch.setattr(host, when, interrupt)
    ran(tmp_path / "out.jsonl", asked, [host], Settings(1, 0), **({"advance": interrupt} if done else {}))
    written = load(tmp_path / "out.jsonl")
    assert "finished" in written.environment
    assert [(row["problem"], row["pass"], row["dtype"]) for row in written.rows] == [
        (row.problem.name, row.which, row.dtype) for row in asked
    ]
    assert [row["status"] for row in written.rows[: done + 1]] == ["ok"] * done + ["not_run"]
    assert {row["reason"] for row in written.rows[done:]} == {"interrupted"}


@pytest.mark.parametrize(("settings", "last"), [(Settings(3, 0), 4), (Settings(100, 60, budget_s=25), None)])
def test_what_was_timed_before_a_run_ends_is_kept(settings, last):
    """An interrupt in the fourth call, or a budget of two and a half."""
    calls = 0

    def work():
        nonlocal calls
        calls += 1
        if calls == last:
            raise KeyboardInterrupt
        return [5.0]

    hosts = [Fake(name, work) for name in ("a", "b")]
    rows = ran(None, [smoke(), smoke("gru")], hosts, settings, clock=lambda: 10 * calls).rows
    found = [(row["competitor"], row["problem"][:4], row["status"], row.get("rounds")) for row in rows]
    assert found == [
        ("a", "lstm", "ok", 1), ("b", "lstm", "ok", 2), ("a", "gru ", "not_run", None), ("b", "gru ", "not_run", None),
    ]  # fmt: skip


def test_a_row_says_what_was_run_and_what_it_is_worth():
    row = smoke()._replace(caches="cold")
    row = row._replace(problem=row.problem.replace(lengths="ragged", T=9, B=3))
    (found,) = ran(None, [row], [Fake("a", lambda: [1e3, 2e3, 4e3])], Settings(2, 0)).rows
    assert (found["caches"], found["threads"], found["drawn_lengths"]) == ("cold", 2, row.problem.drawn_lengths)
    assert found["sizes"] | {"lengths": "ragged", "T": 9, "U": 8, "input": "linear"} == found["sizes"]
    assert (found["median_us"], found["lowest_us"], found["spread"]) == (2000, 1000, 0)
    assert found["gflops"] == pytest.approx(found["flops"] / 2000 / 1e3)
    assert found["share_of_peak"] == pytest.approx(found["gflops"] / 2)
    assert found["bound"] == "host"


def test_results_are_never_overwritten(tmp_path):
    described = {"date": "2027-01-02T03:04:05+00:00", "commit": "abc", "dirty": False, "gpu": [], "versions": {}}
    path = place(tmp_path, described)
    assert path == tmp_path / "cpu" / "2027-01-02-030405-abc.jsonl"
    assert place(tmp_path, described | {"date": "2027-01-02T03:04:06+00:00"}) != path
    Results(path, described)
    with pytest.raises(FileExistsError):
        Results(path, described)
    with pytest.raises(FileExistsError, match="never overwritten"):
        place(path, described)


def test_a_competitor_in_a_process_of_its_own_answers_as_one_in_this():
    remote = Remote(COMPETITORS["numpy"], threads=1)
    try:
        row = smoke("gru", "step")
        theirs, ours = remote.results(row), local("numpy").results(row)
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
    before, remote = dict(os.environ), Remote(COMPETITORS["numpy"], 7, answer_within_s=0.001)
    assert remote.versions()
    with pytest.raises(Failed, match="prepare: no answer within"):
        remote.prepare(smoke())
    with pytest.raises(NotRun, match="not asked again: it hung"):
        remote.results(smoke())
    remote.release()
    remote.close()
    assert dict(os.environ) == before
