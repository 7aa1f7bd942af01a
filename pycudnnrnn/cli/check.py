"""`pycudnnrnn check`: test the installation and print a report.

Each check returns a detail, or raises `Failed`, or `NotRun` with what is missing.
"""

from __future__ import annotations

import collections
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import click
import numpy as np

from pycudnnrnn import _arrays, libcudnn, ops
from pycudnnrnn._discovery import NotFoundError
from pycudnnrnn._libcudnn import PROTOTYPES
from pycudnnrnn.cli import printable
from pycudnnrnn.cli._output import console, echo_json
from pycudnnrnn.cli.info import collect
from pycudnnrnn.engines import Engine, engine_for
from pycudnnrnn.engines.cudnn.descriptors import RNNDataDescriptor, RNNDescriptor, rnn_arguments
from pycudnnrnn.errors import PycudnnrnnError, version_text
from pycudnnrnn.layout import arithmetic_layout, differences
from pycudnnrnn.spec import RNNSpec
from pycudnnrnn.testing import goldens, reference
from pycudnnrnn.testing.problems import Problem, make_problem

SPECS: Final = (
    RNNSpec("lstm", 2, 4, 3, direction="bidirectional", dtype="float64", num_proj=2, cell_clip=0.5),
    RNNSpec("gru", 2, 3, 4, direction="bidirectional", dtype="float64"),
    RNNSpec("gru", 1, 4, 3, bias_mode="single_recurrent", dtype="float64"),
    RNNSpec("rnn_tanh", 2, 3, 3, input_mode="skip_input", bias_mode="single_input", dtype="float64"),
    RNNSpec("rnn_relu", 1, 4, 5, bias_mode="none", dtype="float64"),
)
"""Small models that together have every cell, direction, bias mode and input mode, projection and clip."""

LENGTHS: Final = [4, 0, 2]
"""Ragged, unsorted, and with an empty sequence."""

TOLERANCES: Final = {"float64": 1e-10, "float32": 1e-4}
"""Largest error against NumPy's results in float64, relative where they pass 1; float32 has 24 bits of mantissa."""


class NotRun(Exception):  # noqa: N818  an outcome, not an error
    """The check cannot run on this machine."""


class Failed(Exception):  # noqa: N818
    """The check found a wrong result."""


class Outcome(NamedTuple):
    """The result of a check: `outcome` is "passed", "failed" or "not run"."""

    group: str
    name: str
    outcome: str
    detail: str


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
        outcomes = list(run(status.update))
    environment = collect()
    if as_json:
        echo_json({"environment": environment, "checks": [outcome._asdict() for outcome in outcomes]})
    else:
        click.echo(markdown(environment, outcomes))
    if any(outcome.outcome == "failed" for outcome in outcomes):
        sys.exit(1)


def markdown(environment: dict[str, Any], outcomes: list[Outcome]) -> str:
    """Write the report. Checks of one group with the same result share a row."""
    counts = collections.Counter(outcome.outcome for outcome in outcomes)
    package, library = environment["package"], environment["library"]
    cudnn = f"{library['version']}, found via {library['found_via']}" if library["found"] else library["problem"]
    rows = []
    for (group, outcome, detail), alike in itertools.groupby(outcomes, lambda o: (o.group, o.outcome, o.detail)):
        names = ", ".join(o.name for o in alike)
        rows.append(f"| {group} | {names} | {MARKS[outcome]} | {_escaped(detail)} |")
    optional = {name: version for extra in environment["optional"].values() for name, version in extra.items()}
    lines = ["## pycudnnrnn check", "", ", ".join(f"{counts[outcome]} {outcome}" for outcome in MARKS), ""]
    lines += [f"- {name}: {_escaped(str(value))}" for name, value in (package | {"cuDNN": cudnn}).items()]
    lines += [f"- other packages: {', '.join(f'{name} {version}' for name, version in optional.items() if version)}"]
    return "\n".join([*lines, "", "| | check | outcome | detail |", "| --- | --- | --- | --- |", *rows])


