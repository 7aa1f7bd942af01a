"""`pycudnnrnn convert --verify`: run both models and our op on the same input, and compare."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from pycudnnrnn import convert as converters
from pycudnnrnn import ops
from pycudnnrnn.cli.convert.runners import RUNNERS
from pycudnnrnn.convert import Canonical
from pycudnnrnn.convert._named import as_numpy
from pycudnnrnn.errors import ConvertError, PycudnnrnnError
from pycudnnrnn.spec import DType

TOLERANCES: Final = {DType.FLOAT64: 1e-5, DType.FLOAT32: 1e-4, DType.FLOAT16: 2e-2, DType.BFLOAT16: 1e-1}
"""Largest difference that counts as equal; Keras and onnxruntime compute parts of float64 models in float32."""


class Verdict(NamedTuple):
    """The largest difference between a side's framework and our op, or the reason why it did not run."""

    name: str
    error: float | None
    not_run: str | None = None

    def __str__(self) -> str:
        found = f"not run, {self.not_run}" if self.error is None else f"worst error {self.error:.1e}"
        return f"{self.name}: {found}"


def verify(c: Canonical, sides: dict[str, tuple[str, dict[str, Any]]]) -> list[Verdict]:
    """Run our op and the framework of each side on the same random input, with ragged lengths and states.

    Raises:
        PycudnnrnnError: a side computes other results than the op, or no side could run.
    """
    verdicts = list(_verdicts(c, sides))
    for verdict in verdicts:
        if verdict.error is not None and not verdict.error <= TOLERANCES[c.spec.dtype]:
            raise PycudnnrnnError(f"{verdict.name} computes other results than the op: worst error {verdict.error:.1e}")
    if all(verdict.error is None for verdict in verdicts):
        why = "; ".join(map(str, verdicts))
        raise PycudnnrnnError(f"nothing was verified and nothing is written: {why}. Leave out --verify to write it")
    return verdicts


def _verdicts(c: Canonical, sides: dict[str, tuple[str, dict[str, Any]]]) -> Iterator[Verdict]:
    rng = np.random.default_rng(0)
    spec, T = c.spec, 7
    lengths = np.array([T, 1, 4, T, 2])
    dtype = spec.dtype.numpy
    x = rng.normal(size=(T, len(lengths), spec.input_size)).astype(dtype)
    hx = rng.normal(size=(spec.num_pseudo_layers, len(lengths), spec.state_size)).astype(dtype)
    cx = rng.normal(size=(spec.num_pseudo_layers, len(lengths), spec.num_units)).astype(dtype)
    op = ops.from_spec(spec)
    params = op.canonical_to_params(c)
    _, *results = op.run(x, hx, cx if spec.has_cell_state else None, params, False, sequence_lengths=lengths.tolist(),
                         time_major=True, keep_reserve=False)  # fmt: skip
    ours = [a for a in results if a is not None]
    for side, (framework, arrays) in sides.items():
        name = f"{framework} ({side})"
        run, packages = RUNNERS.get(framework, (None, ()))
        missing = [package for package in packages if importlib.util.find_spec(package) is None]
        if run is None or missing:
            yield Verdict(name, None, f"{', '.join(missing)} is not installed" if run else "nothing here runs it")
            continue
        usual = getattr(converters, framework).from_canonical(c)
        if not _holds(arrays, usual):
            yield Verdict(name, None, "these are not the arrays of the module that would be run")
            continue
        try:
            theirs = [a for a in run(usual, spec, x, hx, cx, lengths) if a is not None]
        except Exception as error:  # noqa: BLE001  onnxruntime has no GRU in float64: any library's own way to say so
            yield Verdict(name, None, f"{type(error).__name__}: {str(error).strip().rpartition(chr(10))[2]}")
            continue
        errors = [np.abs(a.astype("f8") - b.astype("f8")).max() for a, b in zip(ours, theirs, strict=True)]
        yield Verdict(name, float(np.max(errors)))  # NaN where one is: Python's own `max` passes over it


def _holds(arrays: Any, usual: dict[str, Any]) -> bool:
    """Return whether the file contains every array that the runner would use, under any name."""
    stored = {(a.shape, a.tobytes()) for a in _flat(arrays)}
    return all((a.shape, a.tobytes()) in stored for a in usual.values())


def _flat(arrays: Any) -> Iterator[Any]:
    """Yield the arrays of nested dicts that can be weights: a file may have others, which NumPy does not read."""
    for value in arrays.values():
        if isinstance(value, dict):
            yield from _flat(value)
        else:
            with contextlib.suppress(ConvertError):
                yield as_numpy("", "", value)
