"""`python -m benchmarks`: time problems with this package and others; `report` and `compare` read what it wrote."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks import adapters, page, problems, report, results_files, runner
from benchmarks.data import spec_of
from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import PycudnnrnnError

Words = tuple[str, ...]
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


def words(_context: Any, parameter: click.Parameter, values: Words) -> Words:
    """Split values at commas, and compare them with what `KNOWN` has for the option."""
    found = tuple(word for value in values for word in value.split(","))
    known = KNOWN.get(str(parameter.name), {})
    if known and (unknown := [word for word in found if word not in known]):
        raise click.BadParameter(f"{unknown[0]!r}: expecting {', '.join(known)}")
    return found


KNOWN: dict[str, Any] = {"group": problems.GROUPS, "passes": problems.PASSES, "dtype": problems.DTYPES}


def numbers(context: Any, parameter: click.Parameter, values: Words) -> tuple[int, ...]:
    found = words(context, parameter, values)
    if not all(word.isdecimal() and int(word) for word in found):
        raise click.BadParameter(f"{','.join(found)!r}: expecting numbers from 1")
    return tuple(map(int, found))


class Commands(click.Group):
    """A group whose errors are one sentence each."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (ValueError, PycudnnrnnError, OSError) as error:
            raise click.ClickException(str(error)) from None


