"""The triage: what it says of a check that ends well, finds something to mend, breaks, or never ends."""

import json

import pytest

from tests.gpu import triage
from tests.gpu.results_file import ResultsFile, load


@pytest.fixture
def on_shim(monkeypatch):
    monkeypatch.setenv("PYCUDNNRNN_GPU_ON_SHIM", "1")


def test_what_each_check_says_is_kept_and_what_is_to_be_mended_is_summed_up(tmp_path, monkeypatch, capsys):
    said = {
        "first": ([{"ratio": 0.1}], ""),
        "clip": ([{"bound": 0.3, "mend": "round bounds"}, {"bound": 0.25}], ""),
        "graph": ([], "exit code -11: Segmentation fault"),
    }
    monkeypatch.setattr(triage, "ask", lambda name, limit_s: said[name])
    file = ResultsFile(tmp_path / "triage.jsonl")
    file.start("triage", {"on_shim": True})
    wanted = {"clip": ["round bounds"], "graph": ["exit code -11: Segmentation fault"]}
    assert triage.triage(file, said, 60) == wanted
    found = load(tmp_path / "triage.jsonl")
    assert {name.partition("::")[2]: outcome for name, outcome in found["cases"].items()} == {
        "first": "passed", "clip": "failed", "graph": "failed",
    }  # fmt: skip
    assert found["questions"]["triage clip"] == said["clip"][0]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["mend"] for line in lines if "seconds" in line] == [[], *wanted.values()]


def test_what_no_time_is_left_for_is_not_asked_and_is_told_so(tmp_path, monkeypatch):
    asked, limits = [], []
    monkeypatch.setattr(triage, "ask", lambda name, limit_s: asked.append(name) or limits.append(limit_s) or ([], ""))
    now = iter(range(0, 1000, 40))
    monkeypatch.setattr(triage.time, "monotonic", lambda: next(now))
    found = triage.triage(ResultsFile(None), ["first", "types", "clip", "graph"], 60, seconds=100)
    assert (asked, limits) == (["first", "types"], [60, 20])
    assert found == {name: ["not asked: no time was left"] for name in ("clip", "graph")}


def test_a_check_says_lines_from_a_process_of_its_own(on_shim):
    lines, why = triage.ask("clip", 600)
    assert [line["bound"] for line in lines] == [0.3, 0.25]
    assert why == ""


def test_a_check_that_breaks_or_takes_too_long_is_told_with_its_reason(on_shim):
    lines, why = triage.ask("no_such_check", 600)
    assert (lines, why.startswith("exit code 2: ")) == ([], True)
    lines, why = triage.ask("layouts", 0.01)
    assert why.startswith("no end within 0.01 s")
