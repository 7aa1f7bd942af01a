"""jax.experimental.rnn under jit: cuDNN's LSTM through JAX, only float32, always as in training."""

from __future__ import annotations

from typing import Any

import numpy as np

from pycudnnrnn import convert

from ..data import Array, Data, flat, results_of
from ..problems import Problem
from ..timing import HostClock
from . import NotRun, Prepared, load, need_pass
from .jax_scan import device, host, stepping, versions

__all__ = ["prepare", "versions"]


def prepare(problem: Problem, which: str, dtype: str, data: Data, _option: str) -> Prepared:
    need_pass(which, among=("infer", "step"), why="JAX differentiates the call as a whole")
    if problem.cell != "lstm" or dtype not in ("float32", "tf32"):
        raise NotRun("jax.experimental.rnn has the LSTM only in float32")
    if problem.P or problem.input == "skip" or problem.algo or problem.layout == "packed":
        raise NotRun("no projection, no skip input, no choice of algorithm, no packed batches")
    jax, where = device("cuda")
    rnn = load("jax.experimental.rnn")
    arrays = convert.jax_rnn.from_canonical(data.canonical)
    weights = jax.device_put(arrays["weights"], where)
    xs = [jax.device_put(np.ascontiguousarray(x.swapaxes(0, 1)), where) for x in data.xs]
    dy = jax.device_put(np.ascontiguousarray(data.dy.swapaxes(0, 1)), where)
    lengths = [problem.T] * problem.B if data.lengths is None else data.lengths
    lengths = jax.device_put(np.array(lengths, np.int32), where)
    zeros = jax.device_put(np.zeros((problem.L * problem.D, problem.B, problem.H), np.float32), where)

    def network(weights: Any, x: Any, h: Any, c: Any) -> Any:
        return rnn.lstm(
            x, h, c, weights, lengths, problem.I, problem.H, problem.L, 0.0, problem.D == 2, dtype == "tf32"
        )

    def loss(weights: Any, x: Any) -> Any:
        y = network(weights, x, zeros, zeros)[0]
        return (y * dy).sum(), y

    infer = jax.jit(network)
    step = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))

    def call_infer(x: Any, states: Any) -> Any:
        y, h, c = jax.block_until_ready(infer(weights, x, *states))
        return y, (h, c)

    def results() -> dict[str, Array]:
        if which == "infer":
            y, h, c = infer(weights, xs[0], zeros, zeros)
            return results_of(host(y).swapaxes(0, 1), host(h), host(c))
        (_, y), (d_weights, dx) = step(weights, xs[0])
        sizes = {"input_size": problem.I, "hidden_size": problem.H, "num_layers": problem.L}
        grads = convert.jax_rnn.to_canonical({"weights": np.asarray(d_weights)}, **sizes, bidirectional=problem.D == 2)
        dw = flat(grads.weights, grads.biases)
        return {"y": host(y).swapaxes(0, 1), "dx": host(dx).swapaxes(0, 1), "dw": dw}

    if which == "infer":
        call = stepping(call_infer, xs, (zeros, zeros), carried=problem.carried)
    else:
        call = stepping(lambda x: jax.block_until_ready(step(weights, x)), xs)
    return Prepared(call, results, HostClock(), on_gpu=True)
