"""The report: a function of the results files, complete, and with every goal as measured or not run."""

import json
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import goals, plots, report, suite
from benchmarks.adapters import COMPETITORS
from benchmarks.goals import GOALS, Goal, Measured, Ratios, compare
from benchmarks.model import flops
from benchmarks.problems import GROUPS
from benchmarks.results_files import KEYS, Run, load, newest, runs
from benchmarks.runner import Part, _record, rows_of
from pycudnnrnn.errors import PycudnnrnnError

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    "date": "2027-01-01T00:00:00+00:00", "commit": "abc", "dirty": False, "command": "a command", "machine": "a CPU",
    "cores": 4, "gpu": ["NVIDIA H200, 580, 143771 MiB"], "versions": {"cudnn": "9.28.0"}, "finished": "later",
}  # fmt: skip


def made_run(rows, machine="nvidia-h200", **environment):
    return Run(Path(f"results/{machine}/2027-01-01-abc.jsonl"), ENVIRONMENT | environment, tuple(rows))


def timed(row, competitor, us, **figures):
    figures = {"host_us": us / 10, "latency_us": us * 2, "latency_p99_us": us * 3, "pipelined_us": us} | figures
    return _record(row, competitor, figures.pop("threads", None), "ok", None, **({"median_us": us} | figures))


def untimed(row, competitor, reason="it was refused"):
    return _record(row, competitor, None, "not_run", reason)


def test_the_documents_are_what_the_committed_results_make():
    found = report.document(runs())
    assert report.DOCUMENT.read_text() == found, "make docs-performance"
    assert report.GOALS_DOCUMENT.read_text() == report.goals_document(runs()), "make docs-performance"
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", found)
    assert {str(p.relative_to(report.DOCUMENT.parent)) for p in report.DOCUMENT.parent.glob("performance/*")} == set(
        pictures
    )


def test_links_of_the_documents_lead_to_files():
    for path in (report.DOCUMENT, report.GOALS_DOCUMENT):
        targets = re.findall(r"\]\(([^)]+)\)|^\[\d+\]: (\S+)$", path.read_text(), re.MULTILINE)
        assert len(targets) > 3
        for target in map("".join, targets):
            assert (path.parent / target).exists(), target


def test_the_page_is_short_plain_and_narrow():
    """A reader gets the result first. Prose is wrapped, code has 88 columns, and goals are elsewhere."""
    text = report.DOCUMENT.read_text()
    lines = text.splitlines()
    assert re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL).count("\n") <= 140
    assert lines[4].startswith("**On a CPU, a forward takes ")
    code = re.findall(r"`([^`\n]+)`", text) + re.findall(r"^\$ .*$", text, re.MULTILINE)
    assert max(map(len, code)) <= 88
    assert [line for line in lines if len(line) > 120 and line[0] not in "|-"] == []
    assert "moonshot" not in text


def test_every_committed_results_file_is_one():
    files = [path for path in report.FOLDER.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert load(path).rows


def test_every_goal_is_listed_as_measured_or_not_run():
    text = report.goals([])
    wanted = [f"{letter}{n}" for letter, most in (("B", 8), ("C", 6), ("D", 11), ("P", 10)) for n in range(1, most + 1)]
    assert [goal.id for goal in GOALS] == wanted
    for goal in wanted:
        (line,) = re.findall(rf"^\| {goal} \|.*$", text, re.MULTILINE)
        assert line.endswith("| not run | not run |")
    assert f"Goals without a result: {', '.join(wanted)}." in report.not_measured([])


# --- ratios and goals


def test_ratios_count_the_rows_without_a_figure():
    rows = rows_of(["db10-lin"], lambda row: row.dtype == "float16" and row.which == "infer")
    records = []
    for i, row in enumerate(rows):
        records += [timed(row, "auto", 10.0 * (i + 1)), timed(row, "torch", 20.0 * (i + 1))]
    records[0] = untimed(rows[0], "auto")
    records += [_record(r, "*", None, "not_run", "not chosen") for r in rows_of(["db10-lin"]) if r not in rows]
    found = compare(made_run(records), "auto", "torch")
    assert (found.wanted, found.missing) == (80, 71)
    assert found.median == found.geomean == found.worst == 0.5
    assert "9 of 80 rows; 71 without a figure" in str(found)
    assert str(Ratios((), 3)) == "no figure for any of 3 rows"


def test_a_ratio_is_taken_inside_the_rounds_where_both_have_them():
    row = rows_of(["cpu"])[0]
    ours = timed(row, "numpy", 5.0, round_medians_us=[1.0, 9.0, 5.0])
    theirs = timed(row, "torch-cpu", 5.0, round_medians_us=[2.0, 18.0, 5.0])
    assert compare(made_run([ours, theirs]), "numpy", "torch-cpu").values == (0.5,)
    del theirs["round_medians_us"]
    assert compare(made_run([ours, theirs]), "numpy", "torch-cpu").values == (1.0,)


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (None, "not run"),
        (Measured((1.03, 0.5), ""), "missed"),
        (Measured((1.0, 0.9), ""), "must met"),
        (Measured((1.0, 0.8), ""), "target met"),
        (Measured((1.0, 0.5), ""), "moonshot met"),
        (Measured((1.0, 0.5), "", missing=2), "missed: 2 rows without a figure"),
        (Measured((), ""), "measured"),
        (Measured((), "", missing=3), "not run"),
    ],
)
def test_a_verdict_is_the_last_level_whose_limits_all_hold(measured, verdict):
    goal = Goal("D2", "", "", "", "", ((1.02, 9.0), (1.02, 0.85), (1.02, 0.6)))
    assert goal.verdict(measured) == verdict


