"""torch's nn.LSTM, nn.GRU and nn.RNN, on the CPU or the GPU, or ours of the same names."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from pycudnnrnn import convert

from ..data import Array, Data, flat, numpy_name, results_of
from ..problems import Problem
from ..timing import Clock, EventClock, HostClock
from . import NotRun, Prepared, load


def versions() -> dict[str, Any]:
    torch = load("torch")
    found = {"torch": torch.__version__, "torch_cudnn": torch.backends.cudnn.version()}
    with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123  no regular file
        paths = {line.split()[-1] for line in maps if "libcudnn.so" in line}
    return found | ({"cudnn_loaded_with_torch": sorted(paths)} if paths else {})


def prepare(problem: Problem, which: str, dtype: str, data: Data, option: str) -> Prepared:
    device, _, ours = option.partition(" ")
    return prepare_on(problem, which, data, Torch(problem, dtype, device, ours=bool(ours)))


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


def prepare_on(problem: Problem, which: str, data: Data, own: Torch) -> Prepared:
    """Make the calls of a module, and what they give."""
    torch = own.torch
    module = own.module(problem, data).train(which == "step")
    xs, dy = [own.put(x) for x in data.xs], own.put(data.dy)
    hand_over = _packed(torch, data) if problem.layout == "packed" else _as_it_is

    def infer(x: Any, states: Any = None) -> Any:
        with torch.inference_mode():
            return module(hand_over(x), states)

    def step(x: Any) -> Any:
        module.zero_grad(set_to_none=True)
        leaf = x.detach().requires_grad_()
        y = unpack(torch, module(hand_over(leaf))[0], problem.T)
        y.backward(dy)
        return y, leaf.grad

    def outputs() -> dict[str, Array]:
        y, states = infer(xs[0])
        y = host(unpack(torch, y, problem.T))
        if problem.lengths != "full" and problem.layout == "padded":  # its states are those after the padding
            return {"y": y * (np.arange(problem.T)[:, None, None] < np.array(data.lengths)[:, None])}
        hy, cy = states if problem.cell == "lstm" else (states, None)
        return results_of(y, host(hy), None if cy is None else host(cy))

    def gradients() -> dict[str, Array]:
        y, dx = step(xs[0])
        y = host(y)
        if data.lengths is not None:
            y *= np.arange(problem.T)[:, None, None] < np.array(data.lengths)[:, None]
        return {"y": y, "dx": host(dx), "dw": parameter_gradients(module, problem)}

    launches = 2 * problem.T * problem.L * problem.D
    if which == "step":
        turn = itertools.cycle(xs)
        return Prepared(lambda: step(next(turn)), gradients, own.clock(), 3 * launches)
    return Prepared(_stepping(infer, xs, carried=problem.carried), outputs, own.clock(), launches)


def _stepping(infer: Any, xs: list[Any], *, carried: bool) -> Callable[[], Any]:
    turn = itertools.cycle(xs)
    if not carried:
        return lambda: infer(next(turn))
    states: Any = None

    def call() -> None:
        nonlocal states
        states = infer(next(turn), states)[1]

    return call


def parameter_gradients(module: Any, problem: Problem) -> Array:
    """A module's gradients in canonical order."""
    if hasattr(module, "named_weights"):  # ours: one parameter with every weight in it
        named = {name: host(gradient) for name, gradient in module.named_weights(module.params.grad)}
    else:
        named = {name: host(parameter.grad) for name, parameter in module.named_parameters()}
    nonlinearity = problem.cell if problem.cell in ("relu", "tanh") else "tanh"
    canonical = convert.pytorch.to_canonical(named, nonlinearity=nonlinearity)
    return flat(canonical.weights, canonical.biases)


def host(tensor: Any) -> Array:
    array: Array = tensor.detach().double().cpu().numpy()
    return array


def unpack(torch: Any, y: Any, T: int) -> Any:
    """Return a padded tensor, whichever it was."""
    if isinstance(y, torch.nn.utils.rnn.PackedSequence):
        return torch.nn.utils.rnn.pad_packed_sequence(y, total_length=T)[0]
    return y


def _as_it_is(x: Any) -> Any:
    return x


def _packed(torch: Any, data: Data) -> Callable[[Any], Any]:
    T, B, _ = data.xs[0].shape
    lengths = torch.tensor([T] * B if data.lengths is None else data.lengths)
    is_sorted = bool((lengths[:-1] >= lengths[1:]).all())
    pack = torch.nn.utils.rnn.pack_padded_sequence
    return lambda x: pack(x, lengths, enforce_sorted=is_sorted)
