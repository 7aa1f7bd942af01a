"""`docs/scaling.md`: its blocks run, and its figures are those of its model and of its results file."""

import itertools
import re
import subprocess
import sys

import pytest

from benchmarks.results_files import load
from tests.helpers.mpi import ROOT, mpiexec

TEXT = (ROOT / "docs/scaling.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def row_of(name):
    (row,) = [line for line in TEXT.splitlines() if line.startswith(f"| {name}")]
    return [cell.strip() for cell in row.strip("|").split("|")]


@pytest.mark.parametrize("count", [1, 3])
def test_the_example_runs_on_any_number_of_ranks(count, tmp_path):
    end = "\nfound = comm.gather(params.tobytes())\nif comm.rank == 0:\n    print(len(set(found)))\n"
    (tmp_path / "train.py").write_text(BLOCKS[0] + end)
    done = mpiexec(count, tmp_path / "train.py", module=("-m", "mpi4py"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1\n", "one model on all ranks"


def test_the_table_for_gpus_is_the_models():
    names = {}
    exec(compile(BLOCKS[1], "scaling.md", "exec"), names)
    collectives, efficiency = names["collectives"], names["efficiency"]
    for name, nbytes, step in (
        ("LSTM 768, T = 1024", names["LSTM"], 5.19e-3),
        ("the same", names["LSTM"], 5.19e-3 / 16),
        ("RNN-T", names["RNN_T"], None),
    ):
        _, buffer, *found = row_of(name)
        assert buffer == f"{nbytes / 1e6:.{0 if nbytes > 1e7 else 1}f} MB"
        expected = [f"{collectives(nbytes, nodes) * 1e6:.0f} us" for nodes in (1, 64)]
        for nodes in (1, 64):
            if step is None:
                enough = 9 * collectives(nbytes, nodes)
                assert efficiency(enough, nbytes, nodes) == pytest.approx(0.9)
                expected.append(f"0.9 from {enough * 1e3:.1f} ms" + (" per step" if nodes == 1 else ""))
            else:
                expected.append(f"{efficiency(step, nbytes, nodes):.2f}")
        assert found == expected


def test_the_measured_table_is_the_results_files():
    (path,) = re.findall(r"\(\.\./(benchmarks/results/cpu/\S+-scaling\.jsonl)\)", TEXT)
    results = load(ROOT / path)
    assert results.environment["date"][:10] in TEXT
    assert f"`{results.environment['command']}`" in TEXT
    for case, name in (("weak", "weak:"), ("apart", "weak, without the all-reduce"), ("strong", "strong:")):
        _, *found = row_of(name)
        one, two = (next(iter(results.select(group=case, which="step", ranks=ranks))) for ranks in (1, 2))
        share = 2 if case == "strong" else 1
        expected = []
        for which in ("median_us", "lowest_us"):
            expected += [f"{one[which] / 1e3:.0f}", f"{two[which] / 1e3:.0f}"]
            expected.append(f"{one[which] / share / two[which]:.2f}")
        assert found == expected
    for nbytes, name in ((4096, "4 KiB"), (1 << 20, "1 MiB"), (1 << 24, "16 MiB")):
        _, *found = row_of(name)
        (figure,) = results.select(group="all-reduce", ranks=2, nbytes=nbytes)
        assert found == [f"{figure[which]:,.0f} us" for which in ("median_us", "lowest_us")]


@pytest.mark.long
def test_the_benchmark_runs(tmp_path):
    out = tmp_path / "results.jsonl"
    command = [sys.executable, "-m", "benchmarks.scaling", "--rounds", "1", "--steps", "2", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    cases = ("weak", "apart", "strong", "all-reduce")
    rows = load(out).select(status="ok")
    assert {(row["group"], row["ranks"]) for row in rows} == set(itertools.product(cases, (1, 2)))
    times = {(row["group"], row["ranks"]): row["lowest_us"] for row in rows if row["pass"] == "step"}
    for case, share in (("weak", 1), ("apart", 1), ("strong", 2)):
        one, two = times[case, 1], times[case, 2]
        wanted = f"{case} lowest_us: {one:,.0f} on 1, {two:,.0f} on 2, efficiency {one / share / two:.2f}"
        assert wanted in done.stdout
