"""torch's nn.LSTM and nn.GRU on the CPU, with the same numbers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.problems import Problem

KINDS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}


def _module(problem: Problem) -> tuple[Any, Any]:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    module = KINDS[problem.cell](problem.I, problem.H, problem.L)
    parameters = dict(module.named_parameters())
    flat = torch.from_numpy(problem.draw(sum(p.numel() for p in parameters.values())))
    start = 0
    with torch.no_grad():  # our flat order: all weights, then all biases, layer by layer
        for kind in ("weight", "bias"):
            for layer in range(problem.L):
                for side in ("ih", "hh"):
                    parameter = parameters[f"{kind}_{side}_l{layer}"]
                    parameter.copy_(flat[start : start + parameter.numel()].view_as(parameter))
                    start += parameter.numel()
    return module, torch.from_numpy(problem.draw(problem.T, problem.B, problem.I, seed=1))


def prepare(problem: Problem) -> dict[str, Callable[[], Any]]:
    module, x = _module(problem)
    upstream = torch.from_numpy(problem.draw(problem.T, problem.B, problem.H, seed=2))

    def infer() -> Any:
        with torch.inference_mode():
            return module(x)

    def step() -> Any:
        module.zero_grad(set_to_none=True)
        data = x.detach().requires_grad_()
        module(data)[0].backward(upstream)
        return data.grad

    return {"infer": infer, "step": step}


def outputs(problem: Problem) -> Any:
    module, x = _module(problem)
    with torch.inference_mode():
        return module(x)[0].numpy()
