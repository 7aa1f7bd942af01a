"""The example trains alike with torch's module and with ours."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.oracles import need

need("torch", "ml_dtypes")
ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_the_example_trains_alike_with_both():
    path = ROOT / "examples/torch_drop_in.py"
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^(\S+): loss (\S+) -> (\S+)$", done.stdout, re.MULTILINE)
    assert [name for name, *_ in found] == ["torch.nn.modules.rnn.LSTM", "pycudnnrnn.interop.torch.LSTM"]
    theirs, ours = ([float(loss) for loss in losses] for _, *losses in found)
    assert ours == pytest.approx(theirs, rel=1e-3)
    assert ours[1] < 0.6 * ours[0]
