"""The page of GPU verification, from results files of the GPU suite; and the places of these files."""

from __future__ import annotations

import ast
import collections
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks import results_files
from pycudnnrnn.errors import version_text
from tests.gpu.results_file import load

ROOT = Path(__file__).parents[1]
SUITE: Final = "tests/gpu"
RESULTS: Final = ROOT / SUITE / "results"
BENCHMARKS: Final = ROOT / "benchmarks/results"
STAND_IN: Final = "none (stand-in)"

NOTE: Final = "<!-- Written by docs/generate.py. Edit that. -->\n"

Result = dict[str, Any]
"""What one results file contains."""


def gpu_suite() -> Iterator[str]:
    """Yield the name of each test of `tests/gpu`, read from the source: nothing is imported, so CuPy is not needed."""
    for path in sorted((ROOT / SUITE).glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield f"{path.name}::{node.name}"


def place(folder: Path, *, stand_in: bool = False) -> None:
    """Copy the results files of a run on a GPU to the folders of results, all or none.

    Raises:
        ValueError: the folder has no results file, or one that was written without a GPU.
        FileExistsError: another file of that name is there already.
    """
    targets: dict[Path, Path] = {}
    for path in sorted(folder.rglob("*.jsonl")):
        if path.parent == folder:
            result_of(path, stand_in=stand_in)
            targets[path] = RESULTS / path.name
        elif not stand_in:  # times without a GPU are worth nothing
            if not results_files.load(path).environment["gpu"]:
                raise ValueError(f"{path}: it was written without a GPU")
            targets[path] = BENCHMARKS / path.parent.name / path.name
    if not targets:
        raise ValueError(f"{folder} has no results file (*.jsonl)")
    for path, target in targets.items():
        if target.exists() and target.read_bytes() != path.read_bytes():
            raise FileExistsError(f"{target} exists, and is not {path}")
    for path, target in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def result_of(path: Path, *, stand_in: bool = False) -> Result:
    """Read a results file.

    Raises:
        ValueError: it was written without a GPU. With `stand_in` the stand-in may have written it.
    """
    result = load(path)
    if stand_in and result["on_shim"]:
        result |= {"gpu": STAND_IN}
    elif "gpu" not in result:
        raise ValueError(f"{path} was written without a GPU")
    return result


def gpu_results(*, stand_in: bool = False) -> list[Result]:
    """Read every results file, the newest first."""
    results = [result_of(path, stand_in=stand_in) for path in sorted(RESULTS.glob("*.jsonl"))]
    return sorted(results, key=lambda result: str(result["date"]), reverse=True)


def table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """Return a Markdown table."""
    cells = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in cells) + "\n"


def gpu_verification(results: list[Result]) -> str:
    """Return the page that lists what has run on a GPU, on which machine, and what differed."""
    outcomes, answers = gpu_outcomes(results), _answers(results)
    parts = ["# GPU verification\n", NOTE, _for_users(results, outcomes)]
    if not results:  # every row would be "not run"
        return "\n".join([*parts, "## Layouts\n", LAYOUTS])
    parts += ["## Machines\n", _machines(results), "## What differed\n", _differed(results)]
    parts += ["## Numbers\n", _numbers(answers), "## Layouts\n", LAYOUTS, _layouts(answers)]
    tests = [(f"`{name}`", _outcome(outcomes.get(name, collections.Counter()))) for name in gpu_suite()]
    counted = "For each test, the last outcome of each case is counted, from the newest commit that ran the test.\n"
    parts += ["## Tests\n", counted, folded("tests", table(("test", "outcome"), tests))]
    if answers:
        rows = [(name, f"`{json.dumps(value)}`") for name, value in answers.items()]
        answered = folded("answers", table(("question", "answer"), rows))
        parts += ["## Questions answered\n", "Each question has its newest answer.\n", answered]
    return "\n".join(parts)


def folded(what: str, rows: str) -> str:
    """Fold a table: a reader opens it by a click. `rows` is the table."""
    return f"<details>\n<summary>{rows.count(chr(10)) - 2} {what}</summary>\n\n{rows}\n</details>\n"


