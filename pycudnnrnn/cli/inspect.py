"""`pycudnnrnn inspect`: show what a checkpoint contains."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import click
import numpy as np

from pycudnnrnn import checkpoint
from pycudnnrnn.checkpoint.bundle import specs_without_data
from pycudnnrnn.checkpoint.folder import is_tensorflow
from pycudnnrnn.cli._files import FILE_FORMATS, FileOrCheckpoint, load_onnx, rnns_in, suffix_of
from pycudnnrnn.cli._output import SafeConsole, console, echo_json, print_table
from pycudnnrnn.errors import ArgumentError, CheckpointError
from pycudnnrnn.spec import RNNSpec


@click.command()
@click.argument("file", type=FileOrCheckpoint())
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def inspect(file: Path, as_json: bool) -> None:
    """Show what a file contains: its RNNs with the options that choose them, and whether a checkpoint is intact.

    FILE is any file that convert reads. Of a file from Saver or checkpoint.save, of any other safetensors file (these
    have no checksum), and of a TensorFlow checkpoint (its prefix, its .index file or its folder), the report lists
    models, and for each tensor its shape, range and how many values are not finite. Of a checkpoint whose data are lost
    it lists what is in the index.

    A damaged file is a one-line error with exit code 1. The file is read once, in pieces, so that memory use stays
    small: it needs that of the largest RNN, and of a TensorFlow checkpoint's largest tensor.

    \b
    Examples:
      pycudnnrnn inspect model.safetensors
      pycudnnrnn inspect model.ckpt-1000
      pycudnnrnn inspect model.pt
      pycudnnrnn inspect model.safetensors --json | jq '.tensors[].nan'
    """  # noqa: D301  click reads the \b
    try:
        about = checkpoint.inspect(file, foreign=True)
    except CheckpointError:
        if not _inspect_other(file, as_json=as_json):
            raise
        return
    if as_json:
        echo_json(_report(file, about))
        return
    out = console()
    hashed = "CRC-32C is right" if about.metadata.get("format") == "tensorflow" else "SHA-256 is right"
    checksum = hashed if about.verified else "none: only files of Saver and checkpoint.save have one"
    out.say(f"{file}: checksum: {checksum}")
    for name, item in _items(about).items():
        parts = [f"{key} {_short(value)}" for key, value in item.items() if key not in ("spec", "python", "dropout")]
        parts = [item["python"], *parts] if "python" in item else parts
        out.say(f"  {name or '(no name)'}: {', '.join(parts) or 'an array'}")
    rows = []
    for name, spec in sorted(about.tensors.items()):
        summary = about.summaries[name]
        counts = summary.nan or "", summary.infinite or ""
        rows.append([name, list(spec.shape), spec.dtype, *map(_number, summary[1:4]), *counts])
    columns = ["tensor", "shape", "dtype", "min", "max", "mean", "NaN", "inf"]
    shown = len(columns) if any(row[-2] or row[-1] for row in rows) else len(columns) - 2
    print_table(out, columns[:shown], [row[:shown] for row in rows])
    elements = sum(summary.size for summary in about.summaries.values())
    nbytes = sum(spec.nbytes for spec in about.tensors.values())
    elements_of = f"{_count(elements, 'element')} ({sum(about.non_finite.values()):,} not finite)"
    out.say(f"{_count(len(rows), 'tensor')}, {elements_of}, {_count(nbytes, 'byte')}")
    _say_rnns(out, _rnns_in(about))


def _inspect_other(file: Path, *, as_json: bool) -> bool:
    """Show the RNNs of a file that is no checkpoint, or of the index of one. Return False for any other file."""
    suffix, framework = suffix_of(file), ""
    contents: Any = None
    if is_tensorflow(file):
        framework, kind = "tensorflow", "tensorflow, the index alone"
        contents = _stand_ins(specs_without_data(file)) or None
    elif suffix == ".onnx":
        framework = kind = "onnx"
        contents = load_onnx(file)
    elif suffix in FILE_FORMATS and suffix != ".safetensors":
        framework, contents = FILE_FORMATS[suffix].framework, FILE_FORMATS[suffix].read(file, None).arrays
        kind = framework or "no framework recorded"
    if contents is None:
        return False
    count = len(contents.graph.node) if framework == "onnx" else _count_arrays(contents)
    rnns = rnns_in(contents, framework)
    others = count - sum(size for _, _, size in rnns)
    if as_json:
        echo_json({"file": str(file), "framework": kind, "rnns": _as_json(rnns), "others": others})
        return True
    out = console()
    out.say(f"{file}: {kind}")
    _say_rnns(out, rnns)
    what = "node" if framework == "onnx" else "array"
    out.say(f"{_count(len(rnns), 'RNN')}, {_count(others, f'other {what}')}")
    return True


def _count_arrays(arrays: Any) -> int:
    """Return the number of arrays in a dict and in the dicts in it."""
    if isinstance(arrays, dict):
        return sum(map(_count_arrays, arrays.values()))
    return hasattr(arrays, "shape")


def _rnns_in(about: checkpoint.Inspection) -> list[tuple[str, str, int]]:
    """Return the RNNs of a TensorFlow checkpoint or of another program's file, by the framework or by the names."""
    recorded = "tensorflow" if about.metadata.get("format") == "tensorflow" else about.metadata.get("framework", "")
    if not about.tensors or (about.verified and recorded != "tensorflow"):
        return []
    return rnns_in(_stand_ins(about.tensors), recorded)


def _say_rnns(out: SafeConsole, rnns: list[tuple[str, str, int]]) -> None:
    for options, text, _ in rnns:
        out.say(f"  {options}: {text}")


def _as_json(rnns: list[tuple[str, str, int]]) -> list[dict[str, Any]]:
    return [{"options": options, "rnn": text} for options, text, _ in rnns]


def _stand_ins(tensors: Any) -> dict[str, Any]:
    """Return an array of each shape and dtype, without its memory."""
    return {name: np.broadcast_to(np.zeros((), spec.dtype), spec.shape) for name, spec in tensors.items()}


def _report(file: Path, about: checkpoint.Inspection) -> dict[str, Any]:
    tensors = {}
    for name, spec in about.tensors.items():
        sizes = {"shape": spec.shape, "dtype": str(spec.dtype), "nbytes": spec.nbytes}
        tensors[name] = sizes | about.summaries[name]._asdict()
    other = {} if about.verified else {"metadata": about.metadata}
    return {
        "file": str(file),
        "nbytes": sum(spec.nbytes for spec in about.tensors.values()),
        "verified": about.verified,
        "items": _items(about),
        "rnns": _as_json(_rnns_in(about)),
        **other,
        "tensors": tensors,
    }


def _items(about: checkpoint.Inspection) -> dict[str, dict[str, Any]]:
    """Return the items' states, with the JSON of a spec read."""
    items = {}
    for name, state in about.items.items():
        items[name] = dict(state)
        with contextlib.suppress(ArgumentError, KeyError):
            spec = RNNSpec.from_json(state["spec"])
            items[name] |= {"spec": json.loads(spec.to_json()), "python": repr(spec)}
    return items


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
