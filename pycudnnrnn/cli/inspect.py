"""`pycudnnrnn inspect`: show what a checkpoint contains."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, Final

import click

from pycudnnrnn import checkpoint
from pycudnnrnn.cli._files import FileOrCheckpoint
from pycudnnrnn.cli._output import console, echo_json, print_table
from pycudnnrnn.errors import ArgumentError, CheckpointError
from pycudnnrnn.spec import RNNSpec

OTHER_FILES: Final = {
    **dict.fromkeys((".pt", ".pth"), "torch's"),
    **dict.fromkeys((".h5", ".hdf5", ".keras"), "Keras's"),
    ".onnx": "an ONNX model",
}
"""Files of weights that are not checkpoints, by suffix."""


@click.command()
@click.argument("file", type=FileOrCheckpoint())
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def inspect(file: Path, as_json: bool) -> None:
    """Show what a checkpoint contains, and whether it is intact.

    The report lists models, and for each tensor its shape, range and how many values are not finite. FILE is a file
    from Saver or checkpoint.save, any other safetensors file (these have no checksum), or a TensorFlow checkpoint: its
    prefix, its .index file or its folder.

    A damaged file is a one-line error with exit code 1. The file is read once, in pieces, so that memory use stays
    small; a TensorFlow checkpoint needs the memory of its largest tensor.

    \b
    Examples:
      pycudnnrnn inspect model.safetensors
      pycudnnrnn inspect model.ckpt-1000
      pycudnnrnn inspect model.safetensors --json | jq '.tensors[].nan'
    """  # noqa: D301  click reads the \b
    try:
        found = checkpoint.inspect(file, foreign=True)
    except CheckpointError as error:
        if file.suffix not in OTHER_FILES:
            raise
        what = f"{str(file)!r} is {OTHER_FILES[file.suffix]}, not a safetensors file or a checkpoint"
        way = f"`pycudnnrnn convert {file} x.safetensors --to pytorch --dry-run` shows its RNN"
        raise click.UsageError(f"{what}: {way}") from error
    if as_json:
        echo_json(_report(file, found))
        return
    out = console()
    hashed = "CRC-32C is right" if found.metadata.get("format") == "tensorflow" else "SHA-256 is right"
    checksum = hashed if found.verified else "none: only files of Saver and checkpoint.save have one"
    out.say(f"{file}: checksum: {checksum}")
    for name, item in _items(found).items():
        parts = [f"{key} {_short(value)}" for key, value in item.items() if key not in ("spec", "python", "dropout")]
        parts = [item["python"], *parts] if "python" in item else parts
        out.say(f"  {name or '(no name)'}: {', '.join(parts) or 'an array'}")
    rows = [
        [name, list(spec.shape), spec.dtype, *map(_number, summary[1:4]), summary.nan or "", summary.infinite or ""]
        for name, spec, summary in ((name, spec, found.summaries[name]) for name, spec in sorted(found.tensors.items()))
    ]
    columns = ["tensor", "shape", "dtype", "min", "max", "mean", "NaN", "inf"]
    shown = len(columns) if any(row[-2] or row[-1] for row in rows) else len(columns) - 2
    print_table(out, columns[:shown], [row[:shown] for row in rows])
    elements = sum(summary.size for summary in found.summaries.values())
    nbytes = sum(spec.nbytes for spec in found.tensors.values())
    counts = f"{elements:,} elements ({sum(found.non_finite.values()):,} not finite), {nbytes:,} bytes"
    out.say(f"{len(rows)} tensors, {counts}")


def _report(file: Path, found: checkpoint.Inspection) -> dict[str, Any]:
    tensors = {
        name: {"shape": spec.shape, "dtype": str(spec.dtype), "nbytes": spec.nbytes, **found.summaries[name]._asdict()}
        for name, spec in found.tensors.items()
    }
    other = {} if found.verified else {"metadata": found.metadata}
    return {
        "file": str(file),
        "nbytes": sum(spec.nbytes for spec in found.tensors.values()),
        "verified": found.verified,
        "items": _items(found),
        **other,
        "tensors": tensors,
    }


def _items(found: checkpoint.Inspection) -> dict[str, dict[str, Any]]:
    """Return the items' states, with the JSON of a spec read."""
    items = {}
    for name, state in found.items.items():
        items[name] = dict(state) if isinstance(state, dict) else {"state": state}
        with contextlib.suppress(ArgumentError, KeyError):
            spec = RNNSpec.from_json(items[name]["spec"])
            items[name] |= {"spec": json.loads(spec.to_json()), "python": repr(spec)}
    return items


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
