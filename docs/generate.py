"""Write the generated pages: `make docs` calls this.

`commands.md`, `compatibility.md` and `gpu-verification.md` are committed, and a test compares. The API reference has
one page per public module; those are only for the build.
"""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from docs.api import MOCKED
from docs.api_pages import REFERENCE, api_pages
from pycudnnrnn import _discovery
from pycudnnrnn._files import write_atomically
from pycudnnrnn.cli.commands import pycudnnrnn
from pycudnnrnn.errors import version_text
from tests.gpu.results_file import load

DOCS = Path(__file__).parent
ROOT = DOCS.parent
RESULTS = ROOT / "tests/gpu/results"

NOTE = "<!-- Written by docs/generate.py (make docs). Edit that. -->\n"


class Asked(NamedTuple):
    """A test of the GPU suite, and the questions that it records an answer to."""

    name: str
    questions: tuple[str, ...]


def gpu_suite() -> Iterator[Asked]:
    """Yield the tests of `tests/gpu`, read from the source: nothing is imported, so CuPy is not needed."""
    for path in sorted((ROOT / "tests/gpu").glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                calls = (call for call in ast.walk(node) if isinstance(call, ast.Call))
                asked = (_text(call.args[0]) for call in calls if getattr(call.func, "id", None) == "answer")
                yield Asked(f"{path.name}::{node.name}", tuple(dict.fromkeys(asked)))


def _text(node: ast.expr) -> str:
    """Return a string literal; an f-string with its expressions in angle brackets, of a choice both words."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        value = node.value
        choice = isinstance(value, ast.IfExp)
        return f"<{_text(value.body)} or {_text(value.orelse)}>" if choice else f"<{ast.unparse(value)}>"
    return str(ast.literal_eval(node))


def gpu_results(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """Every results file, the newest first.

    Raises:
        ValueError: a file that was written without a GPU.
    """
    found = []
    for path in folder.glob("*.jsonl"):
        result = load(path)
        if result["on_shim"] or "gpu" not in result:
            raise ValueError(f"{path} was written without a GPU")
        found.append({"file": path.name, **result})
    return sorted(found, key=lambda result: str(result["date"]), reverse=True)


def table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """Return a Markdown table."""
    cells = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in cells) + "\n"


def gpu_verification(results: list[dict[str, Any]]) -> str:
    """Return the page that lists what has run on a GPU and what has not."""
    outcomes, answers = gpu_outcomes(results), _answers(results)
    tests = [(f"`{a.name}`", _outcome(outcomes.get(a.name, {}))) for a in gpu_suite()]
    open_questions = [(f"`{q}`", f"`{a.name}`") for a in gpu_suite() for q in a.questions if not _answered(q, answers)]
    parts = ["# GPU verification\n", NOTE, _for_users(results, outcomes)]
    if results:
        runs = [
            (f"`{r['file']}`", r["date"], f"`{r['commit'][:12]}`", r["gpu"], version_text(r["cudnn"]),
             r["cuda_runtime"], r["cupy"], r["python"], r["passed"], r["failed"] + r["error"] + r["ended"],
             r["skipped"])
            for r in results
        ]  # fmt: skip
        head = ("file", "date", "commit", "GPU", "cuDNN", "CUDA", "CuPy", "Python", "passed", "failed", "skipped")
        parts += ["## Runs\n", table(head, runs)]
    parts += ["## Layouts\n", LAYOUTS, "## Cell clipping\n", _clipping(answers)]
    if not results:  # every row would be "not run"
        return "\n".join(parts)
    counted = "For each test, the last outcome of each case is counted, from the newest commit that ran the test.\n"
    parts += ["## Tests\n", counted, folded("tests", table(("test", "outcome"), tests))]
    if answers:
        rows = [(name, f"`{json.dumps(value)}`") for name, value in answers.items()]
        answered = folded("answers", table(("question", "answer"), rows))
        parts += ["## Questions answered\n", "Each question has its newest answer.\n", answered]
    if open_questions:
        explained = (
            "cuDNN's documentation leaves these questions open, and only a GPU can answer them. Until then the code "
            "does not depend on the answers.\n"
        )
        questions = folded("questions", table(("question", "asked by"), open_questions))
        parts += ["## Questions not answered\n", explained, questions]
    return "\n".join(parts)


def folded(what: str, rows: str) -> str:
    """Fold a table: a reader opens it by a click. `rows` is the table."""
    return f"<details>\n<summary>{rows.count(chr(10)) - 2} {what}</summary>\n\n{rows}\n</details>\n"


def _for_users(results: list[dict[str, Any]], outcomes: dict[str, dict[str, int]]) -> str:
    """Return what has run, what it means, and how to run the suite: a line each."""
    if results:
        passed = sum(counts.get("passed", 0) for counts in outcomes.values())
        every = sum(sum(counts.values()) for counts in outcomes.values())
        gpus = ", ".join(dict.fromkeys(result["gpu"] for result in results))
        state = f"**What has run**: {passed} of {every} cases passed on {gpus}. The tables below list all of them."
        means = "versions, GPUs and questions that are not listed below are untested."
    else:
        state = "**What has run**: Nothing has been verified on a GPU yet. There is no results file."
        means = (
            "the calls to cuDNN are tested against the real library with a stand-in that computes in place of the GPU. "
            "The numbers, speed and memory use on a real GPU are unknown."
        )
    how = (
        "run `make gpu-check` on a CUDA machine. It runs `tests/gpu` and writes a file to `tests/gpu/results/`. Then "
        "`make docs` updates this page. `tests/gpu/PLAN.md` splits the run into several short calls."
    )
    return f"{state}\n\n**What this means**: {means}\n\n**How to run the suite**: {how}\n"


def gpu_outcomes(results: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the number of cases by test and outcome; `results` are the newest first, each with some of the cases.

    Of each test, only the cases of the newest commit that ran it count: an older commit may have other cases.
    """
    commits: dict[str, str] = {}
    cases: dict[str, str] = {}
    for result in results:
        for case, outcome in result["cases"].items():
            if commits.setdefault(_test(case), result["commit"]) == result["commit"]:
                cases.setdefault(case, outcome)
    found: dict[str, dict[str, int]] = {}
    for case, outcome in sorted(cases.items()):
        counts = found.setdefault(_test(case), {})
        counts[outcome] = counts.get(outcome, 0) + 1
    return found


def _test(case: str) -> str:
    """Return the test of a case, as `gpu_suite` names it."""
    return case.removeprefix("tests/gpu/").partition("[")[0]


def _answers(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the newest answer to each question."""
    return {name: answer for result in reversed(results) for name, answer in result["questions"].items()}


def _clipping(answers: dict[str, Any]) -> str:
    """Return what a GPU has shown of the bounds of `cell_clip`, and the rule that needs no answer."""
    found = answers.get("clip bounds of float64, 0.3")
    seen = "No GPU has shown yet whether cuDNN clips float64 cells with float64 bounds."
    if found is not None:
        taken = {"float": "a float", "double": "a double"}.get(found["taken as"], "neither a float nor a double")
        seen = f"cuDNN reads a bound of 0.3 for float64 cells as {taken}."
    return f"{seen} `cell_clip` is rounded to float32 in every dtype, so both engines clip with the same numbers.\n"


def _outcome(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "not run"


def _answered(question: str, answers: dict[str, Any]) -> bool:
    head = question.partition("<")[0]
    return any(name == question or (head != question and name.startswith(head)) for name in answers)


def compatibility(results: list[dict[str, Any]]) -> str:
    """Return the page of versions, each with what it was tested against."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, tested = content["project"], content["dependency-groups"]["test"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    headers = sorted(json.loads(p.read_text("utf-8"))["version"] for p in (ROOT / "tests/abi/headers").glob("*.json"))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    newest = next(line.split("==")[1] for line in makefile.splitlines() if line.startswith("CUDNN ")).rpartition(".")[0]
    checked = (
        "every prototype and constant, against its headers; the [layouts](layout.md) that the real library reports"
    )
    in_ci = {version_text(v): checked for v in headers}
    in_ci["8.9.7"] += " by both of its queries"
    in_ci[newest] = "the same, and the real library's descriptors, errors and limits (a stand-in computes)"
    on_gpu: dict[str, list[str]] = {}
    for result in results:
        on_gpu.setdefault(version_text(result["cudnn"]), []).append(result["gpu"])
    cudnn = [(v, in_ci.get(v, "no"), ", ".join(dict.fromkeys(on_gpu.get(v, ["no"])))) for v in {**in_ci, **on_gpu}]
    simulated = _version(tested, "cupy").removeprefix("==")
    rows = [
        (
            "Python",
            project["requires-python"],
            "all tests on 3.11; the others [below](#systems-processors-and-pythons)",
        ),
        ("NumPy", _version(project["dependencies"], "numpy"), "the newest on PyPI when CI runs"),
        ("safetensors", _version(project["dependencies"], "safetensors"), "the newest on PyPI when CI runs"),
        *(
            (name, _version(project["dependencies"], name), "the newest on PyPI when CI runs")
            for name in ("click", "rich", "filelock")
        ),
        ("CuPy, CUDA 12", _version(extras["cuda12"], "cupy"), "no"),
        ("CuPy, CUDA 13", _version(extras["cuda13"], "cupy"), f"{simulated}, with arrays in host memory"),
        (
            "torch",
            f"{_version(extras['torch'], 'torch')} for the modules and `.pt` files; any with DLPack for tensors in ops",
            f"{_version(tested, 'torch').removeprefix('==')}, on the CPU",
        ),
    ]
    accepted = (
        f"Accepted versions: {version_text(_discovery.OLDEST)} and every 9.x. Version 10 raises an error, because a "
        "new major version may change any prototype. **We have never run cuDNN 8.x on hardware**: it is tested only "
        "against its headers, with a stand-in for the GPU, and by its layouts, which need no GPU.\n"
    )
    gpus = "No run on a GPU is recorded: see [GPU verification](gpu-verification.md).\n"
    if results:
        found = [(r["gpu"], r["compute_capability"], r["driver"], version_text(r["cudnn"]), r["date"]) for r in results]
        gpus = table(("GPU", "compute capability", "driver", "cuDNN", "date"), found)
    parts = [
        "# Compatibility\n",
        NOTE,
        "This page lists what has been tested, not everything that should work.\n",
        "## cuDNN\n",
        accepted,
        table(("version", "tested in CI", "ran on a GPU"), cudnn),
        "bfloat16 needs cuDNN 9.13 or newer: 8.9.7, 9.0.0 and 9.12.0 reject the descriptor (observed).\n",
        "## Everything else\n",
        table(("what", "accepted", "tested"), rows),
        "## Systems, processors and Pythons\n",
        table(("system", "processor", "run", "played", "nobody has run"), SYSTEMS),
        PLAYED,
        elsewhere(),
        "## GPUs\n",
        gpus,
    ]
    return "\n".join(parts)


LAYOUTS: Final = """\
The layout of the params buffer is known without a GPU: CI asks the real libraries
[without one](layout.md#what-cudnn-reports). Everything that computes needs a GPU, and so does the last word on the
layout that a GPU's own run uses.
"""

SYSTEMS: Final = (
    ("Linux", "x86-64", "all tests, in CI", "", "see [GPUs](#gpus)"),
    ("Linux", "ARM (aarch64)", "the quick tests, on an emulated processor", "", "an ARM processor, a GPU of one"),
    ("macOS", "any", "", "the CPU part", "macOS itself; there is no cuDNN for it"),
    ("Windows", "x86-64", "", "the CPU part, the search for libcudnn", "Windows itself, a GPU"),
)
COMMANDS: Final = """\
`pip install .` also installs the command `pycudnnrnn`:

| you want to | command |
| --- | --- |
| know whether the package works here | `pycudnnrnn info` |
| test the installation | `pycudnnrnn check` |
| move weights from one framework's file to another's | `pycudnnrnn convert SRC DST` |
| see the tensors of a file | `pycudnnrnn inspect FILE` |
| see where each matrix is in the params buffer | `pycudnnrnn layout lstm 1 64 32` |

The exit code is 0 if the command worked, 1 on an error, 2 on wrong usage, and 130 after Ctrl-C.
"""

PLAYED: Final = """\
*Played* means: tests take from Python on Linux what the system lacks, then run, train, save, restore and convert, and
run every command (`tests/systems`). This cannot show what the system does differently. On Windows a file that another
program has open cannot be replaced: saving over it raises `PermissionError`, and the old file stays. The
`cudnn64_9.dll` of NVIDIA's wheel for Windows exports every function of cuDNN 9 that the binding calls (9.28.0, compared
on 2026-11-25).

These ran the quick tests (`tests/systems/python.sh`, `tests/systems/arm.sh`). `make dist` also installs the wheel on
each Python.
"""


def elsewhere() -> str:
    """Return what ran on other Pythons and processors, from `tests/systems/results`."""
    rows = []
    for path in sorted((ROOT / "tests" / "systems" / "results").glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        ran = f"{found['passed']} passed, {found['failed']} failed, {found['skipped']} skipped"
        python = found["python"] if found["gil"] else f"{found['python']} without the GIL"
        cudnn = found["cudnn"] or "not there"
        missing = ", ".join(found["not_run"]) or "nothing"
        rows.append((python, found["machine"], found["kernels"], cudnn, found["date"], ran, missing))
    return table(("Python", "processor", "kernels", "cuDNN", "date", "tests", "not run"), rows)


def commands() -> str:
    """Return the page of the command line: the help of each command."""
    parts = ["# Commands\n", NOTE, COMMANDS]
    for name, command in sorted(pycudnnrnn.commands.items()):
        settings = pycudnnrnn.context_settings
        context = click.Context(command, info_name=f"pycudnnrnn {name}", terminal_width=100, **settings)
        parts.append(f"## pycudnnrnn {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def _version(requirements: list[Any], name: str) -> str:
    """Return what a list of requirements asks of a package: ">=1.26"."""
    requirement: str = next(r for r in requirements if isinstance(r, str) and r.startswith(name))
    return requirement[min(i for i, c in enumerate(requirement) if c in "<>=") :]


def committed_pages() -> dict[Path, str]:
    """The generated pages that are in the repository."""
    results = gpu_results()
    return {
        DOCS / "commands.md": commands(),
        DOCS / "compatibility.md": compatibility(results),
        DOCS / "gpu-verification.md": gpu_verification(results),
    }


def main() -> None:
    """Write all of them, without the frameworks."""
    from sphinx.ext.autodoc.mock import mock  # noqa: PLC0415  the tests of this module do without Sphinx

    with mock([*MOCKED]):
        pages = committed_pages() | api_pages()
    REFERENCE.mkdir(exist_ok=True)
    for path, text in pages.items():
        write_atomically(path, text.encode())


if __name__ == "__main__":
    main()
