"""The example trains alike with torch's module and with ours."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.oracles import need

need("torch", "ml_dtypes")
import torch  # noqa: E402

from pycudnnrnn.interop.torch import LSTM  # noqa: E402

ROOT = Path(__file__).parents[2]


def test_the_example_trains_alike_with_both():
    path = ROOT / "examples/torch_drop_in.py"
    train = runpy.run_path(str(path))["train"]
    theirs, ours = train(torch.nn.LSTM), train(LSTM)
    assert ours == pytest.approx(theirs, rel=1e-3)
    assert ours[-1] < 0.6 * ours[0]
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    last = [float(line.split()[-1]) for line in done.stdout.splitlines()]
    assert last == pytest.approx([ours[-1]] * 2, rel=1e-2)
