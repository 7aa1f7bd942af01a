"""Runs: turns, budgets, processes, and what is reported of every row."""

import json
import os
import types
from typing import ClassVar

import numpy as np
import pytest

from benchmarks import data, timing
from benchmarks.adapters import COMPETITORS, NotRun, Prepared
from benchmarks.environment import environment, machine_folder
from benchmarks.hosts import Failed, Local, Remote, serve
from benchmarks.problems import GROUPS
from benchmarks.results_files import load
from benchmarks.runner import Pace, Part, Results, Settings, rows_of, run
from benchmarks.timing import Sample
from tests.benchmarks.rows import smoke


class Fake:
    """A competitor that says what it is told, and logs its turns."""

    log: ClassVar = []

    def __init__(self, name, sample=lambda: [5.0], results=None):
        self.name, self._sample, self._results = name, sample, results or Local("numpy").results

    def start(self):
        Fake.log.append(f"{self.name} started")

    def versions(self):
        Fake.log.append(f"{self.name} asked")
        return {self.name: "1"}

    def results(self, row):
        return self._results(row)

    def prepare(self, row):
        return {"algo": "standard"}

    def sample(self, seconds):
        Fake.log.append(self.name)
        return Sample(self._sample()), 1.0

    def release(self):
        pass

    def close(self):
        Fake.log.append(f"{self.name} closed")


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
    assert Fake.log[:8] == [f"{name} started" for name in names] + [f"{name} asked" for name in names], "side by side"
    assert Fake.log[8:15] == ["a", "b", "breaks", "b", "a", "a", "b"]
    assert Fake.log[-4:] == ["a closed", "b closed", "refuses closed", "breaks closed"]
    written = load(tmp_path / "out.jsonl")
    assert written.environment["versions"] == {"a": "1", "b": "1", "refuses": "1", "breaks": "1"}
    assert "finished" in written.environment
    by_name = {(row["competitor"], row["problem"]): row for row in written.rows}
    for row in rows:
        assert by_name["a", row.problem.name]["median_us"] == 5.0
        assert by_name["a", row.problem.name]["round_medians_us"] == [5.0] * 3
        assert by_name["refuses", row.problem.name]["reason"] == "it has no such thing"
        assert by_name["refuses", row.problem.name]["status"] == "not_run"
        assert by_name["breaks", row.problem.name]["reason"] == "ZeroDivisionError: in the middle"
        assert by_name["breaks", row.problem.name]["status"] == "failed"


class Busy(Fake):
    """A competitor whose every row takes so many seconds of the class's clock."""

    now = 0.0

    def __init__(self, name, seconds):
        super().__init__(name, self._work)
        self._seconds = seconds

    def _work(self):
        Busy.now += self._seconds
        return [5.0]


def timed_run(parts, budget_s, path=None):
    Busy.now = 0.0
    results = Results(path, {"versions": {}})
    run(parts, results, Settings(rounds=1, sample_s=0, budget_s=budget_s), clock=lambda: Busy.now)
    return results.rows


def test_every_row_of_a_named_group_is_in_the_output_whatever_was_chosen_or_reached(tmp_path):
    chosen = rows_of(["smoke"], lambda row: row.dtype == "float32")
    timed_run([Part(chosen, [("a", None, Busy("a", 4)), ("b", None, Busy("b", 6))])], 30, tmp_path / "out.jsonl")
    written = load(tmp_path / "out.jsonl").rows
    reported = {(row["problem"], row["pass"], row["dtype"]) for row in written}
    assert reported == {(r.problem.name, r.which, r.dtype) for r in GROUPS["smoke"].rows()}
    timed = [row for row in written if row["status"] == "ok"]
    assert len(timed) == 2 * 2, "a third would have ended when the 30 s were over"
    late = [row for row in written if row["reason"] == "it takes about 10 s, and 10 of the run's 30 s were left"]
    assert len(late) == 2 * (len(chosen) - 2)
    left = [row for row in written if row["competitor"] == "*"]
    assert len(left) == len(reported) - len(chosen)
    assert {row["status"] for row in left} == {"not_run"}


def test_a_row_is_begun_only_if_it_can_end_within_the_budget_by_what_its_competitors_took():
    slow, quick = ("slow", None, Busy("slow", 10)), ("quick", None, Busy("quick", 1))
    rows = rows_of(["smoke"], lambda row: row.dtype == "float32")
    found = timed_run([Part(rows[:4], [slow, quick]), Part(rows[4:8], [quick])], 35.5)
    by_row = {(row["competitor"], row["problem"], row["pass"]): row["reason"] for row in found}
    reasons = [by_row["quick", row.problem.name, row.which] for row in rows[:8]]
    assert reasons[:3] == [None] * 3
    assert reasons[3] == "it takes about 11 s, and 2.5 of the run's 35.5 s were left"
    assert reasons[4:6] == [None] * 2, "2.5 s are enough for two"
    assert reasons[6:] == ["it takes about 1 s, and 0.5 of the run's 35.5 s were left"] * 2
    assert Busy.now == 35


def test_one_that_has_run_nothing_yet_is_taken_to_need_what_the_others_do():
    pace = Pace()
    assert pace.of(["new"]) == 0
    for seconds in (1, 2, 90):
        pace.note("a", seconds)
    pace.note("b", 4)
    assert pace.of(["a"]) == 2, "one row that hung is not what a row takes"
    assert pace.of(["a", "b", "new"]) == 2 + 4 + 3


