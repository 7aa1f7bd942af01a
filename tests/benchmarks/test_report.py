"""The report: a function of the results files; wrong units, dropped rows and hidden failures are found here."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import plots, report
from benchmarks.goals import GOALS, Goal, Reading, compare, readings
from benchmarks.problems import GROUPS, rows_of
from benchmarks.results_files import Run, load, runs
from benchmarks.runner import _record

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    "date": "2027-01-01T00:00:00+00:00", "commit": "abc", "dirty": False, "command": "a command", "machine": "a CPU",
    "cores": 4, "gpu": ["NVIDIA H200, 580, 143771 MiB"], "versions": {"cudnn": "9.28.0"}, "finished": "later",
}  # fmt: skip


def made_run(rows, machine="nvidia-h200", **environment):
    return Run(Path(f"results/{machine}/2027-01-01-abc.jsonl"), ENVIRONMENT | environment, tuple(rows))


def timed(row, competitor, us, **figures):
    figures = {"host_us": us / 10, "latency_us": us * 2, "pipelined_us": us} | figures
    return _record(row, competitor, figures.pop("threads", None), "ok", None, **({"median_us": us} | figures))


def untimed(row, competitor, reason="it was refused", **more):
    return _record(row, competitor, more.pop("threads", None), "not_run", reason)


def test_a_ratio_is_taken_inside_the_rounds_where_both_have_them():
    row = rows_of(["cpu"])[0]
    ours = timed(row, "numpy", 5.0, round_medians_us=[1.0, 9.0, 5.0])
    theirs = timed(row, "torch-cpu", 5.0, round_medians_us=[2.0, 18.0, 5.0])
    assert compare(made_run([ours, theirs]), "numpy", "torch-cpu").values == (0.5,)
    del theirs["round_medians_us"]
    assert compare(made_run([ours, theirs]), "numpy", "torch-cpu").values == (1.0,)


@pytest.mark.parametrize(
    ("reading", "verdict"),
    [
        (None, "not run"), (Reading(1.03, ""), "missed"), (Reading(1.02, ""), "met"), (Reading(None, ""), "measured"),
        (Reading(0.5, "", 2), "missed: 2 rows without a figure"), (Reading(None, "", 3), "not run"),
    ],
)  # fmt: skip
def test_a_goal_is_met_at_its_limit_and_missed_where_a_row_has_no_figure(reading, verdict):
    assert Goal("D2", "", 1.02).verdict(reading) == verdict


def test_goals_are_read_off_a_gpus_run_in_their_units():
    factors = {"raw": 1.0, "raw-graph": 0.9, "plan": 1.02, "graph": 0.5, "eager": 2.0, "auto": 0.8, "torch": 1.6,
               "torch-graph": 0.6, "torch-ours": 1.2, "rule": 1.1, "standard": 1.3, "jax": 3.0}  # fmt: skip
    groups = ("db10", "db10-lin", "stream", "flashrnn", "frameworks", "holes")
    rows = rows_of(groups, lambda row: row.dtype in ("float16", "bfloat16", "float32"))
    run = made_run([timed(row, name, 100.0 * factor) for row in rows for name, factor in factors.items()])
    read = {goal.id: reading for goal in GOALS for _, reading in readings(goal, [run])}
    near = pytest.approx
    for goal, ours, theirs in (
        ("B4", "eager", "torch"), ("D1", "plan", "raw"), ("D2", "auto", "torch"), ("D3", "plan", "torch"),
        ("D4", "graph", "torch-graph"), ("D5", "auto", "rule"), ("D6", "auto", "standard"), ("D7", "eager", "jax"),
        ("D8", "graph", "plan"), ("D9", "graph", "eager"), ("D10", "torch-ours", "torch"),
    ):  # fmt: skip
        assert read[goal].value == near(factors[ours] / factors[theirs]), goal
        assert read[goal].missing == 0
    assert read["B1"].value == near(0.2, abs=1e-9), "microseconds"
    assert read["B5"].value == near(-4.0)
    assert [read[f"P{n}"].value for n in (1, 2, 3, 4, 5)] == [near(0.05)] * 5, "milliseconds, of the fastest of ours"
    assert {goal.id for goal in GOALS} - read.keys() == {"B2", "B6", "B8", "C1", "C2", "C3", "C4", "C5"}
    text = report.goals([run])
    assert "| D1 |" in text
    assert "| B8 | import of the binding, no GPU touched, ms | 300 | not run | not run |" in text


FACTORS = {"compiled": 0.8, "numpy": 1.5, "torch-cpu": 1.0, "onnxruntime": 2.0, "jax-cpu": 4.0}


def test_the_page_has_float32_on_one_thread_first_in_milliseconds_and_folds_the_others():
    """Torch takes 1 ms, a tenth more for a training step, and the others their multiple; onnxruntime trains nothing."""
    records = []
    for row in rows_of(["cpu"]):
        us = {name: 1000 * factor * (1.1 if row.which == "step" else 1) for name, factor in FACTORS.items()}
        if row.which == "step":
            del us["onnxruntime"]
            records.append(untimed(row, "onnxruntime", "step: it | has\nnone", threads=1))
        records += [timed(row, name, value, threads=1) for name, value in us.items()]
    run = made_run(records, "cpu")
    half = made_run([row for row in records if row["pass"] == "infer"], "cpu")
    text = report.cpu([half, run])
    assert text.startswith(
        "**On a CPU, our time divided by torch's is 0.80 for a forward, and 0.80 for a training step"
    )
    first, folded = text.split("<details>")
    assert "<summary>float64, 1 thread</summary>" in folded
    assert "| problem | pass | ours, compiled | ours, NumPy | torch | onnxruntime | JAX |" in first
    table = [line.strip("| ").split(" | ") for line in first.splitlines() if re.match(r"\| (LSTM|GRU) T", line)]
    assert [row[1] for row in table] == ["forward"] * 10 + ["training step"] * 10
    ours = ["0.8", "1.5", "1 (**0.80**)", "2 (**0.40**)", "4 (**0.20**)"]
    assert table[2] == ["LSTM T100 B64 U512 L2", "forward", *ours]
    assert table[-1][2:] == ["0.88", "1.65", "1.1 (**0.80**)", "not run", "4.4 (**0.20**)"]
    assert "- onnxruntime, 20 rows: not run (step: it | has none)" in text
    bars = [list(map(len, axes.containers)) for axes in plots.bars(*report.ratios_of(run)).axes]
    assert bars == [[10, 10], [10, 10]]


def test_a_gpus_run_lists_what_was_not_run_and_marks_what_the_hosts_clock_timed():
    rows = rows_of(["stream"], lambda row: row.dtype == "float16")
    records = [timed(row, name, 1234.0 * (1 + (name == "torch"))) for row in rows for name in ("plan", "torch")]
    records += [timed(rows[0], "jax", 5.0, clock="host"), *(untimed(row, "raw", "no g++") for row in rows)]
    text = report.gpu([made_run(records)])
    assert f"- raw, {len(rows)} rows: not run (no g++)" in text
    assert "| 1,234 | 2,468 (**0.50**) | 5 (h) (246.80) | not run |" in text
    assert (
        f"| stream | infer | torch | median 0.50, geomean 0.50, 0.50 to 0.50, {len(rows)} of {len(rows)} rows |" in text
    )
    assert f"| stream | infer | raw | no figure for any of {len(rows)} rows |" in text
    assert "No speed has been measured on a GPU yet" in report.gpu([])
    assert "- `stream`:" not in report.not_measured([made_run(records)])


def test_the_documents_are_what_the_committed_results_make():
    found = report.document(runs())
    assert report.DOCUMENT.read_text() == found, "make docs-performance"
    assert report.GOALS_DOCUMENT.read_text() == report.goals_document(runs()), "make docs-performance"
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", found)
    assert {f"performance/{p.name}" for p in report.DOCUMENT.parent.glob("performance/*")} == set(pictures)
    for path in (report.DOCUMENT, report.GOALS_DOCUMENT):
        targets = re.findall(r"\]\(([^)]+)\)|^\[\d+\]: (\S+)$", path.read_text(), re.MULTILINE)
        assert all((path.parent / target).exists() for target in map("".join, targets))


@pytest.mark.long
def test_the_command_runs_a_group_and_writes_every_row(tmp_path):
    out = tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "benchmarks", "--group", "smoke", "--dtype", "float64", "--pass", "infer"]
    command += ["--against", "onnxruntime", "--threads", "1", "--rounds", "1", "--sample", "0.001", "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "- onnxruntime, 4 rows: not run (its operators on the CPU have no float64)" in done.stdout
    written = load(out)
    assert len(written.rows) == 4 * 3
    assert [row["status"] for row in written.select(competitor="numpy")] == ["ok"] * len(GROUPS["smoke"].problems)
