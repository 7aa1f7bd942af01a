"""What several tests and checks ask of a device."""

import ctypes
import dataclasses
import importlib

import numpy as np

from pycudnnrnn import ops
from pycudnnrnn._libcudnn import cudnnForwardMode_t
from pycudnnrnn.passes import CallConfig
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import Algorithm, BiasMode, RNNSpec
from pycudnnrnn.testing.strategies import make_problem

RAGGED = (6, 2, 4, 1)
T, B = len(RAGGED) + 2, len(RAGGED)


DTYPES = ["float16", "bfloat16", "float32", "float64"]
ALGORITHMS = [algo for algo in Algorithm if algo is not Algorithm.AUTO]


GRID = [
    RNNSpec(mode, 2, 40, 40, dtype=dtype, algo=algo, bias_mode=bias_mode, input_mode=input_mode, num_proj=num_proj,
            direction="bidirectional")
    for mode in ("lstm", "gru", "rnn_tanh")
    for dtype in DTYPES
    for algo in ALGORITHMS
    for bias_mode in (BiasMode if algo is Algorithm.STANDARD else [BiasMode.DOUBLE])
    for input_mode in ("linear_input", "skip_input")
    for num_proj in (None, 24)
    if num_proj is None or (mode, algo, input_mode) == ("lstm", Algorithm.STANDARD, "linear_input")
    if dtype != "float64" or algo in (Algorithm.STANDARD, Algorithm.PERSIST_DYNAMIC)
]  # fmt: skip
"""Every algorithm with every dtype, bias mode, input mode, and projection, as far as an `RNNSpec` allows it."""


def lstm(dtype="float32", units=24, inputs=17):
    return ops.CudnnLSTM(2, units, inputs, dtype=dtype, direction="bidirectional")


def problem_of(op, lengths):
    return make_problem(op, T, B, None if lengths is None else list(lengths), seed=3)


def largest(one, other):
    """How far two arrays are apart; infinitely where one of them is no number, since `max` would pass NaN over."""
    difference = float(np.abs(np.asarray(one, "f8") - np.asarray(other, "f8")).max(initial=0))
    return difference if np.isfinite(difference) else np.inf


def largest_differences(one, other):
    return {name: largest(one[name], other[name]) for name in one}


def null_states(cuda, lengths):
    """By result: how far what comes with NULL hx, cx, dhx and dcx is from what comes with zeros, and whether at all.

    Far means as a share of the largest number. A sum over one step less may end in other last bits: no fault of ours.
    """
    op = lstm()
    p, found = problem_of(op, lengths), []
    put, zeros, full = (
        cuda.put,
        lambda like: cuda.put(np.zeros_like(like)),
        lambda like: cuda.put(np.full_like(like, 7)),
    )
    plan = op.prepare(T, B, is_training=True, sequence_lengths=p.lengths, device="cuda")
    x, params, dy = put(p.x), put(p.params), put(p.dy)
    for given in (False, True):
        y, hy, cy, dx, d_params = full(p.dy), full(p.hx), full(p.cx), full(p.x), full(p.params)
        hx, cx, dhx, dcx = (zeros(p.hx), zeros(p.cx), full(p.hx), full(p.cx)) if given else (None,) * 4
        reserve = put(np.zeros(plan.reserve_nbytes, np.uint8))
        plan.forward(params, x, hx, cx, y, hy, cy, reserve)
        plan.backward_data(params, y, dy, hx, zeros(p.hx), dhx, cx, zeros(p.cx), dcx, dx, reserve)
        plan.backward_weights(x, hx, y, d_params, reserve)
        found.append({"y": y, "hy": hy, "cy": cy, "dx": dx, "d_params": d_params})
    null, zero = ({name: cuda.get(array) for name, array in results.items()} for results in found)
    off = {
        name: largest(null[name], zero[name]) / max(float(np.abs(zero[name]).max(initial=0)), 1e-30) for name in null
    }
    return off, {name: bool(np.array_equal(null[name], zero[name])) for name in null}


def unaligned(cuda, dtype, inputs, units):
    """By result: how far arrays that begin one element behind an aligned address are from those that begin on it."""
    op, found = ops.CudnnLSTM(1, units, inputs, dtype=dtype), []
    p = problem_of(op, None)
    for put in (cuda.put, cuda.put_behind):
        fwd = op.forward(put(p.x), put(p.hx), put(p.cx), cuda.put(p.params))
        grads = fwd.backward(put(p.dy), put(p.dhy), put(p.dcy))
        results = {"output": fwd.output, "output_h": fwd.output_h, "input": grads.input, "params": grads.params}
        found.append({name: cuda.get(array) for name, array in results.items()})
    return largest_differences(*found)


def reserves(cuda, *, packed=False):
    """Bytes of reserve: what a ragged training call is given, and what cuDNN asks for by lengths."""
    ragged = tuple(sorted(RAGGED, reverse=True)) if packed else RAGGED
    schedule, handle = Schedule(T, B, ragged, packed=packed), cuda.engine.runtime.handles.on(cuda.device.stream())
    passes = cuda.engine.runtime.native_calls(handle, CallConfig(lstm().spec, schedule, keep_reserve=True))
    found = {"given": passes.reserve_nbytes}
    for lengths in ((T,) * B, (T,) * (B - 1) + (T - 1,), ragged, (T,) + (1,) * (B - 1)):
        workspace, reserve = ctypes.c_size_t(), ctypes.c_size_t()
        data = passes.data_of_its_own(dataclasses.replace(schedule, lengths=lengths))
        cuda.engine.library.cudnnGetRNNTempSpaceSizes(
            handle, passes._rnn, cudnnForwardMode_t.TRAINING, data.x, workspace, reserve
        )
        found[str(lengths)] = reserve.value
    return found


def nccl_of(cupy):
    """CuPy's NCCL, which is no attribute of `cupy.cuda` before somebody imports it."""
    return importlib.import_module(f"{cupy.__name__}.cuda.nccl")