def test_more_is_better_where_a_goal_is_a_rate():
    goal = Goal("P5", "", "", "", "", (200, 300, 400), more_is_better=True)
    assert [goal.verdict(Measured((rate,), "")) for rate in (199.0, 200.0, 350.0, 400.0)] == [
        "missed", "must met", "target met", "moonshot met"
    ]  # fmt: skip


def whole_gpu_run():
    """Every row of every group by every CUDA competitor: C++ takes 100 us, and each of the others its own multiple."""
    factors = {name: 1 + 0.1 * i for i, name in enumerate(n for n, c in COMPETITORS.items() if c.device == "cuda")}
    groups = ("db10", "db10-lin", "stream", "flashrnn", "ragged")
    some = rows_of(groups, lambda row: row.dtype in ("float16", "bfloat16"))
    some += rows_of(["deepbench"], lambda row: row.dtype == "float16" and row.problem.tag == "training")
    records = []
    for row in some:
        us = 100.0 * (row.problem.T if row.problem.T > 4 else 1)
        records += [timed(row, name, us * factor / factors["raw"]) for name, factor in factors.items()]
    return factors, made_run(records)


def test_goals_are_read_off_a_gpus_run():
    factors, run = whole_gpu_run()
    read = {goal.id: goal.read(run) for goal in GOALS if goal.read}
    near = pytest.approx
    assert read["B1"].values[0] == near(statistic(run, "plan") - statistic(run, "raw"))
    assert read["B4"].values == (near(factors["eager"] / factors["torch"]),)
    assert read["D1"].values == (near(factors["plan"] / factors["raw"]),)
    assert read["D2"].values == (near(factors["auto"] / factors["torch"]),) * 2
    assert read["D3"].values == (near(factors["plan"] / factors["torch"]),)
    assert read["D4"].values == (near(factors["graph"] / factors["torch-graph"]),)
    assert read["D5"] is None, "there are no holes in this run"
    best = min(factors[name] for name in ("standard", "persist_static", "persist_dynamic", "small_h"))
    assert read["D6"].values == (near(factors["auto"] / best),)
    assert read["D11"].values == (near(factors["auto"] / factors["torch"]),)
    assert read["P1"].values == (near(1024 * 100 * factors["eager"] / factors["raw"] / 1e3),)
    floors = factors["eager"] / factors["raw"]
    assert read["P5"].values == (near(429.5e9 / (2500 * floors) / 1e6, rel=1e-3),)
    assert read["P8"].values == (near(15.0 * floors),)
    assert read["P9"].values == (
        near(200 * factors["graph"] / factors["raw"]),
        near(300 * factors["graph"] / factors["raw"]),
    )
    assert read["P4"].missing == 0
    assert "52 of 52 rows" in read["P4"].text
    assert read["P7"].missing == 0


def statistic(run, name):
    return sorted(row["host_us"] for row in run.select(competitor=name, which="infer"))[
        len(run.select(competitor=name, which="infer")) // 2
    ]


