"""`char_lm.py`, which `make demo` runs, and `char_lm_model.py`: they learn, save, restore, and end well."""

import json
import sys

import char_lm
import pytest

NAMES = ["unigram", "bigram", "trigram", "LSTM, 64 units"]


def test_the_demo_learns_saves_restores_and_ends_with_one_line_of_json(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    words = ["--units", "64", "--json", "--updates", "200", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["char_lm.py", *words])
    with pytest.raises(SystemExit) as ended:
        char_lm.program()
    out, err = capsys.readouterr()
    assert not ended.value.code, err
    result = json.loads(out)
    assert (result["restored_equal"], result["updates"]) == (True, 200)
    ngrams = [result[name] for name in ("unigram", "bigram", "trigram")]
    assert ngrams == pytest.approx([3.24, 2.32, 1.72], abs=0.05)
    assert result["held_out"] < result["unigram"], "200 updates beat the unigrams"
    for name in ("loss.png", "layout.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in err.splitlines() if line.startswith("│")]
    losses = [f"{loss:.3f}" for loss in (*ngrams, result["held_out"])]
    assert [row[:2] for row in rows] == list(map(list, zip(NAMES, losses, strict=True)))
    assert [row[1] for row in rows if row[2] == "best"] == [min(losses)]
    assert f"{result['seconds']:.1f} s in all" in err
