"""cuDNN's numbers against the NumPy engine's and published ones; test_torch.py compares them with torch's own."""

from time import perf_counter

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.errors import CudnnError
from pycudnnrnn.testing.goldens import KINDS, NVIDIA_CHECKSUMS, TF_VALUES
from pycudnnrnn.testing.strategies import Problem, make_problem
from tests.gpu.numbers import ALGORITHMS, DTYPES, LENGTHS, differ, lstm, problem_of, run, run_numpy, worst

OF_THE_SHIM = "the shim's arithmetic is the NumPy engine's: one case shows the path"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("direction", ["unidirectional", "bidirectional"])
@LENGTHS
def test_every_result_and_gradient_is_near_the_numpy_engines(cuda, answer, kind, dtype, direction, lengths):
    problem = problem_of(KINDS[kind](2, 24, 17, direction=direction, dtype=dtype), lengths)
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
def test_each_algorithm_agrees_and_repeats_itself_or_says_that_it_cannot(cuda, answer, algo, kind, dtype):
    """What the standard algorithm gives is the same to the bit; of the others, what is so is recorded."""
    problem, began = make_problem(KINDS[kind](1, 128, 128, dtype=dtype, algo=algo), 10, 8, None, seed=3), perf_counter()
    found = {}
    try:
        problem.op.prepare(10, 8, is_training=True, device="cuda")
        found["ready after s"] = round(perf_counter() - began, 2)  # for some of them cuDNN compiles
        first = run(cuda, problem)
        found["ratio"], _ = worst(first, run_numpy(problem), problem)
        found["runs"] = 3 if algo == "persist_dynamic" else 5 if cuda.on_shim else 100  # that compiles for each
        found["differ"] = sorted({name for _ in range(found["runs"]) for name in differ(run(cuda, problem), first)})
    except CudnnError as error:
        found["refused"] = f"{error.function} {error.status}"
    answer(f"algorithm {algo} {kind} {dtype}", found)
    assert found.get("ratio", 0) <= 1
    assert algo != "standard" or found["differ"] == []


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
    problem = make_problem(lstm("float64"), 5, 3, lengths, seed=3)
    assert worst(run(cuda, problem), run_numpy(problem), problem)[0] <= 1


@pytest.mark.parametrize("T", [65535, 65536, 100_000])
def test_long_runs_are_exact(cuda, T):
    if cuda.on_shim and T != 65536:
        pytest.skip(OF_THE_SHIM)
    problem = make_problem(ops.CudnnGRU(1, 8, 3, dtype="float64"), T, 1, None, seed=3)
    assert worst(run(cuda, problem), run_numpy(problem), problem)[0] <= 1
