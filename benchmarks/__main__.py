"""`python -m benchmarks`: time a group of problems with this package and others, and print the table."""

from __future__ import annotations

import os
from pathlib import Path

import click

from benchmarks import adapters, problems, report, runner
from pycudnnrnn.cli._output import SafeConsole, console
from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import PycudnnrnnError


@click.command()
@click.option(
    "--group",
    "groups",
    multiple=True,
    type=click.Choice([*problems.GROUPS]),
    help="A group of problems; may be repeated.  [default: cpu, or stream on a GPU]",
)
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Device to run on."
)
@click.option(
    "--against",
    multiple=True,
    type=click.Choice([*adapters.COMPETITORS]),
    help="A library to compare with; may be repeated.  [default: the usual ones]",
)
@click.option(
    "--pass",
    "passes",
    multiple=True,
    type=click.Choice(problems.PASSES),
    help="The pass to time; may be repeated.  [default: those of the group]",
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    type=click.Choice([*problems.GPU_DTYPES, "float64"]),
    help="The arithmetic; may be repeated.  [default: those of the group]",
)
@click.option(
    "--threads",
    multiple=True,
    type=click.IntRange(1),
    help="Number of threads on the CPU; may be repeated.  [default: all cores]",
)
@click.option(
    "--seconds", type=click.FloatRange(0, min_open=True), help="Stop after this many; list rows that were not reached."
)
@click.option(
    "--rounds", type=click.IntRange(1), default=4, show_default=True, help="How often each library is timed per row."
)
@click.option(
    "--sample", type=click.FloatRange(0, min_open=True), default=0.5, show_default=True, help="Seconds per timing."
)
@click.option("--json", "out", type=click.Path(path_type=Path), help="Write JSON lines to this .jsonl file or folder.")
@click.option("--list", "listed", is_flag=True, help="List the groups and the libraries, and exit.")
def main(
    groups: tuple[str, ...], device: str, against: tuple[str, ...], passes: tuple[str, ...], dtypes: tuple[str, ...],
    threads: tuple[int, ...], seconds: float | None, rounds: int, sample: float, out: Path | None, listed: bool,
) -> None:  # fmt: skip
    """Time RNNs of published sizes and compare with other libraries.

    The results of each library are checked before it is timed. Every row that was asked for is reported, with its time
    or with the reason why it has none. A ratio is our time divided by theirs: below 1, this package is faster.

    \b
    Examples:
      python -m benchmarks
      python -m benchmarks --group cpu --pass infer --against torch-cpu
      python -m benchmarks --threads 1 --threads 2 --json cpu.jsonl
      python -m benchmarks --device cuda --group stream --dtype float16
    """  # noqa: D301  click reads the \b
    if listed:
        _print_list(console())
        return
    groups = groups or (("cpu",) if device == "cpu" else ("stream",))
    if device == "cuda":
        engine_for("cuda")  # one error for what is missing, and not one in each row
    rows = problems.rows_of(
        groups, lambda row: (not passes or row.which in passes) and (not dtypes or row.dtype in dtypes)
    )
    if not rows:
        raise click.UsageError(f"no row of {', '.join(groups)} has these passes and types")
    names = tuple(dict.fromkeys((*adapters.OURS[device], *(against or adapters.AGAINST[device]))))
    part = runner.Part(rows, runner.hosts_for(names, threads or (os.cpu_count() or 1,)))
    results = runner.measure([part], runner.Settings(rounds, sample, seconds), out, console(stderr=True))
    print(report.comparison(results.rows, names[0]), report.without(results.rows), sep="\n\n")


def _print_list(screen: SafeConsole) -> None:
    for group in problems.GROUPS.values():
        screen.say(f"{group.name}: {len(group.problems)} problems, {group.why}")
    for competitor in adapters.COMPETITORS.values():
        screen.say(f"{competitor.name} ({competitor.device}): {competitor.what}")


if __name__ == "__main__":
    try:
        main()
    except (PycudnnrnnError, OSError) as error:
        raise SystemExit(f"benchmarks: {error}") from None