@click.group(cls=Commands, invoke_without_command=True, context_settings={"max_content_width": 110})
@click.option("--problem", multiple=True, help='As "lstm T=37 B=5 I=80 U=320 bidirectional", or a name of --list.')
@click.option("--sweep", help="Each --problem for each value: U=16:1024:*2, T=10:50:+10 or B=1,8,32.")
@click.option("--group", multiple=True, callback=words, help="Groups of --list (cpu, or stream on a GPU).")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--against", multiple=True, callback=words, help="Libraries of --list, or path/to/mine.py:function.")
@click.option("--pass", "passes", multiple=True, callback=words, help=f"What to time: {', '.join(problems.PASSES)}.")
@click.option("--dtype", multiple=True, callback=words, help=f"Arithmetic: {', '.join(problems.DTYPES)}.")
@click.option("--threads", multiple=True, callback=numbers, help="Threads on the CPU: 1,2 (all that may be used).")
@click.option("--cold", is_flag=True, help="Empty the caches before each call.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="End after so many, checks included.")
@click.option("--rounds", type=click.IntRange(1), default=4, show_default=True, help="How often each library is timed.")
@click.option("--sample", type=click.FloatRange(0), default=0.5, show_default=True, help="Seconds per timing.")
@click.option("--json", "out", type=click.Path(path_type=Path), help="New .jsonl file, or a folder for one.")
@click.option("--list", "listed", is_flag=True, help="List problems with sizes and sources, and libraries.")
@click.pass_context
def main(context: click.Context, **options: Any) -> None:
    """Time RNNs of any sizes, or of published ones, and compare with other libraries.

    The results of each library are checked before it is timed. Every row that was asked for is reported, with its time
    or with the reason why it has none. A ratio is our time divided by theirs: below 1, this package is faster. One of
    ours is timed twice, to show what is noise. Lists have commas, or the option is repeated.

    \b
    python -m benchmarks --problem "lstm T=37 B=5 I=80 U=320 L=3 bidirectional ragged" --threads 1,2
    python -m benchmarks --problem "gru T=10 B=5 U=16" --sweep "U=16:1024:*2" --json sweep.jsonl
    python -m benchmarks --problem LSTM_A --against mine.py:prepare
    python -m benchmarks --group cpu --pass infer --against torch-cpu --against torch-cpu
    python -m benchmarks --device cuda --group stream --dtype float16 --cold
    """  # noqa: D301  click reads this sign, and leaves the lines after it as they are
    if context.invoked_subcommand is None:
        listing() if options["listed"] else measure(**options)


def listing() -> None:
    """Print what there is to time, and who."""
    for group in problems.GROUPS.values():
        click.echo(f"{group.name}: {group.why}; source: {group.source}")
        for p in group.problems:
            click.echo(f"    {p.name}{f'  ({p.tag})' if p.tag else ''}")
    click.echo("libraries:")
    for who in adapters.COMPETITORS.values():
        click.echo(f"    {who.name} ({who.device}): {who.what}")


def rows_asked(options: dict[str, Any]) -> list[problems.Row]:
    """Return the rows that the options name.

    Raises:
        ValueError: a text that describes no problem.
        PycudnnrnnError: sizes that no RNN has.
    """
    caches, device = "cold" if options["cold"] else "warm", options["device"]
    changes = {n: options[name] for n, name in (("passes", "passes"), ("dtypes", "dtype")) if options[name]}
    own: list[problems.Problem] = []
    for text in options["problem"]:
        for line in [p.name for p in problems.named(text)] or [text]:
            swept = problems.parse(f"{line} {options['sweep'] or ''}")
            own += [p.replace(dtypes=("float32",) if device == "cpu" else ("float16", "float32")) for p in swept]
    list(map(spec_of, own))  # what refuses sizes that no RNN has
    groups = {"given": own} if own else {}
    for name in options["group"] or ([] if own else ["cpu" if device == "cpu" else "stream"]):
        groups[name] = list(problems.GROUPS[name].problems)
    return [
        row for name, some in groups.items()
        for row in problems.rows_of_problems(name, [p.replace(**changes) for p in some], caches)
    ]  # fmt: skip


def competitors_asked(options: dict[str, Any]) -> list[adapters.Competitor]:
    """Return who runs, the first of them twice: what its two times differ by is noise."""
    device, against = options["device"], list(options["against"])
    ours = list(adapters.OURS[device])
    if "step" in options["group"]:
        ours = [*adapters.STEPS, *ours]
    if options["group"] == ("host",):
        ours, against = ["plan-host", "eager-host", "torch-ours-host"], against or [""]
    names = [n for n in ours if n not in against] + [n for n in against or adapters.AGAINST[device] if n]
    twice = [] if names.count(names[0]) > 1 else [names[0]]
    return [adapters.competitor(name, device) for name in names + twice]


def measure(**options: Any) -> None:
    device, out = options["device"], options["out"]
    if device == "cpu" and not hasattr(os, "sched_setaffinity"):
        raise click.UsageError("a library stays on as many processors as it has threads here, which needs Linux")
    if device == "cuda":
        engine_for("cuda")  # one error for what is missing, and not one in each row
    if options["sweep"] and not options["problem"]:
        raise click.UsageError("--sweep needs a --problem")
    rows, who = rows_asked(options), competitors_asked(options)
    cores = len(os.sched_getaffinity(0)) if device == "cpu" else 1
    part = runner.Part(rows, runner.hosts_for(who, options["threads"] or [cores]))
    settings = runner.Settings(options["rounds"], options["sample"], options["seconds"])
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what ends a run early leaves a whole report
    results = runner.measure([part], settings, out, Console(stderr=True), on_gpu=device == "cuda")
    click.echo(report.text(results.rows))


@main.command("report")
@click.argument("files", nargs=-1, type=FILE)
@click.option("--csv", "as_csv", is_flag=True, help="Print every row and every figure as CSV.")
@click.option("--picture", type=NEW_FILE, help="Draw the times to this .svg, .pdf or .png.")
@click.option("--page", "as_page", is_flag=True, help="Write docs/performance.md from benchmarks/results/.")
def report_command(files: tuple[Path, ...], picture: Path | None, *, as_csv: bool, as_page: bool) -> None:
    """Print what results files say as a table, as CSV, or draw it. Only --page writes pages of this repository."""
    if bool(files) + as_page != 1 or as_csv + as_page + (picture is not None) > 1:
        raise click.UsageError("name results files or --page, and one of --csv, --picture and --page at most")
    found = list(map(results_files.load, files))
    if as_page:
        page.write()
    elif as_csv:
        click.echo(report.as_csv(found), nl=False)
    elif picture is not None:
        report.picture([row for run in found for row in run.rows], picture)
    else:
        for run in found:
            click.echo(f"{page.where(run)}\n\n{report.text(run.rows)}\n")


@main.command()
@click.argument("before", type=FILE)
@click.argument("after", type=FILE)
def compare(before: Path, after: Path) -> None:
    """Print how the times of two results files differ, and what changed outside both files' noise."""
    click.echo(report.compare(results_files.load(before), results_files.load(after)))


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