def test_cpu_goals_take_the_compiled_kernels_worst_row_of_the_sizes_they_name():
    records = []
    for row in rows_of(["cpu"]):
        for threads, factor in ((1, 9.0), (2, 2.0)):
            wide = row.problem.B >= 16
            records += [
                timed(row, "compiled", factor * (1 if wide else 0.1), threads=threads),
                timed(row, "numpy", 100.0, threads=threads),
                timed(row, "torch-cpu", 1.0, threads=threads),
            ]
    run = made_run(records, "cpu")
    read = {goal.id: goal.read(run) for goal in GOALS if goal.id[0] == "C"}
    assert [read[f"C{n}"].values for n in range(1, 6)] == [(9.0,), (9.0,), (9.0,), (0.9,), (0.9,)]
    assert read["C6"].text.startswith("needs numpy>=1.26, safetensors>=0.4.3")
    assert read["C1"].text.endswith("12 of 12 rows")


# --- the CPU's comparison


FACTORS = {"compiled": 0.8, "numpy": 1.5, "torch-cpu": 1.0, "onnxruntime": 2.0, "jax-cpu": 4.0}


def cpu_run(factors=FACTORS, settings=(("float32", 1), ("float32", 2), ("float64", 1), ("float64", 2)), **changes):
    """Every row of the group `cpu`: torch takes 1 ms, and each of the others its own multiple.

    The compiled kernels are 1.5 times as slow with 2 threads, and twice as fast in float64. onnxruntime has no training
    step. `changes` maps a competitor to a function of its records.
    """
    records = []
    for row in rows_of(["cpu"]):
        for name, factor in factors.items():
            for threads in (threads for dtype, threads in settings if dtype == row.dtype):
                us = 1000 * factor * (1.1 if row.which == "step" else 1)
                if name == "compiled":
                    us *= (1.5 if threads == 2 else 1) * (0.5 if row.dtype == "float64" else 1)
                if name == "onnxruntime" and row.which == "step":
                    records.append(untimed(row, name, "step: it has none") | {"threads": threads})
                else:
                    records.append(timed(row, name, us, threads=threads))
    return made_run([changes.get(r["competitor"], lambda r: r)(r) for r in records], "cpu")


def joined(text):
    return " ".join(text.split())


def rows_of_table(text):
    return [line.strip("| ").split(" | ") for line in text.splitlines() if re.match(r"\| (LSTM|GRU) T", line)]


def test_the_page_has_float32_on_one_thread_first_and_folds_the_other_settings():
    text = report.cpu([cpu_run()])
    assert joined(text).startswith(
        "**On a CPU, a forward takes 0.80 times as long as torch's (0.80 to 0.80), and a training step 0.80 times "
        "(0.80 to 0.80).** Median (and range) of 10 problems, with our compiled kernels, float32, 1 thread. ![our time"
    )
    assert "Not in these results" not in text
    first, *folded = text.split("<details>")
    assert "## CPU: float32, 1 thread\n" in first
    assert "| problem | pass | ours, compiled | ours, NumPy | torch | onnxruntime | JAX |" in first
    table = rows_of_table(first)
    assert [row[1] for row in table] == ["forward"] * 10 + ["training step"] * 10
    assert len({tuple(row[:2]) for row in table}) == 20
    ours = ["0.8", "1.5", "1 (**0.80**)", "2 (**0.40**)", "4 (**0.20**)"]
    assert table[2] == ["LSTM T100 B64 U512 L2", "forward", *ours]
    steps = ["0.88", "1.65", "1.1 (**0.80**)", "not run", "4.4 (**0.20**)"]
    assert table[-1] == ["GRU T1 B1 U512", "training step", *steps]
    summaries = [part.partition("<summary>")[2].partition("</summary>")[0] for part in folded]
    assert summaries == [
        f"{setting} (median: forward {ratio} of torch's time, training step {ratio} of torch's time)"
        for setting, ratio in (
            ("float32, 2 threads", "1.20"),
            ("float64, 1 thread", "0.40"),
            ("float64, 2 threads", "0.60"),
        )
    ]
    assert rows_of_table(folded[0])[0][2:] == ["1.2", "1.5", "1 (1.20)", "2 (**0.60**)", "4 (**0.30**)"]
    assert all(len(rows_of_table(part)) == 20 for part in folded)
    assert "- onnxruntime, 40 rows: not run (step: it has none)" in text


