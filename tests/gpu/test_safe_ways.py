"""Where cuDNN's documents leave a way open: what it does there, and that what we pass it does not depend on it."""

import dataclasses
import threading

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.errors import ArgumentError, CudnnError
from pycudnnrnn.testing.goldens import KINDS
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu import asked
from tests.gpu.children import child, fill, once_on_the_shim, reached_cudnn, small_h, unaligned
from tests.gpu.numbers import run, run_numpy, worst
from tests.gpu.prepared import Prepared, run_all

LENGTHS = pytest.mark.parametrize("lengths", [None, asked.RAGGED], ids=["equal", "ragged"])


@LENGTHS
def test_null_states_are_zeros_in_all_three_calls(cuda, answer, lengths):
    off, same = asked.null_states(cuda, lengths)
    answer(f"NULL states equal zeros, {'ragged' if lengths else 'equal'}", {"off": off, "to the bit": same})
    assert max(off.values()) <= 1e-5


@pytest.mark.parametrize("kind", KINDS)
@LENGTHS
def test_batch_major_data_is_near_the_numpy_engines(cuda, answer, kind, lengths):
    """Each sequence by itself would do; all at once have the layout that is asked for."""
    op = KINDS[kind](2, 24, 17, direction="bidirectional")
    problem = asked.problem_of(op, lengths)
    turn = lambda array: np.ascontiguousarray(array.swapaxes(0, 1))  # noqa: E731
    turned = dataclasses.replace(problem, x=turn(problem.x), dy=turn(problem.dy))
    found = run(cuda, turned, time_major=False)
    found |= {name: turn(found[name]) for name in ("y", "dx")}
    ratio, errors = worst(found, run_numpy(problem), problem)
    answer(f"batch major {kind}, {'ragged' if lengths else 'equal'}", errors)
    assert ratio <= 1


@pytest.mark.parametrize("sizes", [(17, 24), (64, 64)], ids=str)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_data_may_begin_on_any_element(cuda, dtype, sizes):
    """They are copied: a kernel that reads vectors faults on such an address, which takes the device with it."""
    most = {"float16": 1.5e-2, "bfloat16": 0.1, "float32": 1e-5, "float64": 1e-12}[dtype]
    assert max(asked.unaligned(cuda, dtype, *sizes).values()) <= most


@pytest.mark.apart
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_what_cudnn_makes_of_data_that_begin_on_any_element(cuda, answer, dtype):
    """If it reads them right, nothing need be copied, nor refused in a prepared call."""
    once_on_the_shim(dtype == "float32")
    lines, code, err = child(unaligned, dtype)
    answer(
        f"cuDNN itself on data that are not aligned, {dtype}", {"lines": lines, "exit code": code, "err": err[-300:]}
    )
    assert reached_cudnn(lines, code, err), err


@pytest.mark.apart
def test_what_cudnn_leaves_behind_a_sequences_end(cuda, answer):
    """If it writes zeros to dx as it does to y, nothing need be filled before."""
    lines, code, err = child(fill)
    answer("cuDNN itself behind a sequence's end", {"lines": lines, "exit code": code, "stderr": err[-300:]})
    assert reached_cudnn(lines, code, err), err


def test_gradients_past_a_sequences_end_are_zero_in_the_callers_own_buffers(cuda):
    """A prepared call writes where the caller says; Prepared fills that with 77."""
    b = Prepared(cuda, lengths=list(asked.RAGGED))
    b.forward()
    b.backward_data()
    for array in (b.y, b.dx):
        assert not any(cuda.get(array)[n:, i].any() for i, n in enumerate(asked.RAGGED))


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_no_lengths_take_more_reserve_than_a_ragged_call_is_given(cuda, answer, layout):
    """What they change is not documented: a call is sized once, by equal lengths and by those hardly ragged."""
    found = asked.reserves(cuda, packed=layout == "packed")
    answer(f"reserve by lengths, {layout}", found)
    assert max(found.values()) == found["given"]


def test_threads_with_prepared_calls_of_their_own_share_descriptors(cuda):
    """Their plans are of one kind: cuDNN reads the same descriptors on several handles, streams and data at once."""
    count, rounds = (3, 2) if cuda.on_shim else (8, 100)
    expected, wrong = [step(cuda, Prepared(cuda, seed=seed)) for seed in range(count)], []
    together = threading.Barrier(count)

    def work(n):
        b = Prepared(cuda, seed=n)
        for _ in range(rounds):
            found = step(cuda, b, together.wait)
            wrong.extend(name for name in found if not np.array_equal(found[name], expected[n][name]))

    run_all(cuda, work, count, together)
    assert not wrong


def step(cuda, b, before_each=lambda: None):
    """Forward and backward; its results, for which it waits."""
    cuda.device.zero_at(cuda.device.address(b.d_params), b.d_params.nbytes, cuda.device.stream().ptr)
    for work in (b.forward, b.backward_data, b.backward_weights):
        before_each()
        work()
    return b.results(cuda)


@pytest.mark.apart
@pytest.mark.parametrize("units", [64, 128, 160, 256, 384])
@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_tanh"])
def test_the_small_h_algorithm_refuses_training_when_it_is_prepared_and_not_in_backward(cuda, answer, kind, units):
    """PyTorch takes it for fewer units in training than in inference: a forward that runs may have no backward."""
    op, steps = KINDS[kind](1, units, units, algo="persist_static_small_h"), {}
    problem = make_problem(op, 6, 4, None, seed=3)
    for training in (False, True):
        name = "training" if training else "inference"
        try:
            op.prepare(6, 4, is_training=training, device="cuda")
            steps[name] = "prepared"
        except (CudnnError, ArgumentError) as error:
            steps[name] = f"refused: {error}"[:150]
    if steps["training"] == "prepared":
        try:
            steps["ratio"] = worst(run(cuda, problem), run_numpy(problem), problem)[0]
        except CudnnError as error:
            steps["ran"] = f"{error.function}: {error.status}"
    answer(f"small H {kind} U={units}", steps)
    assert "ran" not in steps, "what cannot be trained is refused before a forward"
    assert steps.get("ratio", 0) <= 1


@pytest.mark.apart
@pytest.mark.parametrize("kind", ["lstm", "rnn_tanh"])
def test_what_cudnn_makes_of_training_by_the_small_h_algorithm(cuda, answer, kind):
    """Whether more units than PyTorch trains with it have a backward."""
    once_on_the_shim(kind == "lstm")
    lines, code, err = child(small_h, kind)
    answer(f"cuDNN itself training small H, {kind}", {"lines": lines, "exit code": code, "stderr": err[-300:]})
    assert reached_cudnn(lines, code, err), err


@pytest.mark.parametrize("lengths", [None, [6, 2, 4, 1]], ids=["equal", "ragged"])
def test_an_accumulated_gradient_is_what_was_there_and_the_new_one(cuda, answer, lengths):
    """ADD is the mode that is used; what comes on zeros, and on what was there, is the same gradient."""
    op = ops.CudnnLSTM(2, 12, 7, dtype="float64", direction="bidirectional")
    b = Prepared(cuda, op, lengths)
    b.step()
    alone = cuda.get(b.d_params).copy()
    before = np.random.default_rng(0).normal(size=alone.shape)
    target = cuda.put(before)
    b.plan.backward_weights(b.x, b.hx, b.y, target, b.reserve, accumulate=True)
    error = float(np.abs(cuda.get(target) - before - alone).max())
    answer(f"ADD on other numbers, {'ragged' if lengths else 'equal'}: largest error", error)
    assert error <= 1e-12 * max(1.0, float(np.abs(alone).max()))
