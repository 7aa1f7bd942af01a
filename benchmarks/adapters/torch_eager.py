"""torch's nn.LSTM, nn.GRU and nn.RNN, on the CPU, on the GPU or in a CUDA graph, or ours of the same names."""

from __future__ import annotations

import os
from typing import Any

from pycudnnrnn import convert

from ..data import Array, Data, flat, numpy_name, results_of
from ..problems import Problem
from ..timing import Clock, EventClock, HostClock
from . import FLUSH_NBYTES, NotRun, Prepared, carrying, launches, load


def versions() -> dict[str, Any]:
    torch = load("torch")
    return {"torch": torch.__version__, "torch_cudnn": torch.backends.cudnn.version()}


def prepare(problem: Problem, which: str, dtype: str, data: Data, option: str) -> Prepared:
    if option == "graph":
        return graphed(problem, which, dtype, data)
    device, _, ours = option.partition(" ")
    own = Torch(problem, dtype, device, ours=bool(ours))
    torch = own.torch
    module = own.module(problem, data).train(which != "infer")
    x, dy = own.put(data.x), own.put(data.dy)
    lengths = torch.tensor(data.lengths or [problem.T] * problem.B)
    is_sorted = bool((lengths[:-1] >= lengths[1:]).all())
    pack, unpack = torch.nn.utils.rnn.pack_padded_sequence, torch.nn.utils.rnn.pad_packed_sequence

    def run(x: Any, states: Any = None) -> Any:
        """Take and give padded arrays, as every competitor does; lengths are packed, so that padding costs nothing."""
        if problem.lengths == "full":
            return module(x, states)
        y, states = module(pack(x, lengths, enforce_sorted=is_sorted), states)
        return unpack(y, total_length=problem.T)[0], states

    def infer(x: Any, states: Any = None) -> Any:
        with torch.inference_mode():
            return run(x, states)

    def train() -> Any:
        return run(x.detach().requires_grad_())

    def step() -> Any:
        module.zero_grad(set_to_none=True)
        leaf = x.detach().requires_grad_()
        y = run(leaf)[0]
        y.backward(dy)
        return y, leaf.grad

    def results() -> dict[str, Array]:
        if which == "step":
            y, dx = step()
            return {"y": host(y), "dx": host(dx), "dw": parameter_gradients(module, problem)}
        y, states = infer(x) if which == "infer" else train()
        return results_of(host(y), *map(host, states if problem.cell == "lstm" else [states]))

    call = carrying(problem, which, x, infer, {"train": train, "step": step})
    prepared = Prepared(call, results, own.clock(), launches(problem, which))
    prepared.flush = own.flush if device == "cuda" else None
    if ours and device == "cuda":
        prepared.call()
        algorithms = load("pycudnnrnn.interop._torch_cudnn").algorithms()
        prepared.figures["algo"] = ", ".join(f"{forward} / {backward}" for forward, backward in sorted(algorithms))
    return prepared


def graphed(problem: Problem, which: str, dtype: str, data: Data) -> Prepared:
    """Capture a forward, or a whole training step, in a CUDA graph; a call replays it."""
    if problem.lengths != "full" or which not in ("infer", "step"):
        raise NotRun("a graph has a whole pass of a full batch: a PackedSequence is made on the host")
    own = Torch(problem, dtype, "cuda")
    torch = own.torch
    module = own.module(problem, data).train(which == "step")
    x, dy = own.put(data.x).requires_grad_(which == "step"), own.put(data.dy)
    spec = data.canonical.spec
    sizes = (spec.state_size, spec.num_units) if problem.cell == "lstm" else (spec.state_size,)
    shape = (spec.num_pseudo_layers, problem.B)
    states = [torch.zeros(*shape, size, device="cuda", dtype=own.dtype) for size in sizes]

    def forward() -> Any:
        return module(x, states if problem.cell == "lstm" else states[0])

    def once() -> Any:
        if which == "step":
            y, left = forward()
            return y, left, torch.autograd.grad(y, [x, *module.parameters()], dy)
        with torch.no_grad():
            y, left = forward()
            if problem.carried:
                for state, new in zip(states, left if problem.cell == "lstm" else (left,), strict=True):
                    state.copy_(new)
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

    return Prepared(graph.replay, results, own.clock(), flush=own.flush)


class Torch:
    """torch itself, with a module's dtype, device and modes; with `ours` it is one of ours."""

    def __init__(self, problem: Problem, dtype: str, device: str, *, ours: bool = False) -> None:
        if problem.input == "skip":
            raise NotRun("nn.LSTM, nn.GRU and nn.RNN have no skip input")
        self.torch = torch = load("torch")
        self._nn = load("pycudnnrnn.interop.torch") if ours else torch.nn
        self.device = device
        if device == "cuda":
            if not torch.cuda.is_available():
                raise NotRun("torch finds no CUDA device")
            allowed = dtype != "float32"  # torch's default, and bfloat16 without it is FMA's
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed
        elif dtype == "tf32":
            raise NotRun("TF32 is a mode of GPUs")
        elif "OMP_NUM_THREADS" in os.environ:
            torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self.dtype = getattr(torch, numpy_name(dtype))

    def clock(self) -> Clock:
        return EventClock.of_torch(self.torch.cuda) if self.device == "cuda" else HostClock()

    def flush(self) -> None:
        """Write over more memory than a GPU's caches hold."""
        self.torch.zeros(FLUSH_NBYTES, dtype=self.torch.uint8, device=self.device)

    def put(self, array: Array) -> Any:
        return self.torch.tensor(array, dtype=self.dtype, device=self.device)  # a copy: what is drawn is read-only

    def module(self, problem: Problem, data: Data) -> Any:
        keywords: dict[str, Any] = {"num_layers": problem.L, "bidirectional": problem.D == 2}
        if problem.P:
            keywords["proj_size"] = problem.P
        if problem.cell in ("relu", "tanh"):
            keywords["nonlinearity"] = problem.cell
        nn = self._nn
        kind = {"lstm": nn.LSTM, "gru": nn.GRU}.get(problem.cell, nn.RNN)
        module = kind(problem.I, problem.U, **keywords)
        arrays = convert.pytorch.from_canonical(data.canonical)
        module.load_state_dict({name: self.torch.from_numpy(array) for name, array in arrays.items()})
        module.to(self.device, self.dtype)
        module.flatten_parameters()
        return module


def parameter_gradients(module: Any, problem: Problem) -> Array:
    """A module's gradients in canonical order."""
    named = {name: host(parameter.grad) for name, parameter in module.named_parameters()}
    nonlinearity = problem.cell if problem.cell in ("relu", "tanh") else "tanh"
    canonical = convert.pytorch.to_canonical(named, nonlinearity=nonlinearity)
    return flat(canonical.weights, canonical.biases)


def host(tensor: Any) -> Array:
    return tensor.detach().double().cpu().numpy()
