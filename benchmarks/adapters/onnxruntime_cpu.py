"""onnxruntime's LSTM, GRU and RNN operators on the CPU."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from pycudnnrnn import convert
from pycudnnrnn.errors import ConvertError

from ..data import Array, Data, results_of, spec_of
from ..problems import Problem
from . import NotRun, Prepared, load


def versions() -> dict[str, Any]:
    return {"onnxruntime": load("onnxruntime").__version__}


def prepare(problem: Problem, which: str, dtype: str, data: Data, _option: str) -> Prepared:
    if which != "infer":
        raise NotRun("onnxruntime's operators have only a forward")
    if dtype in ("tf32", "float64"):
        raise NotRun(f"its operators on the CPU have no {dtype}")
    if problem.carried:
        raise NotRun("written without carried states")
    onnxruntime = load("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "0"))
    options.log_severity_level = 3  # errors; it warns of every input that may be left out
    spec = spec_of(problem, dtype)
    element = spec.dtype.numpy
    weights, biases = (
        [a.astype(element) for a in arrays] for arrays in (data.canonical.weights, data.canonical.biases)
    )
    try:
        canonical = convert.Canonical(spec, tuple(weights), tuple(biases))
        model = convert.onnx.to_model(canonical, states=True, sequence_lens=data.lengths is not None)
    except ConvertError as error:
        raise NotRun(str(error)) from error
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    zeros = np.zeros((spec.num_pseudo_layers, problem.B, spec.num_units), element)
    feed = {"input": data.x.astype(element), "initial_h": zeros}
    if problem.cell == "lstm":
        feed["initial_c"] = zeros
    if data.lengths is not None:
        feed["sequence_lens"] = np.array(data.lengths, np.int32)

    def results() -> dict[str, Array]:
        return results_of(*session.run(None, feed))

    return Prepared(lambda: session.run(None, feed), results)
