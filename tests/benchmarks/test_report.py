"""Reports: functions of results files; wrong ratios, dropped rows and hidden failures are found here."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import page, report
from benchmarks.__main__ import main
from benchmarks.problems import GROUPS, rows_of
from benchmarks.results_files import Run, load, runs, write
from benchmarks.runner import Asked, _record

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    "schema": 2, "date": "2027-01-01T00:00:00+00:00", "commit": "abc", "dirty": False, "command": "a command",
    "machine": "a CPU", "cores": 4, "gpu": ["NVIDIA H200, 580, 143771 MiB"], "versions": {"cudnn": "9.28.0"},
    "finished": "later",
}  # fmt: skip


def made_run(rows, machine="nvidia-h200", **environment):
    return Run(Path(f"results/{machine}/2027-01-01-abc.jsonl"), ENVIRONMENT | environment, tuple(rows))


def timed(row, competitor, *rounds, copy=1, threads=None, **figures):
    rounds = rounds if len(rounds) > 1 else (rounds or (100.0,)) * 2
    figures = {
        "median_us": sorted(rounds)[len(rounds) // 2],
        "round_medians_us": list(rounds),
        "spread": 0.01,
    } | figures
    return _record(row, Asked(competitor, threads, None, copy), "ok", None, **figures)


def untimed(row, competitor, reason="it was refused", **more):
    return _record(row, Asked(competitor, more.pop("threads", None), None), "not_run", reason)


ROW = rows_of(["cpu"])[0]


def line(*records):
    (found,) = report.lines_of(records)
    return found


@pytest.mark.parametrize(
    ("again", "theirs", "ratio", "verdict"),
    [
        ((100, 100, 100), (200, 200, 200), 0.5, "faster"), ((100, 100, 100), (50, 50, 50), 2, "slower"),
        ((90, 100, 111), (105, 105, 105), 100 / 105, ""),  # inside what A/A shows
        ((100, 100, 100), (100, 300, 300), 1 / 3, "faster"),
        ((110, 90, 100), (100, 130, 95), 1, ""),  # the two ways to take a ratio do not agree
    ],
)  # fmt: skip
def test_a_ratio_is_that_of_the_times_shown_and_called_faster_or_slower_only_outside_noise(
    again, theirs, ratio, verdict
):
    found = line(
        timed(ROW, "compiled", 100, 100, 100), timed(ROW, "torch-cpu", *theirs), timed(ROW, "compiled", *again, copy=2)
    )
    assert found.ratio("compiled", "torch-cpu") == pytest.approx(ratio)
    assert found.verdict("compiled", "torch-cpu") == verdict
    shown = report.text([*found.rows.values()])
    assert (f"**{ratio:.2f}** {verdict}" if verdict else f" {ratio:.2f} |") in shown


def test_noise_is_the_largest_ratio_of_a_library_to_itself_in_a_round_and_without_it_nothing_is_faster():
    ours, theirs = timed(ROW, "compiled", 100, 80, 100), timed(ROW, "torch-cpu", 900, 900, 900)
    assert line(ours, theirs, timed(ROW, "compiled", 100, 100, 100, copy=2)).noise == pytest.approx(0.25)
    alone = line(ours, theirs)
    assert (alone.noise, alone.verdict("compiled", "torch-cpu")) == (None, "")


def test_two_files_are_compared_outside_the_noise_of_both():
    def run(us, noise):
        again = [timed(row, "compiled", us * (1 + noise), copy=2) for row in (ROW,)]
        return made_run([timed(ROW, "compiled", us), timed(ROW, "torch-cpu", 300), *again], commit=f"{us}")

    text = report.compare(run(100, 0.05), run(120, 0.05))
    assert re.search(r"ours, compiled +\| +100 ±1% \| +120 ±1% \| +\*\*1.20\*\* slower", text)
    assert "commit: 100 -> 120" in text
    assert "2 slower, 1 within noise" in text
    assert "3 within noise" in report.compare(run(100, 0.15), run(120, 0.15)), "15 % and 15 %"
    other = made_run([timed(ROW._replace(caches="cold"), "compiled", 5)])
    assert "4 not in both" in report.compare(run(100, 0.05), other)


def test_what_a_report_cannot_read_or_do_is_one_sentence(tmp_path):
    run = made_run([untimed(ROW, "compiled", "no time")])
    path = tmp_path / "a.jsonl"
    write(path, run.environment | {"schema": 99}, run.rows)
    assert "schema 99, expecting 2 or older" in invoke("report", path)[1]
    write(path, run.environment, run.rows)
    assert "no row has a time to draw" in invoke("report", path, "--picture", tmp_path / "a.svg")[1]
    for words in (["--csv", "--picture", tmp_path / "a.svg"], ["--page"]):
        code, out = invoke("report", path, *words)
        assert code == 2
        assert "at most" in out


# --- the page


def test_a_gpus_run_has_a_ratio_per_group_and_its_goal():
    rows = rows_of(["stream"], lambda row: row.dtype == "float16")
    records = [timed(row, name, 100.0 * (1 + (name == "torch"))) for row in rows for name in ("plan", "torch")]
    text = page.gpu([made_run([*records, *(untimed(row, "raw") for row in rows)])])
    assert re.search(rf"stream \| infer \| plan \| torch \| +0.50 \(0.50 to 0.50\) \| +{len(rows)} \| <= 0.7", text)
    assert "No speed has been measured on a GPU yet" in page.gpu([])


def test_the_page_is_what_the_committed_results_make():
    found = page.document(runs())
    assert page.DOCUMENT.read_text() == found, "python -m benchmarks report --page"
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", found)
    assert {f"performance/{p.name}" for p in page.DOCUMENT.parent.glob("performance/*")} == set(pictures)
    targets = re.findall(r"\]\(([^)]+)\)", found)
    assert all((page.DOCUMENT.parent / target).exists() for target in targets)
    assert len(runs()) <= 3


# --- the command


def invoke(*words):
    done = CliRunner().invoke(main, [str(word) for word in words])
    return done.exit_code, done.output


def test_help_lists_and_refusals(tmp_path):
    for words in (["--help"], ["report", "--help"], ["compare", "--help"]):
        assert invoke(*words)[0] == 0
    assert "  python -m benchmarks --problem LSTM_A --against mine.py:prepare\n" in invoke("--help")[1]
    code, listed = invoke("--list")
    assert code == 0
    for name in ("lstm T=100 B=1 I=250 U=200 L=3  (LSTM_B)", "code/kernels/rnn_problems.h", *GROUPS):
        assert name in listed
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}")
    for words, text in (
        (["--group", "nonsense"], "deepbench-training"), (["--problem", "lstm T=3"], "expecting a cell"),
        (["--problem", "lstm T=3 B=2 U=4 P=9"], "num_proj"), (["--against", "nobody"], "path/to/file.py:function"),
        (["--against", f"{ROOT / 'nowhere.py'}:prepare"], "no such file"), (["--threads", "0"], "numbers from 1"),
        (["--pass", "infer,fly"], "backward-weights"), (["--sweep", "U=1,2"], "--sweep needs"), (["report"], "--page"),
        (["report", bad], "is no results file"),
        (["--problem", "lstm T=3 B=2 U=4", "--json", bad], "never overwritten"),
    ):  # fmt: skip
        code, out = invoke(*words)
        assert code, words
        assert text in out, words


def test_reading_a_file_writes_no_page(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "write", pytest.fail)
    run = made_run([timed(ROW, "compiled", 5.0), timed(ROW, "compiled", 5.0, copy=2)])
    write(tmp_path / "a.jsonl", run.environment, run.rows)
    for words in (["report", tmp_path / "a.jsonl"], ["compare", tmp_path / "a.jsonl", tmp_path / "a.jsonl"]):
        code, out = invoke(*words)
        assert code == 0
        assert "ours, compiled" in out
    assert invoke("report", tmp_path / "a.jsonl", "--csv")[1].startswith("file,group,problem")
    assert invoke("report", tmp_path / "a.jsonl", "--picture", tmp_path / "a.svg")[0] == 0
    assert (tmp_path / "a.svg").exists()


def test_a_competitor_of_the_page_is_run_and_checked_like_others(tmp_path):
    """The page's example, and one with a wrong number."""
    text = (ROOT / "docs/how-to/measure.md").read_text()
    (example,) = re.findall(r"```python\n(.*?def prepare\(.*?)```", text, re.DOTALL)
    assert len(example.splitlines()) <= 26
    (tmp_path / "mine.py").write_text(example)
    (tmp_path / "wrong.py").write_text(example.replace("np.tanh", "np.sin"))
    against = ["--against", f"{tmp_path / 'mine.py'}:prepare", "--against", f"{tmp_path / 'wrong.py'}:prepare"]
    words = ["--problem", "tanh T=3 B=2 I=5 U=8", "--threads", 1, "--rounds", 1, "--sample", 0.001, *against]
    code, out = invoke(*words, "--json", tmp_path / "out.jsonl", "--pass", "infer,step")
    assert code == 0, out
    found = {(r["competitor"], r["pass"]): (r["status"], r["reason"]) for r in load(tmp_path / "out.jsonl").rows}
    assert found["mine", "infer"] == ("ok", None), out
    assert found["mine", "step"][0] == "not_run"
    assert "wrong numbers" in found["wrong", "infer"][1]
