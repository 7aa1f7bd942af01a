"""Which algorithm torch's fixed rules give a row on an H200, so that the same row can be run through us with it."""

from __future__ import annotations

from pycudnnrnn.interop import _torch_rules as rules

from .data import spec_of
from .problems import Problem

H200 = rules.Gpu(9, 0, 132)


def algorithm(problem: Problem, dtype: str, *, backward: bool) -> str:
    """Return torch's choice for a forward or a backward: ragged batches are packed there."""
    packed = problem.layout == "packed" or problem.lengths != "full"
    spec = spec_of(problem, dtype)
    return rules.algorithm(spec, problem.T, problem.B, H200, packed=packed, backward=backward)