def test_the_chart_has_a_bar_for_each_problem_pass_and_kind_of_kernels():
    figure = plots.bars(cpu_run())
    for axes, title in zip(figure.axes, ("forward", "training step"), strict=True):
        assert axes.get_title() == f"{title}, float32, 1 thread"
        compiled, numpy = axes.containers
        assert [len(compiled), len(numpy)] == [10, 10]
        assert [bar.get_width() for bar in compiled] == pytest.approx([0.8] * 10)
        assert [bar.get_width() for bar in numpy] == pytest.approx([1.5] * 10)
        assert [compiled.get_label(), numpy.get_label()] == ["ours, compiled", "ours, NumPy"]


def test_without_compiled_kernels_the_page_compares_numpys_and_says_so():
    """Also when only two threads were measured, as in the oldest results."""
    run = cpu_run({name: factor for name, factor in FACTORS.items() if name != "compiled"}, (("float32", 2),))
    text = report.cpu([run])
    assert "a forward takes 1.50 times as long as torch's" in text
    assert "with our NumPy kernels, float32, 2 threads. Not in these results: our compiled kernels." in joined(text)
    assert rows_of_table(text)[0] == ["LSTM T50 B32 U256", "forward", "1.5", "1 (1.50)", "2 (**0.75**)", "4 (**0.38**)"]
    assert "<details>" not in text
    assert [len(axes.containers) for axes in plots.bars(run).axes] == [1, 1]


def test_what_a_run_does_not_have_is_not_invented(tmp_path):
    """Failed rows have no ratio and no bar; rows that are not there are dashes; a run without torch has no chart."""

    def fails(record):
        if record["pass"] == "infer" and record["sizes"]["cell"] == "gru":
            return record | {"status": "failed", "reason": "it | broke", "median_us": None}
        return record

    run = cpu_run(compiled=fails)
    text = report.cpu([run])
    table = rows_of_table(text.partition("<details>")[0])
    assert table[1] == ["GRU T50 B32 U256", "forward", "failed", "1.5", "1", "2", "4"]
    assert "Median (and range) of 5 and 10 problems" in text
    assert "- ours, compiled, 20 rows: failed (it | broke)" in text
    assert [len(bars) for bars in plots.bars(run).axes[0].containers] == [5, 10]
    few = made_run([r for r in run.rows if r["competitor"] != "jax-cpu" or r["pass"] == "infer"], "cpu")
    assert rows_of_table(report.cpu([few]))[-1][-1] == "-"
    alone = cpu_run({"compiled": 1.0})
    text = report.cpu([alone])
    assert "been made yet. Not in these results: our NumPy kernels, torch, onnxruntime, JAX." in joined(text)
    assert "![" not in text
    plots.draw([alone], tmp_path)
    assert [*tmp_path.iterdir()] == []
    nobody = [_record(row, "*", None, "not_run", "not chosen") for row in rows_of(["cpu"])]
    assert report.cpu([made_run(nobody, "cpu")]) == report.cpu([]) == "No comparison on a CPU has been made yet.\n"
    left_out = made_run([*run.rows, *nobody], "cpu")
    assert "- 40 rows: not run (not chosen)" in report.cpu([left_out])


def test_a_row_can_say_which_goal_it_measures():
    row = timed(rows_of(["smoke"])[0], "plan", 2.5) | {"suite": "host_cost", "group": "binding", "goal": "B5"}
    row_keys = {"suite": "host_cost", "group": "binding", "goal": "B5"}
    failed = untimed(rows_of(["smoke"])[1], "plan") | row_keys
    valued = row | {"goal": "B7", "value": 0, "unit": "calls"}
    run = made_run([row, failed, valued], "cpu")
    by_id = {goal.id: goal for goal in GOALS}
    readings = [measured for _, measured in goals.measured_by(by_id["B5"], [run])]
    assert [reading.values for reading in readings] == [(2.5,), ()]
    assert [by_id["B5"].verdict(reading) for reading in readings] == ["must met", "not run"]
    assert goals.measured_by(by_id["B7"], [run])[0][1].text.startswith("0 calls")
    assert "| B5 |" in report.goals([run])
    text = report.host_cost([run])
    assert "| infer | relu L1 D1 B2 T3 I5 H8 | stand-in for cuDNN, host memory | 2.5 | - |" in text
    assert "| stand-in for cuDNN, host memory | 0 calls | - |" in text
    assert "- plan, 1 row: not run (it was refused)" in text


