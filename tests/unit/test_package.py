"""Promises of the package as a whole: what importing it loads, its command line."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import pycudnnrnn
from pycudnnrnn.cli._char_lm import CharLM

ROOT = Path(__file__).parents[2]


def python(*arguments, **options):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=300, check=False, cwd=ROOT, **options
    )


def test_importing_the_package_loads_numpy_at_most_and_opens_no_library():
    code = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(args) if event == "ctypes.dlopen" else None)
import pycudnnrnn
heavy = {"torch", "jax", "cupy", "matplotlib", "hypothesis", "rich", "click", "safetensors", "ctypes"}
print(sorted(heavy & sys.modules.keys()), opened)
from pycudnnrnn import ops, layers, saveable, cells, layout, spec, errors
print(sorted((heavy - {"ctypes"}) & sys.modules.keys()), opened[1:])  # numpy itself opens the process once
"""
    done = python("-c", code)
    assert (done.stdout, done.stderr) == ("[] []\n[] []\n", "")


def test_every_public_name_is_there():
    for name in pycudnnrnn.__all__:
        assert getattr(pycudnnrnn, name) is not None
        assert name in dir(pycudnnrnn)
    with pytest.raises(AttributeError, match="CudnnLTSM"):
        _ = pycudnnrnn.CudnnLTSM


def test_the_changelog_has_the_version():
    heading = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading.group(1) == pycudnnrnn.__version__


QUICK = ["-m", "pycudnnrnn", "demo", "--units", "64", "--json"]


def test_the_demo_learns_saves_restores_and_ends_with_one_line_of_json(tmp_path):
    done = python(*QUICK, "--updates", "200", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
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
    assert "a sample:" in done.stderr


def test_the_demo_takes_a_text_of_ones_own_with_characters_held_out_alone(tmp_path):
    text = "the quick brown fox jumps over the lazy dog. " * 400 + "\N{SNOWMAN} zzz " * 20
    (tmp_path / "own.txt").write_text(text, encoding="utf-8")
    done = python(*QUICK, "--updates", "30", "--out", str(tmp_path / "out"), "--text", str(tmp_path / "own.txt"))
    assert done.returncode == 0, done.stderr
    assert np.isfinite(json.loads(done.stdout)["held_out"])


def test_ctrl_c_leaves_a_whole_checkpoint(tmp_path):
    command = [sys.executable, *QUICK, "--updates", "1000000", "--seconds", "200", "--out", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    while "to train on" not in process.stderr.readline():  # a loaded machine may take its time until then
        pass
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 130, messages
    assert "interrupted" in messages
    assert [path.name for path in tmp_path.iterdir()] == ["char_lm.safetensors"]
    model = CharLM.restore(tmp_path / "char_lm.safetensors")
    assert len(model.sample("The ", 20, 0.7, seed=0)) == 24


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
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["demo", "--device", "cuda", "--out", "{out}"], 1, "CuPy finds no CUDA device"),
        (["demo", "--device", "tpu", "--out", "{out}"], 1, "Invalid device: 'tpu'"),
        (["demo", "--text", "{short}", "--out", "{out}"], 1, "expecting at least"),
        (["demo", "--text", "{binary}", "--out", "{out}"], 1, "is not UTF-8"),
        (["demo", "--text", "nowhere.txt", "--out", "{out}"], 2, "does not exist"),
        (["demo", "--units", "0", "--out", "{out}"], 2, "--units"),
        (["dmeo"], 2, "No such command"),
        (["demo", "--help"], 0, "pycudnnrnn demo --text book.txt"),
        (["--version"], 0, pycudnnrnn.__version__),
    ],
)
def test_the_command_line_answers_in_one_line_with_an_exit_code(arguments, code, text, tmp_path):
    (tmp_path / "short.txt").write_text("too short")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00" * 9000)
    places = {"out": tmp_path / "out", "short": tmp_path / "short.txt", "binary": tmp_path / "binary.txt"}
    done = python("-m", "pycudnnrnn", *(argument.format(**places) for argument in arguments))
    assert done.returncode == code
    assert text in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_its_extra_the_command_line_says_what_to_install(missing):
    code = f"import sys; sys.modules[{missing!r}] = None; from pycudnnrnn.cli import main; main()"
    done = python("-c", code)
    assert done.returncode == 1
    assert "pip install 'pycudnnrnn[cli]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
