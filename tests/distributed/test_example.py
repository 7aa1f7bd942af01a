"""`examples/data_parallel.py` and the block of `docs/scaling.md` on several ranks, and the benchmark of scaling."""

import re

import pytest

from tests.helpers.mpi import ROOT, mpiexec

EXAMPLE = ROOT / "examples/data_parallel.py"
FEW = ["--updates", "22", "--units", "24", "--streams", "7", "--steps", "16"]


def losses(count, *options):
    done = mpiexec(count, EXAMPLE, *FEW, *options, module=("-m", "mpi4py"))
    assert done.returncode == 0, done.stderr
    return [float(loss) for loss in re.findall(r"^update \d+ loss ([\d.]+)$", done.stdout, re.MULTILINE)]


@pytest.mark.long
def test_two_and_three_ranks_have_the_losses_of_one_on_the_whole_batch():
    """7 streams on 3 ranks are unequal parts; float32 sums in another order differ in the last digits."""
    alone = losses(1)
    assert len(alone) == 3
    assert alone[-1] < alone[0] - 0.1, "it learns"
    for count in (2, 3):
        assert losses(count) == pytest.approx(alone, abs=2e-4)


def test_more_ranks_than_streams_is_an_error_and_no_hang():
    done = mpiexec(3, EXAMPLE, "--streams", "2", module=("-m", "mpi4py"))
    assert done.returncode != 0
    assert "3 ranks are too many for 2 streams" in done.stderr


def test_the_block_of_the_page_leaves_one_model_on_all_ranks(tmp_path):
    block = re.search(r"^```python\n(.*?)^```", (ROOT / "docs/scaling.md").read_text(), re.MULTILINE | re.DOTALL)[1]
    end = "\nfound = comm.gather(params.tobytes())\nif comm.rank == 0:\n    print(len(set(found)))\n"
    (tmp_path / "train.py").write_text(block + end)
    done = mpiexec(3, tmp_path / "train.py", module=("-m", "mpi4py"))
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
