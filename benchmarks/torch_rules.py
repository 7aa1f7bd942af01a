"""Which algorithm torch's fixed rules give a row on an H200, so that the same row can be run through us with it.

Source: pytorch aten/src/ATen/native/cudnn/RNN.cpp @00fc08a, get_algo and what it calls, for a device of compute
capability 9.0 with 132 multiprocessors.
"""

from __future__ import annotations

from .problems import Problem

STANDARD, STATIC, SMALL_H = "standard", "persist_static", "persist_static_small_h"


def algorithm(problem: Problem, dtype: str, *, backward: bool) -> str:
    """Return torch's choice for a forward or a backward."""
    if problem.P or problem.layout == "packed" or problem.lengths != "full":
        return STANDARD
    if dtype != "float64" and problem.H <= _small_h_limit(problem.cell, backward=backward):
        return SMALL_H
    if dtype == "float16" and _is_static(problem):
        return STATIC
    return STANDARD


def _small_h_limit(cell: str, *, backward: bool) -> int:
    if cell in ("lstm", "gru"):
        return 128 if backward else 192
    return 256 if backward else 384


def _is_static(problem: Problem) -> bool:
    sizes_fit = problem.H <= 1024 and problem.H % 128 == 0 and problem.I % 128 == 0
    if problem.L != 1 or problem.D != 1 or not sizes_fit:
        return False
    if problem.cell == "gru" or problem.B % 8 != 0 or problem.B > 128:
        return False
    return problem.cell == "lstm" or problem.B < 96 or problem.H < 896
