"""The plan for a GPU can be pasted: each call, as it stands in PLAN.md, runs on the stand-in without git and make."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from benchmarks.results_files import load as load_benchmarks
from docs.generate import gpu_outcomes, gpu_suite
from tests.gpu.results_file import load
from tests.gpu.shards import SIDE_BY_SIDE
from tests.gpu.triage import CHECKS
from tests.helpers.tree import copy_tree

ROOT = Path(__file__).parents[2]
PLAN = (ROOT / "tests/gpu/PLAN.md").read_text()
COMMIT = "0123456789ab"
CALLS = {
    int(number): text.replace("THE_COMMIT", COMMIT)
    for number, text in re.findall(r"^## Call (\d)(?:(?!^## ).)*?```bash\n(.*?)```", PLAN, re.MULTILINE | re.DOTALL)
}
NEEDED = ("bash", "timeout", "tee", "gcc", "as", "ld", "cat", "sleep", "uname", "cp", "sed", "head", "tail")
ROWS = 1
"""What a benchmark measures here of all its rows."""

ASKED = [name for name in CHECKS if name not in {"benchmarks", "collect", "sanitizer"}]
"""What the triage is asked here: the other checks are parts of calls 1, 2 and 5."""

FILES = 8
"""What a call may leave."""


def test_every_call_is_short_ends_in_ten_minutes_and_needs_no_git_and_no_make():
    rows = dict(re.findall(r"^\| (\d) \| .*? \| ([\d +]+|rest) \|$", PLAN, re.MULTILINE))
    told = {int(call): [int(n) for n in row.split("+")] for call, row in rows.items() if row != "rest"}
    assert set(told) == set(CALLS) == {0, 1, 2, 3, 5, 6}, "call 4 is one of these"
    for number, call in CALLS.items():
        assert len(call) <= 2000
        assert f"PYCUDNNRNN_COMMIT={COMMIT} " in call
        limits = [int(a) + int(b) for a, b in re.findall(r"timeout -k (\d+) (\d+) python3 -m", call)]
        assert limits == told[number]
        assert sum(limits) <= 600
        assert call.count("timeout -k") == call.count("python3") == len(limits)
        assert not re.search(r"\b(git|make|pip|curl|sudo)\b", call)
        inner = [int(n) for n in re.findall(r"--seconds (\d+)", call)]
        timed = limits[len(limits) - len(inner) :]  # `info` has no such option
        assert all(3 * n < all_ if "sanitize" in call else n < all_ for n, all_ in zip(inner, timed, strict=True))
    half_an_hour = sum(sum(told[number]) for number in range(4))
    assert f"Calls 0 to 3 are {half_an_hour:,} seconds" in PLAN
    assert half_an_hour <= 30 * 60 - 2 * 90, "two machines are started"
    assert [str(CALLS).count(f"{old} ") for old in re.findall(r"s/([a-z ]*\d+) /", PLAN)] == [1] * 6, "made shorter"


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """Copy the tree to an empty folder, with little more than Python on PATH; give a function that runs a call."""
    folder = tmp_path_factory.mktemp("machine")
    tree, programs = folder / "tree", folder / "bin"
    tree.mkdir()
    programs.mkdir()
    copy_tree(tree)
    for name in NEEDED:
        (programs / name).symlink_to(shutil.which(name))
    python = f"""#!/usr/bin/bash
case "$*" in "-m benchmarks.gpu"*) shift 2; exec {sys.executable} -m tests.stand_in.bench_gpu "$@";; esac
exec {sys.executable} "$@"
"""
    sanitizer = f"""#!/usr/bin/bash
echo "========= COMPUTE-SANITIZER"
while [ "$1" != {sys.executable} ]; do shift; done
"$@"
echo "========= ERROR SUMMARY: 0 errors"
"""
    for name, text in {"python3": python, "compute-sanitizer": sanitizer}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    def run(number):
        out = Path(tempfile.mkdtemp(prefix=f"out{number}-", dir=folder))
        environment = {
            "PATH": str(programs), "HOME": str(folder), "OUT": str(out), "PYCUDNNRNN_GPU_ON_SHIM": "1",
            "CUPY_CACHE_DIR": str(folder / "cupy"),
        }  # fmt: skip
        environment |= {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        # A machine that is busy has more time, and the stand-in is not worth more than a few rows of a benchmark.
        call = re.sub(r"(timeout -k \d+|--seconds|--hang) \d+", r"\1 3600", CALLS[number])
        call = re.sub(r"(shard \w+) \d+ &", r"\1 3600 &", call)
        call = re.sub(r"(benchmarks.gpu)", rf"\1 --rows {ROWS}", call)
        call = call.replace("tests.gpu.triage", f"tests.gpu.triage {' '.join(ASKED)}")
        done = subprocess.run(
            ["/usr/bin/bash", "-c", call], cwd=tree, env=environment, capture_output=True, text=True, check=False
        )
        files = [path for path in out.rglob("*") if path.is_file()]
        assert 2 <= len(files) <= FILES, done.stdout[-2000:] + done.stderr[-2000:]
        assert not [path for path in files if path.stat().st_size > 16 << 20]
        return done, out

    run.results = tree / "tests/gpu/results"
    return run


@pytest.mark.long
def test_the_triage_finds_nothing_to_mend_on_the_stand_in(machine):
    done, out = machine(0)
    assert "nothing to mend" in done.stdout, done.stdout[-2000:]
    assert set(load(out / "triage.jsonl")["cases"].values()) == {"passed"}


@pytest.mark.long
def test_the_suite_runs_in_shards_that_are_all_of_it_and_are_counted_together(machine):
    found = []
    for number, names in ((1, SIDE_BY_SIDE), (3, ("soak",))):
        _, out = machine(number)
        for name in names:
            result = load(out / f"{name}-{COMMIT}.jsonl")
            assert result["failures"] == {}
            assert (result["commit"], result["on_shim"]) == (COMMIT, True)
            assert result["collected"] == result["passed"] + result["skipped"] > 0
            shutil.copy(out / f"{name}-{COMMIT}.jsonl", machine.results)
            found.append(result)
    cases = [case for result in found for case in result["cases"]]
    assert len(cases) == len(set(cases)), "no case is in two shards"
    outcomes = gpu_outcomes(found)
    assert outcomes.keys() == {asked.name for asked in gpu_suite()}
    assert sum(sum(counts.values()) for counts in outcomes.values()) == len(cases)
    assert found[0]["questions"]["layout"]["compared"] > 0


@pytest.mark.long
def test_the_benchmarks_write_into_the_output_folder_under_the_commit_that_was_told(machine):
    """Call 6 is the same with another plan."""
    done, out = machine(2)
    (path,) = out.rglob("*.jsonl")
    assert path.stem.endswith(f"-{COMMIT[:7]}"), done.stdout[-2000:]
    run = load_benchmarks(path)
    assert "finished" in run.environment
    assert run.environment["dirty"] is None
    assert not [row["reason"] for row in run.rows if row["status"] == "failed"]
    timed = [row for row in run.rows if row["status"] == "ok"]
    assert {row["competitor"] for row in timed} == {"eager", "plan", "graph", "auto"}, "torch, JAX and C++ need a GPU"
    assert len({(row["problem"], row["pass"], row["dtype"]) for row in timed}) == ROWS
    assert "microseconds, median" in done.stdout
    assert " --grid " in CALLS[6]


@pytest.mark.long
def test_the_sanitizers_results_are_written_tool_by_tool(machine):
    done, out = machine(5)
    result = load(out / "sanitizer.jsonl")
    assert list(result["cases"].values()) == ["passed"] * 3, done.stdout[-2000:]
