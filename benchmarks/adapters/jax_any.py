"""RNNs in JAX, under jit: a cell in lax.scan as users write it, jax.experimental.rnn (cuDNN's LSTM), and ours."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pycudnnrnn import convert, ops
from pycudnnrnn.convert.exchange import split
from pycudnnrnn.errors import PycudnnrnnError

from ..data import Array, Data, flat, numpy_name, results_of, spec_of
from ..problems import Problem
from . import NotRun, Prepared, carrying, load


class Network(NamedTuple):
    """A function of (weights, x, states, training) to (output, states), and what it takes.

    `gradient` returns the weights' gradient as `data.flat` does. `batch_first`: x and the output are [B, T, ...].
    """

    run: Callable[..., Any]
    weights: Any
    gradient: Callable[[Any], Array]
    batch_first: bool = False


def versions() -> dict[str, Any]:
    return {"jax": load("jax").__version__, "jaxlib": load("jaxlib").__version__}


def prepare(problem: Problem, which: str, dtype: str, data: Data, option: str) -> Prepared:
    device, _, kind = option.partition(" ")
    if dtype == "tf32" and device == "cpu":
        raise NotRun("TF32 is a mode of GPUs")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = load("jax")
    try:
        where = jax.devices(device)[0]
    except RuntimeError as error:
        raise NotRun(f"JAX has no device of kind {device!r} here") from error
    jax.config.update("jax_enable_x64", dtype == "float64")
    network = NETWORKS[kind](jax, problem, dtype, data, device)
    element = jax.numpy.dtype(numpy_name(dtype))

    def put(array: Any) -> Any:
        array = array.swapaxes(0, 1) if network.batch_first and array.ndim == 3 else array
        return jax.device_put(np.ascontiguousarray(array).astype(element), where)

    weights, x, dy = jax.tree.map(put, network.weights), put(data.x), put(data.dy)
    widths = (problem.P or problem.U, problem.U)[: 2 if problem.cell == "lstm" else 1]
    shape = (problem.L * problem.D, problem.B)
    zeros = tuple(jax.device_put(np.zeros((*shape, width), element), where) for width in widths)

    def loss(weights: Any, x: Any) -> Any:
        y = network.run(weights, x, zeros, training=True)[0]
        return (y * dy).sum(), y

    forward = jax.jit(lambda *arguments: network.run(*arguments, training=False))
    training = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))

    def host(array: Any) -> Array:
        return np.asarray(array).astype(np.float64)

    def data_of(array: Any) -> Array:
        return host(array).swapaxes(0, 1) if network.batch_first else host(array)

    def results() -> dict[str, Array]:
        if which == "infer":
            y, states = infer(x)
            return results_of(data_of(y), *map(host, states))
        (_, y), (gradient, dx) = step(x)
        return {"y": data_of(y), "dx": data_of(dx), "dw": network.gradient(jax.tree.map(host, gradient))}

    def infer(x: Any, states: Any = zeros) -> Any:
        return jax.block_until_ready(forward(weights, x, states))

    def step(x: Any) -> Any:
        return jax.block_until_ready(training(weights, x))

    call = carrying(problem, which, x, infer, {"step": lambda: step(x)})
    return Prepared(call, results, on_gpu=device != "cpu")


def _scan(jax: Any, problem: Problem, _dtype: str, data: Data, _device: str) -> Network:
    """What a user writes: a cell in lax.scan, with the input's product outside of it."""
    if problem.lengths != "full" or problem.P or problem.input == "skip":
        raise NotRun("written for full batches and linear input, without projection")
    jnp = jax.numpy
    weights = [
        {"W": np.stack(p.W), "R": np.stack(p.R), "bW": np.stack(p.bW or p.zeros), "bR": np.stack(p.bR or p.zeros)}
        for p in split("canonical", data.canonical)
    ]

    def cell(h: Any, c: Any, from_x: Any, from_h: Any) -> Any:
        if problem.cell == "lstm":
            i, f, n, o = jnp.split(from_x + from_h, 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(n)
            return jax.nn.sigmoid(o) * jnp.tanh(c), c
        if problem.cell == "gru":
            (rx, ux, nx), (rh, uh, nh) = jnp.split(from_x, 3, axis=1), jnp.split(from_h, 3, axis=1)
            update, new = jax.nn.sigmoid(ux + uh), jnp.tanh(nx + jax.nn.sigmoid(rx + rh) * nh)
            return (1 - update) * new + update * h, c
        return (jnp.tanh if problem.cell == "tanh" else jax.nn.relu)(from_x + from_h), c

    def one(p: Any, x: Any, h: Any, c: Any, *, backward: bool) -> Any:
        rows = p["R"].shape[0] * p["R"].shape[1]
        R, bR = p["R"].reshape(rows, -1), p["bR"].reshape(-1)

        def step(state: Any, at: Any) -> Any:
            left = cell(*state, at, state[0] @ R.T + bR)
            return left, left[0]

        return jax.lax.scan(step, (h, c), x @ p["W"].reshape(rows, -1).T + p["bW"].reshape(-1), reverse=backward)

    def run(params: Any, x: Any, states: Any, *, training: bool) -> Any:
        del training
        hs, cs = states[0], states[-1]
        left = []
        for layer in range(problem.L):
            above = []
            for d in range(problem.D):
                k = layer * problem.D + d
                state, y = one(params[k], x, hs[k], cs[k], backward=d == 1)
                above.append(y)
                left.append(state)
            x = jnp.concatenate(above, axis=2)
        return x, tuple(map(jnp.stack, zip(*left, strict=True)))[: len(states)]

    def gradient(found: Any) -> Array:
        matrices = [w for g in found for w in (*g["W"], *g["R"])]
        return flat(matrices, [b for g in found for b in (*g["bW"], *g["bR"])])

    return Network(run, weights, gradient)


def _cudnn(_jax: Any, problem: Problem, dtype: str, data: Data, _device: str) -> Network:
    """jax.experimental.rnn: only the LSTM in float32, always as in training."""
    if problem.cell != "lstm" or dtype not in ("float32", "tf32") or problem.P or problem.input == "skip":
        raise NotRun("jax.experimental.rnn has the LSTM only, in float32, without projection and skip input")
    rnn = load("jax.experimental.rnn")
    lengths = np.array([problem.T] * problem.B if data.lengths is None else data.lengths, np.int32)
    sizes = {"input_size": problem.I, "hidden_size": problem.U, "num_layers": problem.L}
    precision = "high" if dtype == "tf32" else "highest"  # with TF32, and without

    def run(weights: Any, x: Any, states: Any, *, training: bool) -> Any:
        del training
        y, *left = rnn.lstm(x, *states, weights, lengths, *sizes.values(), 0.0, problem.D == 2, precision)
        return y, tuple(left)

    def gradient(found: Any) -> Array:
        weights = {"weights": found.astype(np.float32)}
        c = convert.jax_rnn.to_canonical(weights, **sizes, bidirectional=problem.D == 2)
        return flat(c.weights, c.biases)

    return Network(run, convert.jax_rnn.from_canonical(data.canonical)["weights"], gradient, batch_first=True)


def _ours(_jax: Any, problem: Problem, dtype: str, data: Data, device: str) -> Network:
    """`interop.jax.rnn`, in XLA's buffers."""
    from pycudnnrnn.interop.jax import rnn

    spec = spec_of(problem, dtype)
    op, data = ops.from_spec(spec), data.cast(spec.dtype.numpy)
    try:
        params = op.canonical_to_params(data.canonical.weights, data.canonical.biases)
        params = op.move_params(params, device)
        layout = op.layout(device)
    except PycudnnrnnError as error:
        raise NotRun(str(error).partition("\n")[0]) from error

    def run(params: Any, x: Any, states: Any, *, training: bool) -> Any:
        y, *left = rnn(params, x, *states, spec=spec, sequence_lengths=data.lengths, is_training=training,
                       platform=device)  # fmt: skip
        return y, tuple(left)

    def gradient(found: Any) -> Array:
        return flat(*([found[r.slice] for r in regions] for regions in (layout.weights, layout.biases)))

    return Network(run, params if device == "cpu" else params.get(), gradient)


NETWORKS = {"scan": _scan, "cudnn": _cudnn, "ours": _ours}