def _for_users(results: list[Result], outcomes: dict[str, collections.Counter[str]]) -> str:
    """Return what has run, what it means, and how to run the suite: a line each."""
    passed = sum(counts["passed"] for counts in outcomes.values())
    skipped = sum(counts["skipped"] for counts in outcomes.values())
    cases = sum(map(collections.Counter.total, outcomes.values()))
    gpus = ", ".join(dict.fromkeys(result["gpu"] for result in results))
    without = f" {skipped} were skipped." if skipped else ""
    ran = f"{passed} of {cases} cases passed on {gpus}.{without} The tables below list all of them."
    means = "versions, GPUs and questions that are not listed below are untested."
    if STAND_IN in gpus:
        ran = f"Nothing on a GPU. This page shows a run of the stand-in that computes in place of the GPU: {ran}"
        means = "this is how the page looks after a run. It says nothing about a GPU."
    if not results:
        ran = "Nothing has been verified on a GPU yet. There is no results file."
        means = (
            "the calls to cuDNN are tested against the real library with a stand-in that computes in place of the GPU. "
            "The numbers, speed and memory use on a real GPU are unknown."
        )
    how = (
        "`tests/gpu/PLAN.md` has two commands for a quarter of an hour on a CUDA machine. Then "
        "`python -m docs.generate --results FOLDER` puts their results in place and updates this page."
    )
    return f"**What has run**: {ran}\n\n**What this means**: {means}\n\n**How to run the suite**: {how}\n"


def _machines(results: list[Result]) -> str:
    """Return a row for each machine and commit, with its cases."""
    versions = ("commit", "gpu", "driver", "cuda_runtime", "cudnn", "cupy", "numpy", "python")
    counts: dict[tuple[str, ...], collections.Counter[str]] = {}
    for result in results:
        known = result | {"commit": f"`{result['commit'][:12]}`"}
        known |= {"cudnn": version_text(result["cudnn"])} if "cudnn" in result else {}
        key = (result["date"][:10], *(str(known.get(name, "-")) for name in versions))
        counts.setdefault(key, collections.Counter()).update(result["cases"].values())
    rows = [
        (*key, c["passed"], c["failed"] + c["error"] + c["ended"], c["skipped"]) for key, c in counts.items()
    ]  # fmt: skip
    head = ("date", "commit", "GPU", "driver", "CUDA", "cuDNN", "CuPy", "NumPy", "Python")
    return table((*head, "passed", "failed", "skipped"), rows)


def _differed(results: list[Result]) -> str:
    """Return the cases that did not pass in their newest run, with the last line of what they reported."""
    seen: set[str] = set()
    rows = []
    for result in results:
        for case in result["cases"].keys() - seen:
            if case in result["failures"]:
                lines = result["failures"][case].strip().splitlines() or [""]
                rows.append((f"`{case.removeprefix(f'{SUITE}/')}`", result["cases"][case], f"`{lines[-1][:200]}`"))
        seen |= result["cases"].keys()
    return table(("case", "outcome", "report"), sorted(rows)) if rows else "No case failed.\n"


def _numbers(answers: dict[str, Any]) -> str:
    """Return the largest error of each dtype, as a share of what is allowed."""
    worst: dict[str, float] = {}
    for name, errors in answers.items():
        if name.startswith("error "):
            dtype = name.split()[2]
            worst[dtype] = max(worst.get(dtype, 0.0), *errors.values())
    if not worst:
        return "The numbers of the two engines have not been compared.\n"
    rows = [(dtype, f"{share:.2f}") for dtype, share in worst.items()]
    explained = "The largest difference from the NumPy engine in float64, as a share of the allowed rounding.\n"
    return f"{explained}\n{table(('dtype', 'share'), rows)}"


def _layouts(answers: dict[str, Any]) -> str:
    layout = answers.get("layout")
    if layout is None:
        return "No layout has been asked for in such a run.\n"
    different = ", ".join(f"`{key}`" for key in layout["first_differences"]) or "none"
    return f"Of {layout['compared']} RNNs that were drawn, these kinds have another layout: {different}.\n"


def gpu_outcomes(results: list[Result]) -> dict[str, collections.Counter[str]]:
    """Return the number of cases by test and outcome; `results` are the newest first, each with some of the cases.

    Of each test, only the cases of the newest commit that ran it count: an older commit may have other cases.
    """
    commits: dict[str, str] = {}
    cases: dict[str, str] = {}
    for result in results:
        for case, outcome in result["cases"].items():
            if commits.setdefault(_test(case), result["commit"]) == result["commit"]:
                cases.setdefault(case, outcome)
    outcomes: dict[str, collections.Counter[str]] = {}
    for case, outcome in sorted(cases.items()):
        outcomes.setdefault(_test(case), collections.Counter())[outcome] += 1
    return outcomes


def _test(case: str) -> str:
    """Return the test of a case, as `gpu_suite` names it."""
    return case.removeprefix(f"{SUITE}/").partition("[")[0]


def _answers(results: list[Result]) -> dict[str, Any]:
    """Return the newest answer to each question."""
    return {name: answer for result in reversed(results) for name, answer in result["questions"].items()}


def _outcome(counts: collections.Counter[str]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "not run"


LAYOUTS: Final = """\
The layout of the params buffer is known without a GPU: CI asks the real libraries
[without one](layout.md#what-cudnn-reports). Everything that computes needs a GPU, and so does the last word on the
layout that a GPU's own run uses.
"""
