"""cuDNN's numbers against the NumPy engine's and published ones; test_torch.py compares them with torch's own."""

import time

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.errors import CudnnError
from pycudnnrnn.testing.goldens import KINDS, NVIDIA_CHECKSUMS, TF_VALUES
from pycudnnrnn.testing.strategies import Problem, make_problem
from tests.gpu.numbers import ALGORITHMS, run, run_numpy, worst

OF_THE_SHIM = "the shim's arithmetic is the NumPy engine's: one case shows the path"
CASES = [
    (kind, dtype, direction, lengths)
    for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")
    for dtype in ("float32", "float64", "float16", "bfloat16")
    for direction in ("unidirectional", "bidirectional")
    for lengths in (None, [7, 2, 5, 7, 1])
]


@pytest.mark.parametrize(("kind", "dtype", "direction", "lengths"), CASES, ids=str)
def test_every_result_and_gradient_is_near_the_numpy_engines(cuda, answer, kind, dtype, direction, lengths):
    op = KINDS[kind](2, 24, 17, direction=direction, dtype=dtype)
    problem = make_problem(op, 7, 5, lengths, seed=3)
    ratio, errors = worst(run(cuda, problem), run_numpy(problem), problem)
    answer(f"error {kind} {dtype} {direction} {'ragged' if lengths else 'equal'}", errors)
    assert ratio <= 1


FEATURES = {
    "projection": ("lstm", {"num_proj": 9}),
    "clip": ("lstm", {"cell_clip": 0.25}),
    "clip, rounded": ("lstm", {"cell_clip": 0.3}),
    "skip lstm": ("lstm", {"input_mode": "skip_input"}),
    "skip gru": ("gru", {"input_mode": "skip_input"}),
    "skip relu": ("rnn_relu", {"input_mode": "skip_input"}),
    "no bias": ("lstm", {"bias_mode": "none"}),
    "single_input gru": ("gru", {"bias_mode": "single_input"}),
    "single_recurrent gru": ("gru", {"bias_mode": "single_recurrent"}),
    "skip, biases of the input alone": ("gru", {"bias_mode": "single_input", "input_mode": "skip_input"}),
    "skip, biases of the state alone": ("lstm", {"bias_mode": "single_recurrent", "input_mode": "skip_input"}),
    "no bias skip": ("gru", {"bias_mode": "none", "input_mode": "skip_input"}),
}


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_feature_is_near_the_numpy_engines(cuda, answer, feature, dtype):
    kind, options = FEATURES[feature]
    op = KINDS[kind](2, 12, 12 if "input_mode" in options else 7, dtype=dtype, direction="bidirectional", **options)
    problem = make_problem(op, 6, 4, [6, 3, 1, 5], seed=3)
    ratio, errors = worst(run(cuda, problem), run_numpy(problem), problem)
    answer(f"feature {feature} {dtype}", {"ratio": ratio, **errors})
    assert ratio <= 1


@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_each_algorithm_agrees_or_says_that_it_cannot(cuda, answer, algo, kind, dtype):
    op = KINDS[kind](1, 128, 128, dtype=dtype, algo=algo)
    problem, began = make_problem(op, 10, 8, None, seed=3), time.perf_counter()
    try:
        op.prepare(10, 8, is_training=True, device="cuda")
        ready_s = round(time.perf_counter() - began, 2)  # for some of them cuDNN compiles
        ratio, _ = worst(run(cuda, problem), run_numpy(problem), problem)
    except CudnnError as error:
        answer(f"algorithm {algo} {kind} {dtype}", f"refused: {error.function} {error.status}")
        assert algo != "standard"
        return
    answer(f"algorithm {algo} {kind} {dtype}", {"ratio": ratio, "ready after s": ready_s})
    assert ratio <= 1


@pytest.mark.parametrize(("mode", "L", "U", "inputs", "B", "T", "expected"), TF_VALUES, ids=str)
def test_tensorflows_values_come_out(cuda, mode, L, U, inputs, B, T, expected):
    op = KINDS[mode](L, U, inputs)
    state = cuda.put(np.ones((L, B, U), "f4"))
    x, params = cuda.put(np.ones((T, B, inputs), "f4")), cuda.put(np.ones(op.params_size("cuda"), "f4"))
    results = op(x, *([state, state] if mode == "lstm" else [state]), params, is_training=False)
    assert sum(float(cuda.get(r).sum(dtype="f8")) for r in results) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("mode", NVIDIA_CHECKSUMS)
def test_nvidias_checksums_come_out(cuda, mode):
    if cuda.on_shim and mode != "rnn_tanh":
        pytest.skip(OF_THE_SHIM)
    T, L, U, B = 20, 2, 512, 64
    op = KINDS[mode](L, U, U)
    params = np.ones(op.params_size(), "f4")
    for weight in op.params_to_canonical(params, copy=False)[0]:
        weight[:] = 1 / weight.size
    data, state = np.ones((T, B, U), "f4"), np.ones((L, B, U), "f4")
    found = run(cuda, Problem(op, params, data, state, state, None, data, state, state))
    sums = {"dw" if name == "dparams" else name: float(a.sum(dtype="f8")) for name, a in found.items()}
    assert sums == pytest.approx(NVIDIA_CHECKSUMS[mode], rel=1e-4)


@pytest.mark.parametrize("lengths", [[5, 0, 3], [0, 0, 0], [0, 4, 0]], ids=str)
def test_zero_lengths_pass_states_through(cuda, lengths):
    op = ops.CudnnLSTM(2, 12, 7, dtype="float64", direction="bidirectional")
    problem = make_problem(op, 5, 3, lengths, seed=3)
    ratio, _ = worst(run(cuda, problem), run_numpy(problem), problem)
    assert ratio <= 1


@pytest.mark.parametrize("T", [65535, 65536, 100_000])
def test_long_runs_are_exact(cuda, T):
    if cuda.on_shim and T != 65536:
        pytest.skip(OF_THE_SHIM)
    op = ops.CudnnGRU(1, 8, 3, dtype="float64")
    problem = make_problem(op, T, 1, None, seed=3)
    ratio, _ = worst(run(cuda, problem), run_numpy(problem), problem)
    assert ratio <= 1


@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_results_are_the_same_over_100_runs(cuda, answer, measured, algo, kind, dtype):
    """What the standard algorithm gives is the same to the bit; of the others, what is so is recorded."""
    op = KINDS[kind](2, 64, 64, dtype=dtype, algo=algo, dropout=0.5, seed=7)
    problem = make_problem(op, 12, 16, None, seed=3)
    few = algo == "persist_dynamic"  # each run makes a plan, and cuDNN compiles each of its plans for seconds
    runs = 3 if few else 5 if cuda.on_shim else 100
    try:
        run(cuda, problem)  # so that the states have moved on from where a seed puts them
        start = op.dropout_state("cuda")
        op.set_dropout_state(start)
        first = run(cuda, problem)
    except CudnnError as error:
        answer(f"deterministic {algo} {kind} {dtype}", f"refused: {error.function} {error.status}")
        assert algo != "standard"
        return
    same = dict.fromkeys(first, True)
    for _ in range(runs - 1):
        op.set_dropout_state(start)
        for name, value in run(cuda, problem).items():
            same[name] &= bool(np.array_equal(value, first[name]))
    answer(f"deterministic {algo} {kind} {dtype}", {"runs": runs, **same})
    if algo == "standard":
        assert all(same.values()), same
        measured("equal runs", modes=1, runs=runs)
