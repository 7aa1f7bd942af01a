"""`algo="auto"`: what may be chosen, and that the fastest of it is."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycudnnrnn import ops
from pycudnnrnn.engines.cudnn.algorithms import ALGORITHMS, ROUNDS, STRICTNESS, candidates
from pycudnnrnn.errors import EngineError
from pycudnnrnn.passes import CallConfig
from pycudnnrnn.schedule import Schedule
from pycudnnrnn.spec import MathType
from pycudnnrnn.testing.strategies import make_problem, sequence_lengths, specs
from tests.helpers.examples import examples
from tests.helpers.layouts import ShuffledEngine
from tests.stand_in.host_device import host
from tests.stand_in.problem import on_device, run_on

STANDARD, STATIC, DYNAMIC, SMALL_H = "standard", "persist_static", "persist_dynamic", "persist_static_small_h"
NOT_SUPPORTED, EXECUTION_FAILED = 3000, 5000


def gru(**keywords):
    return ops.CudnnGRU(2, 3, 4, algo="auto", **keywords)


@pytest.mark.parametrize("fastest", [STANDARD, STATIC, DYNAMIC, SMALL_H])
@pytest.mark.parametrize("training", [False, True])
def test_the_fastest_is_chosen_and_the_numbers_stay(shim, device, fastest, training):
    device.times = {(fastest, "fma"): 700.0}
    op = gru(dtype="float32", math_type="default")
    problem = make_problem(op, 3, 2, None, seed=1)
    plan = op.prepare(3, 2, is_training=training, device="cuda:0")
    assert (plan.algo, plan.math_type) == (fastest, "fma")
    shim.ran.clear()
    results = run_on(device, problem)
    assert all(np.array_equal(value, results[name]) for name, value in problem.results().items())
    if training:
        assert shim.ran == [(name, fastest, "fma") for name in ("forward", "backward_data", "backward_weights")]
    (choice, *_) = ops.algorithm_choices()
    assert (choice.algo, choice.kind.T, choice.kind.training) == (fastest, 3, training)
    assert {trial.time_us for trial in choice.trials} == {700.0, 1000.0}


@examples(300)
@given(specs(dtypes=["float16", "float32", "float64"]), st.sampled_from(list(MathType)), st.data())
def test_candidates_are_legal_and_never_less_precise_than_asked_and_16_bits_are_as_asked(spec, math_type, data):
    spec = spec.replace(math_type=math_type, algo="auto")
    lengths = data.draw(sequence_lengths(4, 3, least=1))
    schedule = Schedule(4, 3, None if lengths is None or set(lengths) == {4} else tuple(lengths))
    batches = list(candidates(CallConfig(spec, schedule)))
    pairs = [(batch.spec.algo, batch.spec.math_type) for batch in batches]
    assert pairs[0] == (STANDARD, math_type)
    assert len(set(pairs)) == len(pairs)
    asked = STRICTNESS.index(math_type)
    allowed = STRICTNESS[asked if spec.dtype.itemsize == 2 else 0 : asked + 1]
    assert {math for algo, math in pairs if algo == STANDARD} == set(allowed) >= {math for _, math in pairs}
    assert {batch.spec.replace(algo="auto", math_type=math_type) for batch in batches} == {spec}
    assert {batch._replace(spec=spec) for batch in batches} == {CallConfig(spec, schedule)}
    only_standard = spec.num_proj or spec.bias_mode != "double" or schedule.lengths is not None
    expected = {STANDARD} if only_standard else {STANDARD, DYNAMIC} if spec.dtype == "float64" else set(ALGORITHMS)
    assert {algo for algo, _ in pairs} == expected


@pytest.mark.parametrize("where", ["layout", "cudnnGetRNNTempSpaceSizes", "cudnnRNNForward", "cudnnRNNBackwardData_v8"])
@pytest.mark.parametrize("status", [NOT_SUPPORTED, EXECUTION_FAILED])
def test_a_candidate_that_fails_or_has_another_layout_is_left_out_however_fast(shim, device, where, status):
    name = {NOT_SUPPORTED: "CUDNN_STATUS_NOT_SUPPORTED", EXECUTION_FAILED: "CUDNN_STATUS_EXECUTION_FAILED"}[status]
    reason = "another layout" if where == "layout" else f"{where}: {name}"
    shim.layouts = dict.fromkeys((SMALL_H, DYNAMIC) if where == "layout" else (), ShuffledEngine(3))
    shim.refused = {(where, SMALL_H): status, (where, DYNAMIC): status}
    device.times = {(SMALL_H, "fma"): 601.0, (DYNAMIC, "fma"): 602.0, (STATIC, "fma"): 603.0}
    assert gru().prepare(3, 2, is_training=True, device="cuda:0").algo == STATIC
    (choice,) = ops.algorithm_choices()
    reasons = {trial.algo: trial.reason for trial in choice.trials}
    assert reasons == {STANDARD: "", STATIC: "", SMALL_H: reason, DYNAMIC: reason}
    assert {trial.algo for trial in choice.trials if trial.time_us is None} == {SMALL_H, DYNAMIC}
    shim.complaints.clear()


def no_memory_after(*times):
    yield from times
    raise MemoryError


def test_the_median_decides_and_who_fails_while_it_is_timed_is_out(device):
    rounds = {STANDARD: [1.0, *[900.0] * 4], STATIC: [9000.0, *[700.0] * 4]}
    device.times = {(algo, "fma"): itertools.cycle(times) for algo, times in rounds.items()}
    device.times[SMALL_H, "fma"] = no_memory_after(1.0, 1.0)
    assert gru().prepare(3, 2, device="cuda:0").algo == STATIC
    (choice,) = ops.algorithm_choices()
    assert [trial.time_us for trial in choice.trials] == [900, None, 700, 1000]


def test_no_candidate_is_compiled_beside_one_that_takes_less_than_500_us(device):
    device.times = {(STANDARD, "fma"): 499.0}
    assert gru().prepare(3, 2, device="cuda:0").algo == STANDARD
    (choice,) = ops.algorithm_choices()
    reasons = {trial.algo: trial.reason for trial in choice.trials}
    assert reasons == {STANDARD: "", STATIC: "", SMALL_H: "", DYNAMIC: "not compiled: another takes 499 us"}


def test_when_every_candidate_fails_the_error_says_how_each_did(shim, device):
    shim.refused = {("cudnnRNNForward", algo): EXECUTION_FAILED for algo in map(str, ALGORITHMS[1:])}
    device.times = {(STANDARD, "fma"): no_memory_after()}
    with pytest.raises(EngineError, match="algo='auto': no algorithm runs") as caught:
        gru().prepare(3, 2, device="cuda:0")
    assert all(f"{algo} with fma: cudnnRNNForward: CUDNN_STATUS_EXECUTION_FAILED" in str(caught.value)
               for algo in ALGORITHMS[1:])  # fmt: skip
    shim.complaints.clear()
    assert ops.algorithm_choices() == ()


def test_forward_and_backward_are_timed_together_on_the_callers_arrays_once_a_shape(shim, device):
    op = gru()
    problem = make_problem(op, 3, 2, None, seed=1)
    arrays = on_device(device, problem)
    before = {name: host(array).copy() for name, array in arrays.items()}
    op.forward(arrays["x"], arrays["hx"], arrays["params"])
    timings = 4 * ROUNDS
    assert device.timings == timings
    assert all(np.array_equal(host(arrays[name]), old) for name, old in before.items())
    xs = {arguments[5] for name, arguments, _ in shim.calls if name == "cudnnRNNForward"}
    assert xs == {arrays["x"].data.ptr}, "measured on the caller's data"
    for every in (None, 2):
        op.forward(arrays["x"], arrays["hx"], arrays["params"], checkpoint_every=every)
    assert device.timings == timings, "chunks run the standard algorithm"
    op.forward(arrays["x"], arrays["hx"], arrays["params"], is_training=False)
    assert device.timings == 2 * timings
    for lengths in ([3, 1], [1, 3]):
        op.prepare(3, 2, sequence_lengths=lengths, device="cuda:0")
    assert device.timings == 2 * timings + ROUNDS, "ragged lengths are one kind"


def test_measuring_does_not_move_the_models_dropout(device):
    auto, plain = gru(dropout=0.5, seed=3, dtype="float64"), ops.CudnnGRU(2, 3, 4, dropout=0.5, seed=3, dtype="float64")
    for _ in range(2):
        results, expected = (run_on(device, make_problem(op, 3, 2, None, seed=1)) for op in (auto, plain))
        assert all(np.array_equal(value, expected[name]) for name, value in results.items())
    assert auto.dropout_state("cuda:0").position == 2
