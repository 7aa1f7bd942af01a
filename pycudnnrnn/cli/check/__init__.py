"""`pycudnnrnn check`: test the installation and print a report."""

from __future__ import annotations

import collections
import itertools
import sys
from typing import Any

import click

from pycudnnrnn.cli._output import console, echo_json
from pycudnnrnn.cli._text import printable
from pycudnnrnn.cli.check import self_test
from pycudnnrnn.cli.info import collect


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def check(as_json: bool) -> None:
    """Test this installation, and report the results in Markdown.

    The command loads libcudnn and tries its descriptors. It compares the NumPy engine with the equations and with
    numbers that TensorFlow and NVIDIA published. If there is a GPU, it compares the cuDNN engine with all of these. A
    check that cannot run on this machine is listed as "not run", with the reason.

    The report is for whoever helps you. The exit code is 1 if a check failed. It takes about ten seconds on two cores,
    and twenty when numba first compiles the CPU's kernels.

    \b
    Examples:
      pycudnnrnn check
      pycudnnrnn check > report.md
      pycudnnrnn check --json | jq '.checks[] | select(.outcome == "failed")'
    """  # noqa: D301  click reads the \b
    with console(stderr=True).status("checking") as status:
        outcomes = list(self_test.run(status.update))
    environment = collect()
    if as_json:
        echo_json({"environment": environment, "checks": [outcome._asdict() for outcome in outcomes]})
    else:
        click.echo(markdown(environment, outcomes))
    if any(outcome.outcome == "failed" for outcome in outcomes):
        sys.exit(1)


def markdown(environment: dict[str, Any], outcomes: list[self_test.Outcome]) -> str:
    """Write the report. Checks of one group with the same result share a row."""
    counts = collections.Counter(outcome.outcome for outcome in outcomes)
    package, library = environment["package"], environment["library"]
    cudnn = f"{library['version']}, found via {library['found_via']}" if library["found"] else library["problem"]
    rows = []
    for (group, outcome, detail), alike in itertools.groupby(outcomes, lambda o: (o.group, o.outcome, o.detail)):
        names = ", ".join(o.name for o in alike)
        rows.append(f"| {group} | {names} | {MARKS[outcome]} | {_escaped(detail)} |")
    optional = {name: version for extra in environment["optional"].values() for name, version in extra.items()}
    return "\n".join(
        [
            "## pycudnnrnn check",
            "",
            ", ".join(f"{counts[outcome]} {outcome}" for outcome in MARKS),
            "",
            *(f"- {name}: {_escaped(str(value))}" for name, value in (package | {"cuDNN": cudnn}).items()),
            f"- other packages: {', '.join(f'{name} {version}' for name, version in optional.items() if version)}",
            "",
            "| | check | outcome | detail |",
            "| --- | --- | --- | --- |",
            *rows,
        ]
    )


MARKS = {"passed": "passed", "failed": "**failed**", "not run": "not run"}


def _escaped(text: str) -> str:
    return printable(" ".join(text.split())).replace("|", "\\|")