def test_a_host_cost_says_in_its_row_what_it_was_measured_on():
    row = timed(rows_of(["smoke"])[0], "ours", 2.5) | {"suite": "host_cost", "group": "binding"}
    names = ("B1", "B8", "JAX", "torch")
    text = report.host_cost([made_run([row | {"pass": f"{n}: x", "extras": {"row": n}} for n in names], "cpu")])
    problem = rows_of(["smoke"])[0].problem.name
    for on in ("stand-in for cuDNN, host memory", "this machine", "CPU, engine without arithmetic",
               "stand-in for cuDNN, CPU tensors"):  # fmt: skip
        assert f"| x | {problem} | {on} | 2.5 |" in text
    assert text.index("<summary>torch modules") < text.index("| stand-in for cuDNN, CPU tensors |")


@pytest.mark.long
def test_a_gpus_run_gets_its_tables_its_reasons_and_its_pictures(tmp_path):
    _, run = whole_gpu_run()
    row = rows_of(["flashrnn"])[0]
    few = [r for r in run.rows if r["competitor"] in ("plan", "torch") and r["group"] != "db10-lin"]
    run = made_run([*few, untimed(row, "flashrnn", "does not | build")])
    text = report.document([run])
    assert "### nvidia-h200" in text
    assert "<summary>ragged: what padding costs</summary>" in text
    assert "- flashrnn, 1 row: not run (does not | build)" in text
    assert "No speed has been measured on a GPU yet" not in text
    assert "No speed has been measured on a GPU yet" in report.document([])
    assert "| lstm 256/16/150 | 1.3 | 0.5 | 4.07 |" in report.goals_document([run])
    plots.draw([run], tmp_path)
    (tmp_path / "stale.svg").write_text("")
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != "stale.svg"}
    plots.draw([run], tmp_path)
    assert first == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    names = {f"nvidia-h200-{name}.svg" for name in ("against-T", "against-B", "against-H", "roofline", "ratios")}
    assert set(first) == names
    assert all(f"(performance/{name})" in text for name in names)


def test_a_cell_on_the_screen_is_a_time_with_ours_over_it():
    row = rows_of(["smoke"])[0]
    assert suite.cell(timed(row, "torch", 20.0), timed(row, "plan", 10.0)) == "20.0  0.50"
    assert suite.cell(timed(row, "plan", 1234.0)) == "1,234"
    assert suite.cell(untimed(row, "torch"), timed(row, "plan", 10.0)) == "not run"


def test_pictures_show_the_largest_series_and_rates_in_teraflops():
    _, run = whole_gpu_run()
    against_t, against_b = (plots.against(run, size, "flashrnn").axes[0] for size in ("T", "B"))
    assert {tuple(line.get_xdata()) for line in against_t.lines} == {(256, 512, 1024, 2048)}
    assert {tuple(line.get_xdata()) for line in against_b.lines} == {(2, 8, 16, 32, 64, 128, 256)}
    row = run.select(group="flashrnn", competitor="plan", which="infer", dtype="float16")[0]
    (problem,) = (p for p in GROUPS["flashrnn"].problems if p.name == row["problem"])
    (line,) = (line for line in plots.roofline(run).axes[0].lines if line.get_label() == "plan")
    assert pytest.approx(flops(problem) / row["median_us"] * 1e6 / 1e12) in line.get_ydata().tolist()


# --- files


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"status": "fine"}, "a status that is known"), ({"reason": "why"}, "a reason belongs to what is not ok"),
        ({"status": "failed"}, "a reason belongs"), ({"dtype": ...}, "without dtype"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_refused_with_its_line(change, text, tmp_path):
    good = timed(rows_of(["smoke"])[0], "plan", 1.0)
    bad = {k: v for k, v in (good | change).items() if v is not ...}
    assert len(load(write(tmp_path / "a.jsonl", {"environment": ENVIRONMENT}, good)).rows) == 1
    with pytest.raises(ValueError, match=rf"line 3: .*{text}"):
        load(write(tmp_path / "b.jsonl", {"environment": ENVIRONMENT}, good, bad))
    with pytest.raises(ValueError, match="first line"):
        load(write(tmp_path / "c.jsonl", good))
    (tmp_path / "d.jsonl").write_text('{"environment": {}}\n{"suite"')
    with pytest.raises(ValueError, match="line 2"):
        load(tmp_path / "d.jsonl")


def test_the_newest_run_of_a_suite_is_by_its_date(tmp_path):
    row = timed(rows_of(["smoke"])[0], "plan", 1.0)
    for name, date in (("z", "2026-01-01"), ("a", "2026-03-01"), ("m", "2026-02-01")):
        write(tmp_path / "cpu" / f"{name}.jsonl", {"environment": ENVIRONMENT | {"date": date}}, row)
    found = runs(tmp_path)
    assert [run.path.stem for run in found] == ["a", "m", "z"]
    assert next(newest(found, "speed", "cpu")).path.stem == "a"
    assert next(newest(found, "speed", "nvidia-h200"), None) is None
    assert set(KEYS) <= row.keys()


def test_a_run_that_was_cut_short_says_so():
    row = rows_of(["cpu"])[0]
    text = report.cpu([made_run([timed(row, "numpy", 1.0), timed(row, "torch-cpu", 1.0)], "cpu")])
    assert "cut short" not in text
    cut = {name: value for name, value in (ENVIRONMENT | {"rows": 20}).items() if name != "finished"}
    rows = (timed(row, "numpy", 1.0), timed(row, "torch-cpu", 1.0))
    assert "cut short" in report.cpu([Run(Path("results/cpu/x.jsonl"), cut, rows)])


# --- the command


def run_command(*arguments, **options):
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, **options)


