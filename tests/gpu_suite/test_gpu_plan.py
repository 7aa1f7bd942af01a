"""The plan for a GPU can be pasted: both commands of PLAN.md run on the stand-in, and their results become a page."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from benchmarks.results_files import load as load_benchmarks
from docs.gpu import gpu_outcomes, gpu_suite
from tests.gpu.results_file import load
from tests.gpu.suite import SHARDS
from tests.helpers.tree import copy_tree

ROOT = Path(__file__).parents[2]
PLAN = (ROOT / "tests/gpu/PLAN.md").read_text()
COMMIT = "0123456789ab"
COMMANDS = {
    number: text.replace("THE_COMMIT", COMMIT)
    for number, text in re.findall(r"^## Command (\d)(?:(?!^## ).)*?```bash\n(.*?)```", PLAN, re.MULTILINE | re.DOTALL)
}
PROGRAMS = ("bash", "timeout", "gcc", "as", "ld", "cut", "grep", "sed", "tail")
FILES = 8
"""What a command may leave."""


def test_every_command_is_short_ends_in_ten_minutes_and_needs_little():
    rows = re.findall(r"^\| ([12 ]) +\| .*? \| (\d+) \+ (\d+) \|$", PLAN, re.MULTILINE)
    assert [number.strip() for number, *_ in rows] == ["1", "", "", "2", ""]
    limits = [(int(limit), int(more)) for _, limit, more in rows]
    for number, told in {"1": limits[:3], "2": limits[3:]}.items():
        command = COMMANDS[number]
        assert len(command) <= 2000
        assert f"PYCUDNNRNN_COMMIT={COMMIT} " in command
        timed = re.findall(r"timeout -k (\d+) (\d+) python3 -m [\w.]+([^|>&]*)", command)
        assert [(int(limit), int(more)) for more, limit, _ in timed] == told
        assert sum(map(sum, told)) <= 600
        assert all(int(re.search(r"--seconds (\d+)", words)[1]) < int(limit) for _, limit, words in timed)
        assert command.count("python3 ") == command.count("timeout -k"), "nothing runs without a limit"
        assert not re.search(r"\b(git|make|pip|curl|sudo)\b", command)
        assert f"takes at\nmost {sum(map(sum, told))}" in PLAN or f"takes at most {sum(map(sum, told))}." in PLAN


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """Copy the tree to an empty folder, with little more than Python on PATH; give a function that runs a command."""
    folder = tmp_path_factory.mktemp("machine")
    tree, programs = folder / "tree", folder / "bin"
    tree.mkdir()
    programs.mkdir()
    copy_tree(tree)
    for name in PROGRAMS:
        (programs / name).symlink_to(shutil.which(name))
    scripts = {
        "python3": f"""
case "$*" in "-m benchmarks.gpu"*) shift 2; exec {sys.executable} -m tests.stand_in.bench_gpu --rows 1 "$@";; esac
exec {sys.executable} "$@"
""",
        "compute-sanitizer": f"""