def test_a_run_of_so_many_rows_times_them_whatever_the_clock_says(tmp_path):
    chosen = rows_of(["smoke"], lambda row: row.dtype == "float32")
    results = Results(tmp_path / "out.jsonl", {"versions": {}})
    settings = Settings(rounds=1, sample_s=0, rows_max=2)
    run([Part(chosen, [("a", None, Fake("a"))]), Part(chosen, [("b", None, Fake("b"))])], results, settings)
    rows = load(tmp_path / "out.jsonl").rows
    assert [row["status"] for row in rows if row["competitor"] == "a"][:3] == ["ok", "ok", "not_run"]
    assert len([row for row in rows if row["status"] == "ok"]) == 2, "of all parts together"
    assert len([row for row in rows if row["reason"] == "the run's 2 rows were measured"]) == 2 * len(chosen) - 2


@pytest.mark.parametrize("when", ["start", "versions", "results", "sample", "add", "advance"])
def test_an_interrupt_at_any_time_leaves_a_file_with_every_row_once(when, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    def add(row):
        Results.add(results, row)
        if len(results.rows) == 3:
            interrupt()

    host, asked = Fake("a"), list(GROUPS["smoke"].rows())
    results = Results(tmp_path / "out.jsonl", {"versions": {}})
    if when == "add":
        monkeypatch.setattr(results, "add", add)
    elif when != "advance":
        monkeypatch.setattr(host, when, interrupt)
    run([Part(asked, [("a", None, host)])], results, Settings(1, 0), interrupt if when == "advance" else lambda _: None)
    written = load(tmp_path / "out.jsonl")
    assert "finished" in written.environment
    assert [(row["problem"], row["pass"], row["dtype"]) for row in written.rows] == [
        (row.problem.name, row.which, row.dtype) for row in asked
    ]
    done = {"advance": 1, "add": 3}.get(when, 0)
    assert [row["status"] for row in written.rows[: done + 1]] == ["ok"] * done + ["not_run"]
    assert {row["reason"] for row in written.rows[done:]} == {"interrupted"}


def test_rows_are_on_the_disk_as_they_come(tmp_path):
    path = tmp_path / "out.jsonl"
    seen = []
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
        sample, calibration = remote.sample(0.001)
        assert len(sample.times_us) >= 3
        assert calibration > 0
        with pytest.raises(NotRun, match="TF32"):
            remote.results(smoke(dtype="tf32"))
        remote._process.kill()
        with pytest.raises(Failed, match="ended with exit code -9"):
            remote.sample(0.001)
        assert remote.results(row).keys() == ours.keys(), "it is started again"
    finally:
        remote.close()


class Deaf:
    """A process that never answers."""

    def __init__(self, **_):
        self.alive = True

    @staticmethod
    def Pipe():  # noqa: N802
        end = types.SimpleNamespace(close=lambda: None, send=lambda _: None, poll=lambda _: False)
        return end, end

    def start(self):
        Deaf.started += 1

    def join(self, *_):
        pass

    def kill(self):
        self.alive = False

    def is_alive(self):
        return self.alive


def test_one_that_twice_gives_no_answer_is_not_asked_again(monkeypatch):
    Deaf.started, Deaf.Process = 0, Deaf
    monkeypatch.setattr("benchmarks.hosts.multiprocessing.get_context", lambda _: Deaf)
    remote = Remote("numpy", None, answer_within_s=60)
    for _ in range(2):
        with pytest.raises(Failed, match="prepare: no answer within 60 s"):
            remote.prepare(smoke())
    with pytest.raises(NotRun, match="not asked again: 2 times no answer within 60 s"):
        remote.results(smoke())
    remote.release()
    remote.close()
    assert Deaf.started == 2


def test_a_process_imports_what_it_needs_before_it_is_asked(monkeypatch):
    imported = []

    class Gone:
        def recv(self):
            imported.append("asked")
            raise EOFError

    monkeypatch.setattr("benchmarks.hosts.signal.signal", lambda *_: None)
    monkeypatch.setattr(Local, "versions", lambda self: imported.append("imported") or 1 / 0)
    serve(Gone(), "numpy", None)
    assert imported == ["imported", "asked"]


def test_thread_counts_reach_the_process_and_leave_no_trace_here(monkeypatch):
    started = []

    class Context:
        @staticmethod
        def Pipe():  # noqa: N802
            return None, type("End", (), {"close": lambda self: None})()

        class Process:
            def __init__(self, **_):
                pass

            def start(self):
                started.append(os.environ["OMP_NUM_THREADS"])

    monkeypatch.setattr("benchmarks.hosts.multiprocessing.get_context", lambda _: Context)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = dict(os.environ)
    Remote("numpy", threads=7).start()
    assert started == ["7"]
    assert dict(os.environ) == before


def test_a_prepared_call_is_warmed_up_before_it_is_timed(monkeypatch):
    calls = []

    def prepare(*_):
        return Prepared(lambda: calls.append(1), dict)

    monkeypatch.setattr("benchmarks.adapters.numpy_engine.prepare", prepare)
    host = Local("numpy")
    host.prepare(smoke())
    assert len(calls) == timing.WARM_UP
    host.release()
    with pytest.raises(Failed, match="nothing is prepared"):
        host.sample(0)


def test_the_environment_names_machine_commit_versions_and_command():
    found = environment("a command", rounds=3)
    assert {"date", "commit", "dirty", "command", "machine", "gpu", "versions", "clocks", "rounds"} <= found.keys()
    assert json.loads(json.dumps(found)) == found
    assert machine_folder({"gpu": []}) == "cpu"
    assert machine_folder({"gpu": ["NVIDIA H200, 580.159.03, 143771 MiB"]}) == "nvidia-h200"


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, competitor in COMPETITORS.items() if competitor.device == "cuda"])
def test_what_is_not_here_is_not_run_with_a_reason(name):
    competitor = COMPETITORS[name]
    problem = smoke().problem
    with pytest.raises(NotRun) as caught:
        competitor.prepare(problem, "infer", "float32", data.draw(problem))
    assert len(str(caught.value)) > 10