@pytest.mark.long
def test_the_command_runs_a_group_and_writes_every_row(tmp_path):
    out = tmp_path / "out.jsonl"
    done = run_command("--group", "smoke", "--dtype", "float64", "--pass", "infer", "--against", "onnxruntime",
                       "--threads", "1", "--rounds", "1", "--sample", "0.001", "--json", str(out))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "lstm L1 D1 B2 T3 I5 H8" in done.stdout
    assert "4 x onnxruntime, not run: its operators on the CPU have no float64" in done.stdout
    written = load(out)
    assert len({(row["problem"], row["pass"], row["dtype"]) for row in written.rows}) == len(
        list(GROUPS["smoke"].rows())
    )
    assert [row["status"] for row in written.select(competitor="numpy")] == ["ok"] * 4
    assert written.environment["command"].startswith("python -m benchmarks --group smoke")


def run_here(*arguments):
    """Run the command in this process; return its exit code and the error."""
    try:
        command.main([*arguments], standalone_mode=False)
    except (SystemExit, PycudnnrnnError) as error:
        return error
    return None


def test_by_default_the_command_compares_with_the_common_ones_on_all_processors(monkeypatch):
    given = []
    monkeypatch.setattr(suite, "part", lambda rows, names, threads: given.append((names, threads)) or Part(rows, []))
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    monkeypatch.setattr(suite, "measure", lambda *_: types.SimpleNamespace(rows=[]))
    monkeypatch.setattr(suite, "table", lambda *_: "")
    assert run_here("--group", "smoke", "--pass", "infer", "--dtype", "float32") is None
    assert given == [(("compiled", "numpy", "torch-cpu", "onnxruntime", "jax-cpu"), (7,))]


def test_a_competitor_that_is_asked_for_and_not_installed_is_refused_before_anything_runs(monkeypatch):
    monkeypatch.setattr(suite, "measure", lambda *_: pytest.fail("it runs"))
    for name, package in (("torch-cpu", "torch"), ("jax-ours-cpu", "jax"), ("onnxruntime", "onnxruntime")):
        monkeypatch.setitem(sys.modules, package, None)
        error = run_here("--against", "jax-cpu" if package == "jax" else name, "--against", name)
        assert f"needs {package}, which is not installed" in str(error)


def test_what_each_competitor_needs_is_what_it_loads():
    """Without its package, and with all others, a competitor cannot name its versions."""
    code = "import sys; sys.modules[{!r}] = None; from benchmarks.adapters import *; COMPETITORS[{!r}].versions()"
    for competitor in COMPETITORS.values():
        if competitor.needs:
            command = [sys.executable, "-c", code.format(competitor.needs, competitor.name)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
            assert f"{competitor.needs} is not installed" in done.stderr, competitor.name


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--group", "smok"], 1, "Invalid --group: 'smok', expecting one of deepbench, "),
        (["--against", "tensorflow"], 1, "Invalid --against: 'tensorflow'"),
        (["--group", "cpu", "--dtype", "float16"], 1, "no row of cpu has these passes and types"),
        (["--device", "cuda"], 1, "CuPy finds no CUDA device"),
        (["--rounds", "0"], 2, "--rounds"),
        (["--list"], 0, "flashrnn: 10 problems"),
    ],
)
def test_the_command_answers_in_one_line_with_an_exit_code(arguments, code, text):
    done = run_command(*arguments)
    assert done.returncode == code
    assert text in " ".join((done.stdout + done.stderr).split())
    assert "Traceback" not in done.stderr