MARKS = {"passed": "passed", "failed": "**failed**", "not run": "not run"}


def _escaped(text: str) -> str:
    return printable(" ".join(text.split())).replace("|", "\\|")


def run(before: Callable[[str], None]) -> Iterator[Outcome]:
    """Run every check, even if others failed. Call `before` with a line about each check before it runs."""
    count = sum(map(len, GROUPS.values()))
    for i, (group, name, check) in enumerate((g, n, c) for g, checks in GROUPS.items() for n, c in checks.items()):
        before(f"check {i + 1} of {count}: {group}, {name}")
        try:
            yield Outcome(group, name, "passed", check())
        except NotRun as error:
            yield Outcome(group, name, "not run", str(error))
        except NotFoundError as error:
            why = f"{error.reason}; `pycudnnrnn info` lists the places that were searched"
            yield Outcome(group, name, "not run", why)
        except Exception as error:  # noqa: BLE001  any error is a line of the report
            kind = "" if isinstance(error, Failed) else f"{type(error).__name__}: "
            yield Outcome(group, name, "failed", f"{kind}{error}")


def _cuda() -> Engine:
    try:
        return engine_for("cuda")
    except (PycudnnrnnError, ImportError) as error:
        raise error if isinstance(error, NotFoundError) else NotRun(str(error)) from error


def library_loads() -> str:
    library = libcudnn.load()
    return f"{version_text(library.version)} at {library.path}, found via {library.found_via}"


def functions_are_there() -> str:
    library = libcudnn.load()
    names = [name for name, p in PROTOTYPES.items() if p.since <= library.version < p.until]
    missing = [name for name in names if not getattr(library, name).is_there]
    _demand(not missing, f"missing: {', '.join(missing)}")
    return f"all {len(names)} of this version"


def descriptors_round_trip() -> str:
    """Set descriptors, and compare them with what the library's getters return."""
    library = libcudnn.load()
    for spec in SPECS:
        with RNNDescriptor(library, spec) as descriptor:
            settings = descriptor.read()
        expected = settings | rnn_arguments(spec) | {"clipMode": libcudnn.cudnnRNNClipMode_t.NONE}
        if spec.cell_clip is not None:
            expected |= dict(zip(("lclip", "rclip"), spec.cell_clip, strict=True))
            expected["clipMode"] = libcudnn.cudnnRNNClipMode_t.MINMAX
        _demand(settings == expected, f"{spec!r} came back as {settings}")
        with RNNDataDescriptor(library, spec.dtype, 4, len(LENGTHS), spec.input_size, lengths=LENGTHS) as data:
            lengths = data.read()["seqLengthArray"]
        _demand(lengths == LENGTHS, f"lengths {LENGTHS} came back as {lengths}")
    return f"{len(SPECS)} RNNs and their data"


def layouts_are_as_predicted() -> str:
    engine = _cuda()
    for spec in SPECS:
        different = differences(arithmetic_layout(spec), engine.layout(spec))
        _demand(not different, f"{spec!r}: cuDNN has {different}")
    return f"{len(SPECS)} layouts by arithmetic equal those asked of cuDNN"


def numpy_equals_the_reference() -> str:
    """Compare every result and every gradient; the reference computes gradients by complex steps."""
    worst = 0.0
    for seed, spec in enumerate(SPECS):
        problem = make_problem(ops.from_spec(spec), max(LENGTHS), len(LENGTHS), LENGTHS, seed)
        weights, biases = problem.op.params_to_canonical(problem.params)
        arguments = (weights, biases, problem.x, problem.hx, problem.cx)
        y, hy, cy = reference.forward(spec, *arguments, lengths=LENGTHS)
        upstream = (problem.dy, problem.dhy, problem.dcy if spec.has_cell_state else np.zeros_like(problem.dcy))
        dw, db, dx, dhx, dcx = reference.gradients(spec, arguments, LENGTHS, upstream)
        expected = {"y": y, "hy": hy, "dx": dx, "dhx": dhx, "dparams": problem.op.canonical_to_params(dw, db)}
        if spec.has_cell_state:
            expected |= {"cy": cy, "dcx": dcx}
        worst = max(worst, _error(spec, _results(problem), expected, TOLERANCES["float64"]))
    return f"worst error {worst:.1e} over {len(SPECS)} models with their gradients"


