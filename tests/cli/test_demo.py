"""`pycudnnrnn demo`: it learns, saves, restores, and ends well when it is interrupted or cannot start."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pycudnnrnn import checkpoint
from pycudnnrnn.cli._char_lm import CharLM

ROOT = Path(__file__).parents[2]
QUICK = ["--units", "64", "--json"]


def test_the_demo_learns_saves_restores_and_ends_with_one_line_of_json(run, tmp_path):
    code, out, err = run("demo", *QUICK, "--updates", "200", "--out", tmp_path)
    assert code == 0, err
    result = json.loads(out)
    assert set(result) == {
        "unigram", "bigram", "trigram", "held_out", "seconds", "chars_per_second", "restored_equal"
    }  # fmt: skip
    assert result["restored_equal"] is True
    assert result["unigram"] == pytest.approx(3.24, abs=0.05)
    assert result["bigram"] == pytest.approx(2.32, abs=0.05)
    assert result["trigram"] == pytest.approx(1.72, abs=0.05)
    assert result["held_out"] < result["unigram"], "200 updates beat the unigrams"
    for name in ("loss.png", "layout.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert "a sample:" in err


def test_the_demo_takes_a_text_of_ones_own_with_characters_held_out_alone(run, tmp_path):
    text = "the quick brown fox jumps over the lazy dog. " * 400 + "\N{SNOWMAN} zzz " * 20
    (tmp_path / "own.txt").write_text(text, encoding="utf-8")
    code, out, err = run("demo", *QUICK, "--updates", "30", "--out", tmp_path / "out", "--text", tmp_path / "own.txt")
    assert code == 0, err
    assert np.isfinite(json.loads(out)["held_out"])


def test_a_failed_save_leaves_the_old_checkpoint_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    CharLM.create("\N{REPLACEMENT CHARACTER}abc", 4, 0, "cpu").save(path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("pycudnnrnn._atomic.os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        CharLM.create("\N{REPLACEMENT CHARACTER}abc", 4, 1, "cpu").save(path)
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == [checkpoint.BOOK, "model.safetensors"]


INTERRUPTED = """
import os, signal
from pycudnnrnn.cli import main
from pycudnnrnn.cli._char_lm import CharLM
step, calls = CharLM.loss_and_gradients, []
def interrupt_the_fifth(*arguments):
    calls.append(1)
    if len(calls) == 5:
        os.kill(os.getpid(), signal.SIGINT)
    return step(*arguments)
CharLM.loss_and_gradients = interrupt_the_fifth
main()
"""


def test_ctrl_c_leaves_a_whole_checkpoint(tmp_path):
    command = [sys.executable, "-c", INTERRUPTED, "demo", *QUICK, "--updates", "1000000", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 130, done.stderr
    assert "interrupted" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["char_lm.safetensors", checkpoint.BOOK]
    assert checkpoint.latest_checkpoint(tmp_path) == tmp_path / "char_lm.safetensors"
    model = CharLM.restore(tmp_path / "char_lm.safetensors")
    assert len(model.sample("The ", 20, 0.7, seed=0)) == 24


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--device", "cuda"], 1, "CuPy finds no CUDA device"),
        (["--device", "tpu"], 1, "Invalid device: 'tpu'"),
        (["--text", "short.txt"], 1, "expecting at least"),
        (["--text", "binary.txt"], 1, "is not UTF-8"),
        (["--text", "nowhere.txt"], 2, "does not exist"),
        (["--units", "0"], 2, "--units"),
        (["--help"], 0, "pycudnnrnn demo --text book.txt"),
    ],
)
def test_a_demo_that_cannot_run_says_so_with_an_exit_code(run, arguments, code, text, tmp_path):
    (tmp_path / "short.txt").write_text("too short")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00" * 9000)
    found, out, err = run("demo", "--out", "out", *arguments)
    assert found == code
    assert text in out + err
