"""Ours, on the NumPy engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.problems import Problem
from pycudnnrnn import ops

KINDS = {"lstm": ops.CudnnLSTM, "gru": ops.CudnnGRU}


def _arguments(problem: Problem) -> tuple[Any, list[Any]]:
    op = KINDS[problem.cell](problem.L, problem.H, problem.I)
    states = [None, None] if problem.cell == "lstm" else [None]
    return op, [problem.draw(problem.T, problem.B, problem.I, seed=1), *states, problem.draw(op.params_size())]


def prepare(problem: Problem) -> dict[str, Callable[[], Any]]:
    op, arguments = _arguments(problem)
    upstream = problem.draw(problem.T, problem.B, problem.H, seed=2)
    return {
        "infer": lambda: op(*arguments, is_training=False),
        "step": lambda: op.forward(*arguments).backward(upstream),
    }


def outputs(problem: Problem) -> Any:
    op, arguments = _arguments(problem)
    return op(*arguments, is_training=False)[0]