echo "========= COMPUTE-SANITIZER"
while [ "$1" != {sys.executable} ]; do shift; done
"$@"
code=$?
echo "========= ERROR SUMMARY: 0 errors"
exit $code
""",
        "nvidia-smi": "exit 9",
    }
    for name, text in scripts.items():
        (programs / name).write_text("#!/usr/bin/bash" + text)
        (programs / name).chmod(0o755)

    def run(number, **environment):
        out = Path(tempfile.mkdtemp(prefix=f"out{number}-", dir=folder))
        environment |= {
            "PATH": str(programs), "HOME": str(folder), "OUT": str(out), "PYCUDNNRNN_GPU_ON_SHIM": "1",
            "CUPY_CACHE_DIR": str(folder / "cupy"),
        }  # fmt: skip
        environment |= {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        # A machine that is busy has more time.
        command = re.sub(r"(timeout -k \d+|--seconds|--hang) \d+", r"\1 3600", COMMANDS[number])
        command = re.sub(r"(shard \w+) numb?[pya]+ \d+", r"\1 numpy 3600", command).replace("WHAT FAILED", "nan_in_it")
        done = subprocess.run(
            ["/usr/bin/bash", "-c", command], cwd=tree, env=environment, capture_output=True, text=True, check=False
        )
        files = [path for path in out.rglob("*") if path.is_file()]
        assert 1 <= len(files) <= FILES, done.stdout[-2000:] + done.stderr[-2000:]
        assert all(len(path.relative_to(out).parts) <= 2 for path in files)
        return done, out

    run.tree = tree
    return run


@pytest.mark.long
def test_the_first_command_ends_at_the_gate_where_the_first_call_fails(machine):
    engine = machine.tree / "tests/gpu/triage.py"
    text = engine.read_text()
    engine.write_text(text.replace("if ratio <= 1 else", "if ratio > 1 else"))
    try:
        done, out = machine("1")
    finally:
        engine.write_text(text)
    assert done.returncode == 3
    assert "- first: wrong numbers" in done.stdout
    assert [path.name for path in out.iterdir()] == [f"triage-{COMMIT}.jsonl"]


@pytest.mark.long
def test_the_first_command_runs_the_whole_suite_and_its_results_become_a_page(machine):
    done, out = machine("1")
    assert "nothing to mend" in done.stdout, done.stdout[-2000:]
    results = [load(out / f"{name}-{COMMIT}.jsonl") for name in SHARDS]
    for result in results:
        assert result["failures"] == {}
        assert (result["commit"], result["on_shim"]) == (COMMIT, True)
        assert result["collected"] == result["passed"] + result["skipped"] > 0
    cases = [case for result in results for case in result["cases"]]
    assert len(cases) == len(set(cases)), "no case is in two shards"
    outcomes = gpu_outcomes(results)
    assert outcomes.keys() == {*gpu_suite()}
    assert sum(sum(counts.values()) for counts in outcomes.values()) == len(cases)
    assert results[0]["questions"]["layout"]["compared"] > 0

    (path,) = (path for path in out.rglob("*.jsonl") if path.parent != out)
    run = load_benchmarks(path)
    assert (run.environment["dirty"], "finished" in run.environment) == (None, True)
    assert not [row["reason"] for row in run.rows if row["status"] == "failed"]
    timed = {row["competitor"] for row in run.rows if row["status"] == "ok"}
    assert timed == {"plan", "graph", "auto"}, "torch and C++ need a GPU"
    assert "\nbench " in done.stdout

    def generate(*words):
        command = [sys.executable, "-m", "docs.generate", "--results", out, *words]
        return subprocess.run(command, cwd=machine.tree, capture_output=True, text=True, check=False)

    page, before = machine.tree / "docs/gpu-verification.md", (ROOT / "docs/gpu-verification.md").read_text()
    refused = generate()
    assert (refused.returncode, "was written without a GPU" in refused.stderr) == (2, True), refused.stderr
    assert (page.read_text(), [*machine.tree.glob("tests/gpu/results/*.jsonl")]) == (before, [])
    assert generate("--stand-in").returncode == 0
    text, passed = page.read_text(), sum(result["passed"] for result in results)
    assert "Nothing on a GPU. This page shows a run of the stand-in" in text
    assert f"{passed + 2} of {len(cases) + 2} cases passed on none (stand-in)." in text, "2 are the gate's"
    assert "## What differed\n\nNo case failed." in text
    assert "these kinds have another layout: none." in text


@pytest.mark.long
def test_the_second_command_repeats_what_failed_and_runs_memcheck(machine):
    _, out = machine("2")
    assert load(out / f"again-{COMMIT}.jsonl")["passed"] == 2
    assert load(out / f"sanitizer-{COMMIT}.jsonl")["cases"] == {"sanitize.py::memcheck": "passed"}
