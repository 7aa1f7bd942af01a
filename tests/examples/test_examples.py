"""Every example runs, and does what it says. The torch, JAX and GPU ones are where their oracles are."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pycudnnrnn import CudnnLSTM, Saver
from tests.helpers.layers import built
from tests.helpers.oracles import need

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_S = 3600
"""A kernel that hangs ends with its test; nbclient's own patience is a minute for a start and 4 s for a picture."""


def run(name, *arguments, cwd=None, **environment):
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    env = os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=env)


def example(name, *arguments, cwd):
    done = run(name, *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*[!l].py")), ids=lambda path: path.stem)
def test_every_program_explains_itself_and_runs_nothing_before(path, tmp_path):
    done = run(path.name, "--help", cwd=tmp_path, PYTHONPATH=without_extras(tmp_path))
    assert done.returncode == 0, done.stderr
    assert path.name in done.stdout
    assert "--help" in done.stdout


EXTRAS = {"torch_drop_in": "torch", "jax_training": "jax", "cupy_training": "cuda13", "data_parallel": "distributed"}


@pytest.mark.parametrize(("name", "extra"), EXTRAS.items())
def test_a_missing_extra_is_one_line_that_names_it(name, extra, tmp_path):
    done = run(f"{name}.py", cwd=tmp_path, PYTHONPATH=without_extras(tmp_path))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert f"pycudnnrnn[{extra}]" in done.stderr or f".[{extra}]" in done.stderr


def without_extras(folder):
    """Return a folder to import from first, in which the packages of the extras are missing ones."""
    for name in ("torch", "jax", "cupy", "mpi4py"):
        (folder / f"{name}.py").write_text(f"raise ModuleNotFoundError('No module named {name}', name={name!r})")
    return str(folder)


@pytest.mark.parametrize(
    ("command", "most"),
    [
        (["cupy_training.py", "cpu"], 0.12),  # 0.02 is a tenth of the variance, which guessing the mean gives
        pytest.param(["jax_training.py"], 0.5, marks=pytest.mark.long),
    ],
)
def test_training_learns(command, most, tmp_path):
    out = example(*command, cwd=tmp_path)
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", out)]
    assert len(losses) == 6
    assert losses[-1] < most * losses[0]


@pytest.mark.long
def test_torchs_module_and_ours_train_alike(tmp_path):
    out = example("torch_drop_in.py", cwd=tmp_path)
    theirs, ours = ([float(loss) for loss in pair] for pair in re.findall(r"loss (\S+) -> (\S+)$", out, re.MULTILINE))
    assert ours == pytest.approx(theirs, rel=1e-3)
    assert ours[1] < 0.6 * ours[0]


def test_a_stream_gives_what_the_whole_sequence_gives(tmp_path):
    out = example("streaming_inference.py", cwd=tmp_path)
    assert float(re.search(r"worst difference (\S+)", out)[1]) < 1e-6


def test_the_demo_learns_saves_restores_and_ends_with_one_line_of_json(tmp_path):
    """`make demo`."""
    words = ["--units", "64", "--json", "--updates", "200", "--out", tmp_path]
    done = run("char_lm.py", *words, cwd=tmp_path, COLUMNS="160")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["restored_equal"], result["updates"]) == (True, 200)
    names = ["unigram", "bigram", "trigram", "LSTM, 64 units"]
    ngrams = [result[name] for name in names[:3]]
    assert ngrams == pytest.approx([3.24, 2.32, 1.72], abs=0.05)
    assert result["held_out"] < result["unigram"], "200 updates beat the unigrams"
    for name in ("loss.png", "layout.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    table = [line.split("│")[1:-1] for line in done.stderr.splitlines() if line.startswith("│")]
    rows = [[cell.strip() for cell in row] for row in table]
    losses = [f"{loss:.3f}" for loss in (*ngrams, result["held_out"])]
    assert [row[:2] for row in rows] == list(map(list, zip(names, losses, strict=True)))
    assert [row[1] for row in rows if row[2] == "best"] == [min(losses)]
    assert f"{result['seconds']:.1f} s in all" in done.stderr


def test_the_tour_runs_and_prints_what_is_stored(tmp_path):
    """`tour.ipynb`."""
    need("nbclient", "nbformat", "ipykernel")
    import nbformat

    from docs import tour

    notebook, stored = (nbformat.read(tour.NOTEBOOK, as_version=4) for _ in range(2))
    nbformat.validate(notebook)
    tour.run(notebook, str(tmp_path), startup_timeout=PATIENCE_S, iopub_timeout=PATIENCE_S)
    assert texts(notebook) == texts(stored), "python -m docs.tour runs it and stores its outputs"
    kinds = [kind for output in tour.outputs(notebook) for kind in output.get("data", {})]
    assert kinds.count("image/png") == 3
    assert not list(tmp_path.iterdir())


def texts(notebook):
    """Return what each code cell prints, however many messages that came in, and the kinds of data that it shows."""
    cells = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    return [
        ["".join(o.get("text", "") for o in outputs), *(sorted(o.data) for o in outputs if "data" in o)]
        for outputs in cells
    ]


def test_a_checkpoint_of_one_rnn_needs_no_scope_and_of_several_one_is_named(tmp_path):
    one, other = built(CudnnLSTM, bias_mode="single_input"), built(CudnnLSTM, bias_mode="single_input")
    Saver({"net/cudnn_lstm": one, "step": np.zeros(2)}).save(tmp_path / "one", format="tensorflow")
    Saver({"a": one, "b": other}).save(tmp_path / "two", format="tensorflow")
    outs = [
        example("tf_checkpoint.py", tmp_path / name, *scope, cwd=tmp_path)
        for name, *scope in (("one",), ("one", "net/cudnn_lstm"), ("two", "a"))
    ]
    assert "RNNSpec('lstm', 2, 3, 5" in outs[0]
    assert outs[0] == outs[1] == outs[2]
