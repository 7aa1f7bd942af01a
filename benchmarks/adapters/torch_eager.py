"""torch's nn.LSTM, nn.GRU and nn.RNN, on the CPU or the GPU, or ours of the same names."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from pycudnnrnn import convert

from ..data import Array, Data, flat, numpy_name, results_of
from ..problems import Problem
from ..timing import Clock, EventClock, HostClock
from . import NotRun, Prepared, in_turn, launches, load


def versions() -> dict[str, Any]:
    torch = load("torch")
    return {"torch": torch.__version__, "torch_cudnn": torch.backends.cudnn.version()}


def prepare(problem: Problem, which: str, dtype: str, data: Data, option: str) -> Prepared:
    device, _, ours = option.partition(" ")
    own = Torch(problem, dtype, device, ours=bool(ours))
    torch = own.torch
    module = own.module(problem, data).train(which == "step")
    xs, dy = [own.put(x) for x in data.xs], own.put(data.dy)
    lengths = torch.tensor(data.lengths or [problem.T] * problem.B)
    valid = np.arange(problem.T)[:, None, None] < lengths.numpy()[:, None]
    is_sorted = bool((lengths[:-1] >= lengths[1:]).all())
    pack, unpack = torch.nn.utils.rnn.pack_padded_sequence, torch.nn.utils.rnn.pad_packed_sequence

    def run(x: Any, states: Any = None) -> Any:
        if problem.layout == "padded":
            return module(x, states)
        y, states = module(pack(x, lengths, enforce_sorted=is_sorted), states)
        return (y if which == "infer" else unpack(y, total_length=problem.T)[0]), states

    def infer(x: Any, states: Any = None) -> Any:
        with torch.inference_mode():
            return run(x, states)

    def step(x: Any) -> Any:
        module.zero_grad(set_to_none=True)
        leaf = x.detach().requires_grad_()
        y = run(leaf)[0]
        y.backward(dy)
        return y, leaf.grad

    def results() -> dict[str, Array]:
        if which == "step":
            y, dx = step(xs[0])
            return {"y": host(y) * valid, "dx": host(dx), "dw": parameter_gradients(module, problem)}
        y, states = infer(xs[0])
        if problem.layout == "packed":
            y = unpack(y, total_length=problem.T)[0]
        elif problem.lengths != "full":  # its states are those after the padding
            return results_of(host(y) * valid)
        return results_of(host(y), *map(host, states if problem.cell == "lstm" else [states]))

    prepared = Prepared(in_turn(problem, which, xs, infer, step), results, own.clock(), launches(problem, which))
    if ours and device == "cuda":
        prepared.call()
        algorithms = load("pycudnnrnn.interop._torch_cudnn").algorithms()
        prepared.figures["algo"] = ", ".join(f"{forward} / {backward}" for forward, backward in sorted(algorithms))
    return prepared


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
        module = kind(problem.I, problem.H, **keywords)
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
    array: Array = tensor.detach().double().cpu().numpy()
    return array
