"""cuDNN's numbers beside the NumPy engine's in float64; test_torch.py compares them with torch's own."""

from time import perf_counter

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.errors import ArgumentError, CudnnError
from pycudnnrnn.testing.goldens import KINDS
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.numbers import ALGORITHMS, DTYPES, LENGTHS, RAGGED, differ, lstm, problem_of, run, run_numpy, worst
from tests.helpers.axes import by_batch, by_time


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
    "clip": ("lstm", {"cell_clip": 0.3}),
    "skip lstm": ("lstm", {"input_mode": "skip_input"}),
    "skip gru": ("gru", {"input_mode": "skip_input"}),
    "no bias": ("lstm", {"bias_mode": "none"}),
    "single_input gru": ("gru", {"bias_mode": "single_input"}),
    "single_recurrent gru": ("gru", {"bias_mode": "single_recurrent"}),
    "skip, no bias": ("gru", {"bias_mode": "none", "input_mode": "skip_input"}),
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


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("lengths", [None, [11, 2, 5, 0, 7]], ids=["equal", "ragged"])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_forward_that_keeps_only_states_has_the_same_gradients(cuda, answer, kind, dtype, lengths):
    problem = make_problem(KINDS[kind](2, 24, 17, dtype=dtype), 11, 5, lengths, seed=3)
    ratio, errors = worst(run(cuda, problem, checkpoint_every=3), run_numpy(problem), problem)
    answer(f"recomputing: error {kind} {dtype} {'ragged' if lengths else 'equal'}", errors)
    assert ratio <= 1


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@LENGTHS
def test_batch_major_data_is_near_the_numpy_engines(cuda, answer, kind, lengths):
    problem = problem_of(KINDS[kind](2, 24, 17, direction="bidirectional"), lengths)
    results = by_time(run(cuda, by_batch(problem), time_major=False))
    ratio, errors = worst(results, run_numpy(problem), problem)
    answer(f"batch major {kind}, {'ragged' if lengths else 'equal'}", errors)
    assert ratio <= 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_data_may_begin_on_any_element(cuda, dtype):
    """They are copied: a kernel that reads vectors faults on such an address, which takes the device with it."""
    problem = problem_of(lstm(dtype, 64, 64))
    assert worst(run(cuda, problem, put=cuda.put_behind), run_numpy(problem), problem)[0] <= 1


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_padding_is_exactly_zero_and_nan_in_it_never_leaks(cuda, answer, dtype):
    problem = problem_of(ops.CudnnGRU(2, 12, 7, dtype=dtype, direction="bidirectional"), RAGGED)
    clean = run(cuda, problem)
    for b, length in enumerate(RAGGED):
        problem.x[length:, b], problem.dy[length:, b] = np.nan, np.nan
    leaks = differ(run(cuda, problem), clean)
    outside = {name: bool(all(not clean[name][n:, b].any() for b, n in enumerate(RAGGED))) for name in ("y", "dx")}
    answer(f"padding {dtype}", {"zero": outside, "NaN changes": leaks})
    assert (outside, leaks) == ({"y": True, "dx": True}, [])


@pytest.mark.parametrize("lengths", [[5, 0, 3], [0, 0, 0]], ids=str)
def test_zero_lengths_pass_states_through(cuda, lengths):
    problem = make_problem(lstm("float64"), 5, 3, lengths, seed=3)
    assert worst(run(cuda, problem), run_numpy(problem), problem)[0] <= 1


@pytest.mark.parametrize("T", [65535, 65536])
def test_long_runs_are_exact(cuda, T):
    if cuda.on_shim and T != 65536:
        pytest.skip("one case shows the path")
    problem = make_problem(ops.CudnnGRU(1, 8, 3, dtype="float64"), T, 1, None, seed=3)
    assert worst(run(cuda, problem), run_numpy(problem), problem)[0] <= 1


@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_each_algorithm_agrees_and_repeats_itself_or_says_that_it_cannot(cuda, answer, algo, kind, dtype):
    """What the standard algorithm gives is the same to the bit; of the others, what is so is recorded."""
    problem, began = make_problem(KINDS[kind](1, 128, 128, dtype=dtype, algo=algo), 10, 8, None, seed=3), perf_counter()
    seen = {}
    try:
        problem.op.prepare(10, 8, is_training=True, device="cuda")
        seen["ready after s"] = round(perf_counter() - began, 2)  # for some of them cuDNN compiles
        first = run(cuda, problem)
        seen["ratio"], _ = worst(first, run_numpy(problem), problem)
        seen["runs"] = 3 if algo == "persist_dynamic" else 5 if cuda.on_shim else 100  # that compiles for each
        seen["differ"] = sorted({name for _ in range(seen["runs"]) for name in differ(run(cuda, problem), first)})
    except (CudnnError, ArgumentError) as error:
        seen["refused"] = str(error)[:150]
    answer(f"algorithm {algo} {kind} {dtype}", seen)
    assert seen.get("ratio", 0) <= 1
    assert algo != "standard" or seen["differ"] == []


@pytest.mark.apart
@pytest.mark.parametrize("shape", [(150, 16, 256), (25, 64, 512), (20, 5, 168)], ids=str)
@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_what_auto_chooses_has_the_numpy_engines_numbers(cuda, answer, shape, kind, dtype):
    T, B, H = (3, 2, shape[2] // 16) if cuda.on_shim else shape
    op = KINDS[kind](1, H, H, dtype=dtype, algo="auto")
    problem = make_problem(op, T, B, None, seed=3)
    ratio, _ = worst(run(cuda, problem), run_numpy(problem), problem)
    choice = next(c for c in ops.algorithm_choices() if c.kind.spec == op.spec and c.kind.T == T and c.kind.training)
    trials = {f"{t.algo} {t.math_type}": t.reason if t.time_us is None else t.time_us for t in choice.trials}
    answer(f"auto {kind} {dtype} {shape}", {"algo": choice.algo, "math_type": choice.math_type, "trials": trials})
    assert ratio <= 1
    assert any(trial.algo == "standard" and trial.time_us is not None for trial in choice.trials)
