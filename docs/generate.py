"""Write the generated pages: `python -m docs.generate`.

`commands.md`, `compatibility.md` and `gpu-verification.md` are committed, and a test compares. The API reference has
one page per public module; those are only for the build.

`python -m docs.generate --results FOLDER` first copies the results of a run on a GPU to their places. It writes the
committed pages and `performance.md`.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any, Final

import click

from benchmarks import page
from docs.api import MOCKED
from docs.api_pages import REFERENCE, api_pages
from docs.gpu import NOTE, gpu_results, gpu_verification, place, table
from pycudnnrnn import _discovery
from pycudnnrnn._files import write_atomically
from pycudnnrnn.cli import command_group
from pycudnnrnn.errors import version_text

DOCS = Path(__file__).parent
ROOT = DOCS.parent
VERIFICATION = DOCS / "gpu-verification.md"


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
        runs = [(r["gpu"], r["compute_capability"], r["driver"], version_text(r["cudnn"]), r["date"]) for r in results]
        gpus = table(("GPU", "compute capability", "driver", "cuDNN", "date"), runs)
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
        record = json.loads(path.read_text(encoding="utf-8"))
        ran = f"{record['passed']} passed, {record['failed']} failed, {record['skipped']} skipped"
        python = record["python"] if record["gil"] else f"{record['python']} without the GIL"
        cudnn = record["cudnn"] or "not there"
        missing = ", ".join(record["not_run"]) or "nothing"
        rows.append((python, record["machine"], record["kernels"], cudnn, record["date"], ran, missing))
    return table(("Python", "processor", "kernels", "cuDNN", "date", "tests", "not run"), rows)


def commands() -> str:
    """Return the page of the command line: the help of each command."""
    parts = ["# Commands\n", NOTE, COMMANDS]
    group = command_group()
    for name, command in sorted(group.commands.items()):
        settings = group.context_settings
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
        VERIFICATION: gpu_verification(results),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="results of a run on a GPU; copied first")
    parser.add_argument("--stand-in", action="store_true", help="they are of a run without a GPU, to see its page")
    options = parser.parse_args()
    if options.results is not None:
        try:
            place(options.results, stand_in=options.stand_in)
        except (OSError, ValueError) as error:
            parser.error(str(error))
    if options.stand_in:
        pages = {VERIFICATION: gpu_verification(gpu_results(stand_in=True))}
    elif options.results is not None:
        pages = committed_pages()
        page.write()
    else:
        from sphinx.ext.autodoc.mock import mock  # noqa: PLC0415  the tests of this module do without Sphinx

        with mock([*MOCKED]):  # the pages are written without the frameworks
            pages = committed_pages() | api_pages()
        REFERENCE.mkdir(exist_ok=True)
    for path, text in pages.items():
        write_atomically(path, text.encode())


if __name__ == "__main__":
    main()
