"""The suites beside `speed`: each runs, on sizes that cost nothing, and writes a results file as the others do."""

import functools
import importlib.metadata
import subprocess
import sys
import types
from pathlib import Path

import pytest

from benchmarks import host_cost, long_sequences, scaling, torch_ddp
from benchmarks.results_files import load, place
from tests.helpers.oracles import need

need("torch")
ROOT = Path(__file__).parents[2]


def run(monkeypatch, suite, out, *arguments):
    monkeypatch.setattr(sys, "argv", [suite.__name__, "--out", str(out), *arguments])
    suite.main()
    return load(out)


@pytest.mark.long
@pytest.mark.parametrize("name", ["gpu", "host_cost", "long_sequences", "report", "scaling", "torch_ddp"])
def test_every_program_says_what_it_does(name):
    command = [sys.executable, "-m", f"benchmarks.{name}", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--out" in done.stdout


@pytest.mark.long
def test_the_hosts_share_is_timed_row_by_row(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(host_cost, "ROUNDS", 3)
    monkeypatch.setattr(host_cost, "IMPORTS", 1)
    found = run(monkeypatch, host_cost, tmp_path / "host.jsonl")
    assert {row["goal"] for row in found.rows} == {None, *(f"B{n}" for n in range(1, 9))}
    assert {row["extras"]["row"] for row in found.select(status="not_run")} == {"B4", "B5"}
    assert [row["value"] for row in found.select(goal="B7")] == [0] * 4
    assert sum(row["extras"]["row"] == "JAX" for row in found.rows) == 6
    assert all(row["median_us"] > 0 and row["first_us"] > 0 for row in found.select(goal="B2"))
    assert "B8 import pycudnnrnn, ops and libcudnn: " in capsys.readouterr().out


def test_the_hosts_calls_are_timed_in_turn_a_block_of_each_and_the_first_of_a_block_apart(monkeypatch):
    order, now = [], 0
    monkeypatch.setattr(host_cost, "time", types.SimpleNamespace(perf_counter_ns=lambda: now))

    def call(name):
        nonlocal now
        now += 1000 if order[-1:] == [name] else 7000
        order.append(name)

    found = host_cost.measured({name: functools.partial(call, name) for name in "ab"}, 2 * host_cost.BLOCK)
    assert "".join(order[-4 * host_cost.BLOCK :]) == ("a" * host_cost.BLOCK + "b" * host_cost.BLOCK) * 2
    assert found == {name: ([1.0] * 2 * (host_cost.BLOCK - 1), [7.0] * 2) for name in "ab"}


@pytest.mark.long
def test_long_sequences_are_timed_by_both_and_memory_is_told(monkeypatch, tmp_path, capsys):
    found = run(monkeypatch, long_sequences, tmp_path / "long.jsonl", "--times", "100", "--rounds", "2")
    assert {(row["competitor"], row["checkpoint_every"]) for row in found.select(status="ok")} == {
        (name, every) for name in ("numpy", "torch_cpu") for every in (None, 10, 100)
    }
    assert all(row["rounds"] == 2 and row["median_us"] > 0 for row in found.rows)
    assert all((row["estimated_bytes"] is None) == (row["competitor"] == "torch_cpu") for row in found.rows)
    assert "| 100 | 10 |" in capsys.readouterr().out


def test_a_run_of_long_sequences_that_is_ended_early_leaves_its_rows(monkeypatch, tmp_path):
    class Child:
        calls = 0

        def run(self, *_, **__):
            Child.calls += 1
            if Child.calls == 3:
                raise KeyboardInterrupt
            return types.SimpleNamespace(returncode=1, stdout="", stderr="it is not here")

    def absent(_):
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(long_sequences, "subprocess", Child())
    monkeypatch.setattr("importlib.metadata.version", absent)
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, long_sequences, tmp_path / "long.jsonl")
    written = load(tmp_path / "long.jsonl")
    assert [(row["status"], row["reason"]) for row in written.rows] == [("failed", "it is not here")] * 2
    assert "finished" not in written.environment
    assert "not run" in long_sequences.section(written.rows[:1])


def test_scaling_without_mpi_says_what_it_needs(monkeypatch, tmp_path):
    monkeypatch.setattr(scaling, "MPIEXEC", tmp_path / "mpiexec")
    with pytest.raises(SystemExit, match="scaling needs MPI's mpiexec"):
        run(monkeypatch, scaling, tmp_path / "scaling.jsonl")


@pytest.mark.long
def test_a_step_of_torchs_modules_is_timed_on_one_rank_and_on_two(monkeypatch, tmp_path):
    monkeypatch.setattr(torch_ddp, "PROBLEMS", ("lstm 3/4/2/5/1",))
    found = run(monkeypatch, torch_ddp, tmp_path / "ddp.jsonl", "--rounds", "1", "--steps", "3")
    assert [(row["ranks"], row["rounds"], row["status"]) for row in found.rows] == [(1, 3, "ok"), (2, 3, "ok")]


def test_a_folder_gets_a_file_by_machine_date_commit_and_suite(tmp_path):
    described = {"date": "2027-01-02T03:04:05", "commit": "abc", "dirty": True, "gpu": []}
    assert place(tmp_path, described, "host") == tmp_path / "cpu" / "2027-01-02-abc-dirty-host.jsonl"
    described |= {"dirty": False, "gpu": ["NVIDIA H200, 580, 1 MiB"]}
    assert place(tmp_path, described) == tmp_path / "nvidia-h200" / "2027-01-02-abc.jsonl"
    assert place(tmp_path / "a.jsonl", described) == tmp_path / "a.jsonl"
