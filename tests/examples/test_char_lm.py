"""`char_lm.py`, which `make demo` runs, and `char_lm_model.py`: they learn, save, restore, and end well."""

import json
import subprocess
import sys
from pathlib import Path

import char_lm
import pytest
from char_lm_model import CharLM

from pycudnnrnn import checkpoint

ROOT = Path(__file__).parents[2]
QUICK = ["--units", "64", "--json"]
NAMES = ["unigram", "bigram", "trigram", "LSTM, 64 units"]


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run the program in this process, in `tmp_path`; return its exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["char_lm.py", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            char_lm.program()
        out, err = capsys.readouterr()
        code = ended.value.code or 0
        return (code, out, err) if isinstance(code, int) else (1, out, err + code)

    return call


def test_the_demo_learns_saves_restores_and_ends_with_one_line_of_json(run, tmp_path):
    code, out, err = run(*QUICK, "--updates", "200", "--out", tmp_path)
    assert code == 0, err
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


INTERRUPTED = """
import os, signal, sys
sys.path.insert(0, "examples")
from char_lm import main
from char_lm_model import CharLM
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
    command = [sys.executable, "-c", INTERRUPTED, *QUICK, "--updates", "1000000", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 130, done.stderr
    assert "interrupted" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["char_lm.safetensors", checkpoint.LIST]
    assert checkpoint.latest_checkpoint(tmp_path) == tmp_path / "char_lm.safetensors"
    model = CharLM.restore(tmp_path / "char_lm.safetensors")
    assert len(model.sample("The ", 20, 0.7, seed=0)) == 24


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--device", "cuda"], 1, "CuPy finds no CUDA device"),
        (["--text", "short.txt"], 1, "expecting at least"),
        (["--text", "binary.txt"], 1, "is not UTF-8"),
        (["--out", "binary.txt/out"], 1, "binary.txt"),
    ],
)
def test_a_demo_that_cannot_run_says_so_with_an_exit_code(run, arguments, code, text, tmp_path):
    (tmp_path / "short.txt").write_text("too short")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00" * 9000)
    status, out, err = run("--updates", "2", "--out", "out", *arguments)
    assert status == code
    assert text in out + err
    assert "to train on" not in out + err, "it says so before anything else"
