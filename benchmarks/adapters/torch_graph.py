"""torch's modules in a CUDA graph: a forward, or a whole training step, captured once and replayed."""

from __future__ import annotations

from typing import Any

from ..data import Array, Data, results_of
from ..problems import Problem
from . import NotRun, Prepared
from .torch_eager import Torch, host, parameter_gradients, versions

__all__ = ["prepare", "versions"]


def prepare(problem: Problem, which: str, dtype: str, data: Data, _option: str) -> Prepared:
    if problem.lengths != "full" or problem.layout == "packed":
        raise NotRun("a PackedSequence is made on the host")
    own = Torch(problem, dtype, "cuda")
    torch = own.torch
    module = own.module(problem, data).train(which == "step")
    x, dy = own.put(data.xs[0]).requires_grad_(which == "step"), own.put(data.dy)
    states = _zeros(own, problem, data)

    def forward() -> Any:
        return module(x, states if problem.cell == "lstm" else states[0])

    def carry(left: Any) -> None:
        for state, new in zip(states, left if problem.cell == "lstm" else (left,), strict=True):
            state.copy_(new)

    def once() -> Any:
        if which == "step":
            y, left = forward()
            return y, left, torch.autograd.grad(y, [x, *module.parameters()], dy)
        with torch.no_grad():
            y, left = forward()
            if problem.carried:
                carry(left)
            return y, left, None

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # as torch's own documents ask for, before a capture
        for _ in range(3):
            once()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, left, gradients = once()

    def results() -> dict[str, Array]:
        for state in states:
            state.zero_()
        graph.replay()
        if which == "step":
            for parameter, gradient in zip(module.parameters(), gradients[1:], strict=True):
                parameter.grad = gradient
            return {"y": host(y), "dx": host(gradients[0]), "dw": parameter_gradients(module, problem)}
        return results_of(host(y), *map(host, left if problem.cell == "lstm" else [left]))

    return Prepared(graph.replay, results, own.clock())


def _zeros(own: Torch, problem: Problem, data: Data) -> list[Any]:
    spec = data.canonical.spec
    shape = (spec.num_pseudo_layers, problem.B)
    sizes = [spec.state_size] + ([spec.num_units] if problem.cell == "lstm" else [])
    return [own.torch.zeros(*shape, size, device=own.device, dtype=own.dtype) for size in sizes]
