"""Ours in JAX: `interop.jax.rnn` under jit, on the platform that the option names."""

from __future__ import annotations

from typing import Any

import numpy as np

from pycudnnrnn import ops
from pycudnnrnn.errors import PycudnnrnnError

from ..data import Array, Data, flat, results_of, spec_of
from ..problems import Problem
from ..timing import HostClock
from . import NotRun, Prepared, need_pass
from .jax_scan import device, host, stepping, versions

__all__ = ["prepare", "versions"]


def prepare(problem: Problem, which: str, dtype: str, data: Data, option: str) -> Prepared:
    need_pass(which, among=("infer", "step"), why="JAX differentiates the call as a whole")
    if problem.layout == "packed":
        raise NotRun("padded arrays only")
    if dtype == "tf32" and option == "cpu":
        raise NotRun("TF32 is a mode of GPUs")
    jax, where = device(option)
    from pycudnnrnn.interop.jax import rnn

    jax.config.update("jax_enable_x64", dtype == "float64")
    spec = spec_of(problem, dtype)
    op, data = ops.from_spec(spec), data.cast(spec.dtype.numpy)
    try:
        params = op.canonical_to_params(data.canonical.weights, data.canonical.biases)
        params = op.move_params(params, option)
    except PycudnnrnnError as error:
        raise NotRun(str(error).partition("\n")[0]) from error
    params = jax.device_put(params if option == "cpu" else params.get(), where)
    xs = [jax.device_put(x, where) for x in data.xs]
    dy = jax.device_put(data.dy, where)
    widths = (spec.state_size, spec.num_units) if spec.has_cell_state else (spec.state_size,)
    zeros = tuple(
        jax.device_put(np.zeros((spec.num_pseudo_layers, problem.B, width), spec.dtype.numpy), where)
        for width in widths
    )

    def network(params: Any, x: Any, states: Any, *, training: bool) -> Any:
        return rnn(
            params, x, *states, spec=spec, sequence_lengths=data.lengths, is_training=training, platform=option
        )  # fmt: skip

    def loss(params: Any, x: Any) -> Any:
        y = network(params, x, zeros, training=True)[0]
        return (y * dy).sum(), y

    infer = jax.jit(lambda *arguments: network(*arguments, training=False))
    step = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))

    def call_infer(x: Any, states: Any) -> Any:
        y, *left = jax.block_until_ready(infer(params, x, states))
        return y, tuple(left)

    def results() -> dict[str, Array]:
        if which == "infer":
            y, h, *c = map(host, infer(params, xs[0], zeros))
            return results_of(y, h, c[0] if c else None)
        (_, y), (d_params, dx) = step(params, xs[0])
        layout = op.layout(option)
        d_params = np.asarray(d_params)
        split = ([d_params[r.slice] for r in regions] for regions in (layout.weights, layout.biases))
        return {"y": host(y), "dx": host(dx), "dw": flat(*split)}

    if which == "infer":
        call = stepping(call_infer, xs, zeros, carried=problem.carried)
    else:
        call = stepping(lambda x: jax.block_until_ready(step(params, x)), xs)
    return Prepared(call, results, HostClock(), on_gpu=option != "cpu")
