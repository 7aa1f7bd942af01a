"""Runs: turns, budgets, processes, and what is reported of every row."""

import itertools
import json
import os
from typing import ClassVar

import numpy as np
import pytest

from benchmarks import data, timing
from benchmarks.adapters import COMPETITORS, NotRun, Prepared
from benchmarks.environment import environment, machine_folder
from benchmarks.hosts import Failed, Local, Remote
from benchmarks.problems import GROUPS
from benchmarks.results_files import load
from benchmarks.runner import Part, Results, Settings, rows_of, run
from benchmarks.timing import Sample
from tests.benchmarks.rows import smoke


class Fake:
    """A competitor that says what it is told, and logs its turns."""

    log: ClassVar = []

    def __init__(self, name, sample=lambda: [5.0], results=None):
        self.name, self._sample, self._results = name, sample, results or Local("numpy").results

    def versions(self):
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
    assert Fake.log[:7] == ["a", "b", "breaks", "b", "a", "a", "b"]
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


def test_every_row_of_a_named_group_is_in_the_output_whatever_was_chosen_or_reached(tmp_path):
    now = itertools.count(0, 10)
    chosen = rows_of(["smoke"], lambda row: row.dtype == "float32")
    results = Results(tmp_path / "out.jsonl", {"versions": {}})
    settings = Settings(rounds=1, sample_s=0, budget_s=35)
    run([Part(chosen, [("a", None, Fake("a")), ("b", None, Fake("b"))])], results, settings, clock=lambda: next(now))
    written = load(tmp_path / "out.jsonl").rows
    reported = {(row["problem"], row["pass"], row["dtype"]) for row in written}
    assert reported == {(r.problem.name, r.which, r.dtype) for r in GROUPS["smoke"].rows()}
    timed = [row for row in written if row["status"] == "ok"]
    assert len(timed) == 2 * 3, "35 s are spent at the fourth row"
    late = [row for row in written if row["reason"] == "the run's budget of 35 s was spent"]
    assert len(late) == 2 * (len(chosen) - 3)
    left = [row for row in written if row["competitor"] == "*"]
    assert len(left) == len(reported) - len(chosen)
    assert {row["status"] for row in left} == {"not_run"}


def test_a_run_of_so_many_rows_times_them_whatever_the_clock_says(tmp_path):
    chosen = rows_of(["smoke"], lambda row: row.dtype == "float32")
    results = Results(tmp_path / "out.jsonl", {"versions": {}})
    settings = Settings(rounds=1, sample_s=0, rows_max=2)
    run([Part(chosen, [("a", None, Fake("a"))]), Part(chosen, [("b", None, Fake("b"))])], results, settings)
    rows = load(tmp_path / "out.jsonl").rows
    assert [row["status"] for row in rows if row["competitor"] == "a"][:3] == ["ok", "ok", "not_run"]
    assert len([row for row in rows if row["status"] == "ok"]) == 2, "of all parts together"
    assert len([row for row in rows if row["reason"] == "the run's 2 rows were measured"]) == 2 * len(chosen) - 2


def test_ctrl_c_leaves_a_whole_file(tmp_path):
    def interrupt():
        raise KeyboardInterrupt

    results = Results(tmp_path / "out.jsonl", {"versions": {}})
    run([Part(list(GROUPS["smoke"].rows()), [("a", None, Fake("a", sample=interrupt))])], results, Settings(1, 0))
    rows = load(tmp_path / "out.jsonl").rows
    assert len(rows) == len(list(GROUPS["smoke"].rows()))
    assert {row["reason"] for row in rows} == {"interrupted"}


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
    Remote("numpy", threads=7)._start()
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


@pytest.mark.parametrize("name", [name for name, competitor in COMPETITORS.items() if competitor.device == "cuda"])
def test_what_is_not_here_is_not_run_with_a_reason(name):
    competitor = COMPETITORS[name]
    problem = smoke().problem
    with pytest.raises(NotRun) as caught:
        competitor.prepare(problem, "infer", "float32", data.draw(problem))
    assert len(str(caught.value)) > 10
