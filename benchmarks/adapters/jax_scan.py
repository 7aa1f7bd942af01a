"""What a JAX user writes: a cell under lax.scan, the input's GEMM outside it, all under jit."""

from __future__ import annotations

import itertools
import os
from typing import Any

import numpy as np

from pycudnnrnn.convert._exchange import split

from ..data import Array, Data, flat, numpy_name, results_of
from ..problems import Problem
from ..timing import HostClock
from . import NotRun, Prepared, load, need_pass


def versions() -> dict[str, Any]:
    return {"jax": load("jax").__version__, "jaxlib": load("jaxlib").__version__}


def device(kind: str) -> Any:
    """Return JAX and its device, without letting it take all of the memory."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = load("jax")
    try:
        return jax, jax.devices(kind)[0]
    except RuntimeError as error:
        raise NotRun(f"JAX has no device of kind {kind!r} here") from error


def prepare(problem: Problem, which: str, dtype: str, data: Data, option: str) -> Prepared:
    need_pass(which, among=("infer", "step"), why="written with one gradient of everything")
    if problem.lengths != "full" or problem.layout == "packed" or problem.algo:
        raise NotRun("written for full batches, padded, without a choice of algorithm")
    if dtype == "tf32" and option == "cpu":
        raise NotRun("TF32 is a mode of GPUs")
    jax, where = device(option)
    jax.config.update("jax_enable_x64", dtype == "float64")
    element = jax.numpy.dtype(numpy_name(dtype))
    precision = {"tf32": "tensorfloat32", "float32": "highest"}.get(dtype)
    layers = [
        {"W": np.stack(p.W), "R": np.stack(p.R), "bW": np.stack(p.bW or p.zeros), "bR": np.stack(p.bR or p.zeros)}
        | ({} if p.projection is None else {"P": p.projection})
        for p in split("canonical", data.canonical, projection=True, skip=True)
    ]
    params = jax.device_put(jax.tree.map(lambda a: np.asarray(a).astype(element), layers), where)
    xs = [jax.device_put(x.astype(element), where) for x in data.xs]
    dy = jax.device_put(data.dy.astype(element), where)
    shape = (problem.L * problem.D, problem.B)
    zeros = tuple(np.zeros((*shape, size), element) for size in (problem.P or problem.H, problem.H))
    zeros = jax.device_put(zeros, where)
    network = jax.jit(_network(jax, problem, precision))

    def loss(params: Any, x: Any) -> Any:
        y, _ = network(params, x, zeros)
        return (y * dy).sum(), y

    infer = jax.jit(network)
    step = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))

    def results() -> dict[str, Array]:
        if which == "infer":
            y, (hy, cy) = infer(params, xs[0], zeros)
            return results_of(host(y), host(hy), host(cy) if problem.cell == "lstm" else None)
        (_, y), (grads, dx) = step(params, xs[0])
        weights = [w for g in grads for w in (*g["W"], *g["R"], *([g["P"]] if "P" in g else []))]
        biases = [b for g in grads for b in (*g["bW"], *g["bR"])]
        return {"y": host(y), "dx": host(dx), "dw": flat([w for w in map(host, weights) if w.size], map(host, biases))}

    def waited(function: Any) -> Any:
        return lambda *arguments: jax.block_until_ready(function(params, *arguments))

    if which == "infer":
        call = stepping(waited(infer), xs, zeros, carried=problem.carried)
    else:
        call = stepping(waited(step), xs)
    return Prepared(call, results, HostClock(), on_gpu=option != "cpu")


def stepping(run: Any, xs: list[Any], zeros: Any = None, *, carried: bool = False) -> Any:
    """Return a call that goes through the inputs in turn, from the states that the last one left where they carry.

    `run` takes an input and, where there are any, states, and returns (output, states).
    """
    turn = itertools.cycle(xs)
    if zeros is None:
        return lambda: run(next(turn))
    states = zeros

    def call() -> None:
        nonlocal states
        _, left = run(next(turn), states)
        states = left if carried else zeros

    return call


def host(array: Any) -> Array:
    return np.asarray(array).astype(np.float64)


def _network(jax: Any, problem: Problem, precision: str | None) -> Any:
    jnp = jax.numpy

    def product(a: Any, matrix: Any) -> Any:
        return jnp.matmul(a, matrix.T, precision=precision)

    def cell(p: Any, R: Any, bR: Any, state: Any, from_x: Any) -> Any:
        h, c = state
        from_h = product(h, R) + bR
        if problem.cell == "lstm":
            i, f, n, o = jnp.split(from_x + from_h, 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(n)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            h = product(h, p["P"]) if "P" in p else h
        elif problem.cell == "gru":
            (rx, ux, nx), (rh, uh, nh) = jnp.split(from_x, 3, axis=1), jnp.split(from_h, 3, axis=1)
            update = jax.nn.sigmoid(ux + uh)
            new = jnp.tanh(nx + jax.nn.sigmoid(rx + rh) * nh)
            h = (1 - update) * new + update * h
        else:
            h = (jnp.tanh if problem.cell == "tanh" else jax.nn.relu)(from_x + from_h)
        return (h, c), h

    def network(params: Any, x: Any, states: Any) -> Any:
        hs, cs = [], []
        for layer in range(problem.L):
            above = []
            for direction in range(problem.D):
                k = layer * problem.D + direction
                p = params[k]
                rows = p["R"].shape[0] * p["R"].shape[1]
                R, bR = p["R"].reshape(rows, -1), p["bR"].reshape(-1)
                if layer == 0 and problem.input == "skip":
                    from_x = jnp.tile(x, (1, 1, problem.gates))
                else:
                    from_x = product(x, p["W"].reshape(rows, -1))
                from_x += p["bW"].reshape(-1)

                def one(state: Any, at: Any, p: Any = p, R: Any = R, bR: Any = bR) -> Any:
                    return cell(p, R, bR, state, at)

                (h, c), y = jax.lax.scan(one, (states[0][k], states[1][k]), from_x, reverse=direction == 1)
                above.append(y)
                hs.append(h)
                cs.append(c)
            x = jnp.concatenate(above, axis=2) if problem.D == 2 else above[0]
        return x, (jnp.stack(hs), jnp.stack(cs))

    return network