def cuda_equals_numpy() -> str:
    engine = _cuda()
    errors = []
    for dtype, tolerance in TOLERANCES.items():
        worst = 0.0
        for seed, spec in enumerate(SPECS):
            double, problem = (
                make_problem(ops.from_spec(s), max(LENGTHS), len(LENGTHS), LENGTHS, seed)
                for s in (spec, spec.replace(dtype=dtype))
            )
            outputs = _results(problem.to(engine.device))
            worst = max(worst, _error(problem.spec, outputs, _results(double), tolerance))
        errors.append(f"{dtype} {worst:.1e}")
    return f"worst errors: {', '.join(errors)}, over {len(SPECS)} models with their gradients"


def tf_values(device: str) -> str:
    for mode, L, U, inputs, B, T, expected in goldens.TF_VALUES:
        for dtype in TOLERANCES:
            total = goldens.sum_on_ones(device, mode, L, U, inputs, B, T, dtype)
            _near(f"{mode} L{L} U{U} I{inputs} B{B} T{T} in {dtype}", total, expected, 1e-6)
    return f"{len(goldens.TF_VALUES)} values of testSimpleInference, in {' and '.join(TOLERANCES)}"


def nvidia_checksums(device: str) -> str:
    for mode, expected in goldens.NVIDIA_CHECKSUMS.items():
        checksums = goldens.checksums(device, mode)
        for name, value in expected.items():
            _near(f"{mode} {name}", checksums[name], value, 1e-5)
    return f"{sum(map(len, goldens.NVIDIA_CHECKSUMS.values()))} checksums of the RNN sample"


GROUPS: Final[dict[str, dict[str, Callable[[], str]]]] = {
    "library": {
        "libcudnn loads": library_loads,
        "all functions exist": functions_are_there,
        "descriptors return their settings": descriptors_round_trip,
    },
    "NumPy engine": {
        "equals the reference": numpy_equals_the_reference,
        "TensorFlow's values": lambda: tf_values("cpu"),
        "NVIDIA's checksums": lambda: nvidia_checksums("cpu"),
    },
    "cuDNN engine": {
        "runs": lambda: f"cudnn engine on {_cuda().device}",
        "layouts are as predicted": layouts_are_as_predicted,
        "equals the NumPy engine": cuda_equals_numpy,
        "TensorFlow's values": lambda: tf_values(_cuda().device),
        "NVIDIA's checksums": lambda: nvidia_checksums(_cuda().device),
    },
}


def _results(problem: Problem) -> dict[str, Any]:
    """Return every result and gradient of a problem on the host; that of params in the layout by arithmetic."""
    results = problem.results()
    results["dparams"] = problem.op.move_params(results["dparams"], "cpu")
    return {name: _arrays.move(array, np) for name, array in results.items()}


def _error(spec: RNNSpec, results: dict[str, Any], expected: dict[str, Any], tolerance: float) -> float:
    _demand(results.keys() == expected.keys(), f"{spec!r}: {sorted(results)}, expecting {sorted(expected)}")
    worst = 0.0
    for name, array in results.items():
        error = float((np.abs(array - expected[name]) / np.maximum(1, np.abs(expected[name]))).max(initial=0))
        _demand(error <= tolerance, f"{spec!r}: {name} is {error:.1e} off, expecting at most {tolerance:.0e}")
        worst = max(worst, error)
    return worst


def _near(what: str, value: float, expected: float, tolerance: float) -> None:
    near = math.isclose(value, expected, rel_tol=tolerance)
    _demand(near, f"{what}: {value!r}, expecting {expected!r} within {tolerance:.0e} of it")


def _demand(holds: bool, failed: str) -> None:
    if not holds:
        raise Failed(failed)
