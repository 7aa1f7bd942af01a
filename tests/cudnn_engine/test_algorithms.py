"""`algo="auto"`: what may be chosen, and that the fastest of it is."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import RNNSpec, ops
from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.cudnn import algorithms
from pycudnnrnn.engines.cudnn.algorithms import ALGORITHMS, ROUNDS, STRICTNESS, candidates
from pycudnnrnn.errors import ArgumentError, CaptureError, EngineError
from pycudnnrnn.passes import CallConfig
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import Algorithm, MathType
from pycudnnrnn.testing import PermutedLayoutEngine
from pycudnnrnn.testing.strategies import make_problem, problems, sequence_lengths, specs
from tests.helpers.algorithms import DYNAMIC, SMALL_H, STANDARD, STATIC, gru
from tests.helpers.examples import examples
from tests.helpers.together import Other
from tests.stand_in.host_device import host
from tests.stand_in.problem import on_device, run

NOT_SUPPORTED, EXECUTION_FAILED = 3000, 5000


@pytest.mark.parametrize("fastest", [STANDARD, STATIC, DYNAMIC, SMALL_H])
@pytest.mark.parametrize("training", [False, True])
def test_the_fastest_is_chosen_and_the_numbers_stay(play, fastest, training):
    played, _, device = play()
    device.times = {(fastest, "fma"): 700.0}
    op = gru(dtype="float32")
    problem = make_problem(op, 3, 2, None, seed=1)
    plan = op.prepare(3, 2, is_training=training, device="cuda:0")
    assert (plan.algo, plan.math_type) == (fastest, "fma")
    played.ran.clear()
    found = run(problem, on_device(device, problem))
    assert all(np.array_equal(value, found[name]) for name, value in problem.results().items())
    if training:
        assert played.ran == [(name, fastest, "fma") for name in ("forward", "backward_data", "backward_weights")]
    (choice, *_) = ops.algorithm_choices()
    assert (choice.algo, choice.kind.T, choice.kind.training) == (fastest, 3, training)
    assert {trial.time_us for trial in choice.trials} == {700.0, 1000.0}
    assert not played.complaints


def test_one_slow_round_of_a_candidate_does_not_decide(play, monkeypatch):
    _, _, device = play()
    device.times = {(STATIC, "fma"): 700.0}
    timed, calls = device.timed, itertools.count()
    monkeypatch.setattr(device, "timed", lambda work: timed(work) + 1e6 * (next(calls) % ROUNDS == 0))
    assert gru().prepare(3, 2, device="cuda:0").algo == STATIC
    (choice,) = ops.algorithm_choices()
    assert {trial.time_us for trial in choice.trials} == {700.0, 1000.0}


def test_of_equal_times_the_standard_algorithm_wins(play):
    play()
    assert gru().prepare(3, 2, device="cuda:0").algo == STANDARD


@examples(300)
@given(specs(dtypes=["float16", "float32", "float64"]), st.sampled_from(list(MathType)), st.data())
def test_candidates_are_legal_and_never_less_precise_than_asked(spec, math_type, data):
    spec = spec.replace(math_type=math_type, algo="auto")
    lengths = data.draw(sequence_lengths(4, 3, least=1))
    schedule = Schedule(4, 3, None if lengths is None or set(lengths) == {4} else tuple(lengths))
    batches = list(candidates(CallConfig(spec, schedule)))
    found = [(batch.spec.algo, batch.spec.math_type) for batch in batches]
    assert found[0] == (STANDARD, math_type)
    assert len(set(found)) == len(found)
    assert all(STRICTNESS.index(math) <= STRICTNESS.index(math_type) for _, math in found)
    assert {batch.spec.replace(algo="auto", math_type=math_type) for batch in batches} == {spec}
    assert {batch._replace(spec=spec) for batch in batches} == {CallConfig(spec, schedule)}
    only_standard = spec.num_proj or spec.bias_mode != "double" or schedule.lengths is not None
    expected = {STANDARD} if only_standard else {STANDARD, DYNAMIC} if spec.dtype == "float64" else set(ALGORITHMS)
    assert {algo for algo, _ in found} == expected


def test_fp32_that_forbids_tf32_is_measured_without_it_and_16_bits_with_the_math_type_asked_for_alone():
    def found(spec, lengths=None):
        return [batch.spec for batch in candidates(CallConfig(spec, Schedule(4, 3, lengths)))]

    assert {c.math_type for c in found(RNNSpec("lstm", 1, 4, 4))} == {"fma"}
    half = RNNSpec("lstm", 1, 4, 4, dtype="bfloat16")
    assert [(c.algo, c.math_type) for c in found(half)] == [(algo, "tensor_op") for algo in ALGORITHMS]
    assert {c.math_type for c in found(half.replace(math_type="fma"))} == {"fma"}
    assert {c.math_type for c in found(RNNSpec("lstm", 1, 4, 4, math_type="tensor_op"))} == {
        "tensor_op",
        "default",
        "fma",
    }
    assert {c.algo for c in found(half, (4, 2, 1))} == {STANDARD}
    slow = RNNSpec("lstm", 1, 4, 4, dtype="float16", compute_dtype="float16")
    assert {c.algo for c in found(slow)} == {STANDARD}


@examples(100)
@given(problems(specs(dtypes=["float32", "float64"], max_layers=2), least_length=1), st.sampled_from(list(Algorithm)))
def test_what_is_illegal_never_runs_whichever_would_be_fastest(play, problem, fastest):
    played, _, device = play()
    device.times = {(str(fastest), str(math)): 600.0 for math in MathType}
    auto = make_problem(ops.from_spec(problem.spec.replace(algo="auto")), *problem.x.shape[:2], problem.lengths, seed=1)
    T, B = problem.x.shape[:2]
    schedule = Schedule(T, B, None if problem.lengths in (None, [T] * B) else tuple(problem.lengths))
    batches = candidates(CallConfig(auto.spec, schedule, True))
    legal = {(str(batch.spec.algo), str(batch.spec.math_type)) for batch in batches}
    found = run(auto, on_device(device, auto))
    assert {(algo, math) for _, algo, math in played.ran} == legal
    assert all(np.array_equal(value, found[name]) for name, value in auto.results().items())
    assert not played.complaints


def test_another_layout_is_never_chosen_however_fast(play):
    played, _, device = play()
    played.layouts = {SMALL_H: PermutedLayoutEngine(3)}
    device.times = {(SMALL_H, "fma"): 1.0, (STATIC, "fma"): 50.0}
    plan = gru().prepare(3, 2, device="cuda:0")
    assert plan.algo == STATIC
    (choice,) = ops.algorithm_choices()
    (trial,) = [trial for trial in choice.trials if trial.algo == SMALL_H]
    assert (trial.time_us, trial.reason) == (None, "another layout")
    assert not [entry for entry in played.ran if entry[1] == SMALL_H]


@pytest.mark.parametrize("where", ["cudnnGetRNNTempSpaceSizes", "cudnnRNNForward", "cudnnRNNBackwardData_v8"])
@pytest.mark.parametrize("status", [NOT_SUPPORTED, EXECUTION_FAILED])
def test_a_candidate_that_fails_is_left_out_with_its_status(play, where, status):
    played, _, device = play()
    played.refused = {(where, SMALL_H): status, (where, DYNAMIC): status}
    device.times = {(SMALL_H, "fma"): 601.0, (DYNAMIC, "fma"): 602.0, (STATIC, "fma"): 603.0}
    assert gru().prepare(3, 2, is_training=True, device="cuda:0").algo == STATIC
    (choice,) = ops.algorithm_choices()
    reasons = {trial.algo: trial.reason for trial in choice.trials}
    name = {NOT_SUPPORTED: "CUDNN_STATUS_NOT_SUPPORTED", EXECUTION_FAILED: "CUDNN_STATUS_EXECUTION_FAILED"}[status]
    assert reasons == {STANDARD: "", STATIC: "", SMALL_H: f"{where}: {name}", DYNAMIC: f"{where}: {name}"}


@pytest.mark.parametrize("best", [algorithms.BUILD_US, algorithms.BUILD_US - 1])
def test_what_cudnn_compiles_is_tried_last_and_only_where_the_others_are_slow(play, best):
    played, _, device = play()
    device.times = {(STATIC, "tensor_op"): best, (DYNAMIC, "tensor_op"): 1.0}
    plan = gru(dtype="bfloat16").prepare(3, 2, device="cuda:0")
    slow = best >= algorithms.BUILD_US
    assert plan.algo == (DYNAMIC if slow else STATIC)
    assert played.counts["cudnnBuildRNNDynamic"] == (2 if slow else 0), "to be measured, and for the plan"
    (choice,) = ops.algorithm_choices()
    reasons = [(trial.algo, trial.reason) for trial in choice.trials]
    why = "" if slow else "not compiled: another takes 499 us"
    assert reasons == [(STANDARD, ""), (SMALL_H, ""), (STATIC, ""), (DYNAMIC, why)]
    first = {algo: number for number, (_, algo, _) in reversed(list(enumerate(played.ran)))}
    assert sorted(first, key=first.get) == [STANDARD, SMALL_H, STATIC, *([DYNAMIC] if slow else [])]


def test_where_nothing_else_runs_what_cudnn_compiles_is_tried(play):
    played, _, _ = play()
    played.refused = {("cudnnRNNForward", algo): EXECUTION_FAILED for algo in (STANDARD, SMALL_H, STATIC)}
    assert gru().prepare(3, 2, device="cuda:0").algo == DYNAMIC


def test_when_every_candidate_fails_the_error_says_how_each_did(play):
    played, _, _ = play()
    played.refused = {("cudnnRNNForward", algo): EXECUTION_FAILED for algo in map(str, ALGORITHMS)}
    with pytest.raises(EngineError, match="algo='auto': no algorithm runs") as caught:
        gru().prepare(3, 2, device="cuda:0")
    assert all(f"{algo} with fma: cudnnRNNForward: CUDNN_STATUS_EXECUTION_FAILED" in str(caught.value)
               for algo in ALGORITHMS)  # fmt: skip
    assert ops.algorithm_choices() == ()


def test_a_candidate_without_memory_is_left_out_and_want_of_memory_for_all_is_a_memory_error(play, monkeypatch):
    _, engine, device = play()
    op = gru()
    allocate, left = device.allocate, [0]

    def failing_once(nbytes):
        left[0] -= 1
        if left[0] == -1:
            raise MemoryError("none left")
        return allocate(nbytes)

    monkeypatch.setattr(device, "allocate", failing_once)
    outcomes = []
    for nth in range(0, 600, 17):
        engine.choices.known.clear()
        left[0] = nth
        try:
            op.prepare(3, 2, is_training=True, device="cuda:0")
        except MemoryError:
            outcomes.append("error")
        else:
            (choice,) = ops.algorithm_choices()
            outcomes.append([trial.algo for trial in choice.trials if trial.reason == "none left"])
    assert {"error", *(algo for out in outcomes if out != "error" for algo in out)} == {"error", *ALGORITHMS}
    assert all(out == "error" or len(out) <= 1 for out in outcomes)
    assert outcomes[-1] == []
    monkeypatch.undo()
    engine.choices.known.clear()
    device.fail_at = 12
    with pytest.raises(MemoryError):
        op.prepare(3, 2, is_training=True, device="cuda:0")
    device.fail_at = None


def test_forward_and_backward_are_timed_together_on_the_callers_arrays_once_a_shape(play):
    played, _, device = play()
    op = gru()
    problem = make_problem(op, 3, 2, None, seed=1)
    arrays = on_device(device, problem)
    before = {name: host(array).copy() for name, array in arrays.items()}
    op.forward(arrays["x"], arrays["hx"], arrays["params"])
    timings = 3 * (1 + ROUNDS) + 1 + 4 * ROUNDS  # and all again beside what was compiled
    assert device.timings == timings
    assert all(np.array_equal(host(arrays[name]), old) for name, old in before.items())
    passes = ["forward", "backward_data", "backward_weights"]
    assert [name for name, *_ in played.ran] == passes * 2 * timings + ["forward"]
    xs = {arguments[5] for name, arguments, _ in played.calls if name == "cudnnRNNForward"}
    assert xs == {arrays["x"].data.ptr}, "measured on the caller's data"
    for _ in range(2):
        op.forward(arrays["x"], arrays["hx"], arrays["params"])
    assert device.timings == timings
    op.forward(arrays["x"], arrays["hx"], arrays["params"], is_training=False)
    assert device.timings == 2 * timings
    assert [name for name, *_ in played.ran[-2 * timings :]] == ["forward"] * 2 * timings
    op.prepare(4, 2, device="cuda:0")
    op.prepare(3, 2, time_major=False, device="cuda:0")
    op.prepare(3, 2, sequence_lengths=[3, 1], device="cuda:0")
    assert device.timings == 4 * timings + 1 + ROUNDS
    op.prepare(3, 2, sequence_lengths=[1, 3], device="cuda:0")
    assert device.timings == 4 * timings + 1 + ROUNDS, "ragged lengths are one kind"


def test_models_of_other_seeds_share_what_was_measured(play):
    _, _, device = play()
    timings = []
    for seed in (3, 4):
        gru(dropout=0.5, seed=seed).prepare(3, 2, is_training=True, device="cuda:0")
        timings.append(device.timings)
    assert timings[0] == timings[1] > 0
    assert len(ops.algorithm_choices()) == 1


def test_what_another_thread_is_measuring_is_not_measured_again(play, monkeypatch):
    other, tried, calls = Other(), algorithms._tried, []
    with other.watching():
        _, engine, _ = play()

    def prepare():
        with use_engine(engine):
            return gru().prepare(3, 2, device="cuda:0").algo

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            other.comes(prepare)
        return tried(*arguments)

    monkeypatch.setattr(algorithms, "_tried", interrupted)
    assert prepare() == other.result() == STANDARD
    assert len(calls) == 1


def test_measuring_does_not_move_the_models_dropout(play):
    _, _, device = play()
    auto, plain = gru(dropout=0.5, seed=3, dtype="float64"), ops.CudnnGRU(2, 3, 4, dropout=0.5, seed=3, dtype="float64")
    problem = make_problem(auto, 3, 2, None, seed=1)
    twin = make_problem(plain, 3, 2, None, seed=1)
    for _ in range(2):
        found, expected = run(problem, on_device(device, problem)), run(twin, on_device(device, twin))
        assert all(np.array_equal(value, expected[name]) for name, value in found.items())
    assert auto.dropout_state("cuda:0").position == 2


def test_a_batch_in_parts_runs_the_standard_algorithm_and_measures_nothing(play):
    played, _, device = play()
    device.times = {(SMALL_H, "fma"): 1.0}
    problem = make_problem(gru(), 3, 2, [3, 0], seed=1)
    found = run(problem, on_device(device, problem))
    assert np.allclose(found["dparams"], problem.results()["dparams"], atol=1e-6)
    assert device.timings == 0
    assert {algo for _, algo, _ in played.ran} == {STANDARD}


def test_the_numpy_engine_has_nothing_to_choose():
    plan = gru().prepare(3, 2)
    assert plan.algo == STANDARD
    with pytest.raises(ArgumentError, match="device"):
        ops.algorithm_choices(device="cpu")


def test_a_graph_of_an_auto_plan_runs_what_was_chosen_and_measuring_is_refused_in_a_capture(play):
    played, engine, device = play()
    device.times = {(STATIC, "fma"): 1.0}
    op = gru()
    problem = make_problem(op, 3, 2, None, seed=1)
    plan = op.prepare(3, 2, device="cuda:0")
    graph = plan.capture(device.from_host(problem.params))
    played.ran.clear()
    graph.replay()
    assert played.ran == [("forward", STATIC, "fma")]
    engine.choices.known.clear()
    with device.recording(device.current):
        with pytest.raises(CaptureError, match="preparing a plan"):
            op.prepare(3, 2, device="cuda:0")
        with pytest.raises(CaptureError, match="auto"):
            engine.resolved(CallConfig(op.spec, Schedule(3, 2)))


@pytest.mark.parametrize("slow", [3, 6, 12])
def test_a_device_that_wakes_up_while_it_is_measured_does_not_decide_by_the_order(play, monkeypatch, slow):
    """Its first runs take three times as long, whichever candidates they are of."""
    _, _, device = play()
    device.times = {(STANDARD, "fma"): 80.0}
    timed, calls = device.timed, itertools.count()
    monkeypatch.setattr(device, "timed", lambda work: timed(work) * (3 if next(calls) < slow else 1))
    assert gru().prepare(3, 2, device="cuda:0").algo == STANDARD


def test_a_device_is_kept_busy_before_anything_counts(play, monkeypatch):
    _, _, device = play()
    clock = itertools.count()
    monkeypatch.setattr(algorithms.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(algorithms, "WAKE_S", 50)
    gru().prepare(3, 2, device="cuda:0")
    assert device.timings == 3 * (1 + ROUNDS) + 49 + 1 + 49 + 4 * ROUNDS, "again after what was compiled"
