"""`interop.jax.rnn` for CUDA on the stand-in: XLA's buffers on the CPU play device memory, and the shim plays cuDNN.

What it shows: which address goes where, which memory is asked of whom, on which stream, and what is refused. XLA's own
streams and devices are `tests/gpu`'s.
"""

import ctypes
import dataclasses
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.buffer_callback import Buffer

from pycudnnrnn.engines import DropoutState, use_engine
from pycudnnrnn.engines.cudnn.device import CudaDevice
from pycudnnrnn.engines.cudnn.dropout import seed_at
from pycudnnrnn.errors import ArgumentError, EngineError, LayoutError
from pycudnnrnn.interop import _jax_runners
from pycudnnrnn.interop.jax import dropout_states, rnn
from pycudnnrnn.testing.goldens import KINDS
from tests.helpers import kinds
from tests.helpers.layouts import ShuffledEngine
from tests.helpers.pairwise import pairwise
from tests.interop import jax_problems
from tests.interop.jax_problems import arguments_of, equal

STREAM = 0x7000


@pytest.fixture(autouse=True)
def _xla_buffers_are_device_memory(monkeypatch):
    def address(buffer):
        return np.asarray(buffer).ctypes.data if np.asarray(buffer).size else None

    monkeypatch.setattr(_jax_runners, "_address", address)
    monkeypatch.setattr(_jax_runners, "_stream", lambda _: STREAM)
    with jax.enable_x64(True):
        yield


def problem_of(kind="lstm", lengths=(5, 2, 4), **options):
    return kinds.problem_of(lengths=lengths, kind=KINDS[kind], **options)


def upstream_of(problem):
    return tuple(map(jnp.asarray, jax_problems.upstream_of(problem)))


def run(problem, way=jax.jit, **keywords):
    """Return the results and the gradients of a call for CUDA."""
    options = {"spec": problem.spec, "sequence_lengths": problem.lengths, "platform": "cuda"} | keywords

    @way
    def both(*arguments):
        results, pullback = jax.vjp(lambda *a: rnn(*a, **options), *arguments)
        return results, pullback(upstream_of(problem))

    results, gradients = both(*arguments_of(problem))
    return [*results, *gradients]


def expected_of(problem):
    results, gradients = jax_problems.expected_of(problem)
    return results + gradients


@pytest.mark.parametrize(
    ("kind", "lengths", "way"),
    pairwise(KINDS, [None, (5, 2, 4)], [lambda f: f, jax.jit]),
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_every_address_is_in_its_place(shim, kind, lengths, way):
    problem = problem_of(kind, lengths)
    equal(run(problem, way), expected_of(problem))


def test_work_goes_on_xlas_stream_and_leaves_the_current_one(shim, device):
    before = device.current
    problem = problem_of()
    traced = jax.jit(lambda *a: rnn(*a, spec=problem.spec, platform="cuda")).lower(*arguments_of(problem)).compile()
    shim.calls.clear()
    jax.block_until_ready(traced(*arguments_of(problem)))
    (streams,) = [arguments for name, arguments, _ in shim.calls if name == "cudnnSetStream"]
    assert streams[1] == STREAM
    assert device.current is before


SIZES = ("states_nbytes", "reserve_nbytes", "workspace_nbytes")


@pytest.mark.parametrize("what", ["layout", *SIZES])
def test_a_device_that_needs_more_than_the_one_that_was_asked_is_refused(shim, monkeypatch, what):
    batch = mock.Mock(**dict.fromkeys(SIZES, 0) | {what: 1 << 30})
    layout = ShuffledEngine(1).layout if what == "layout" else shim.native.layout
    other = mock.Mock(device="cuda:1", layout=layout, addressed=lambda *_, **__: batch)
    monkeypatch.setattr(Buffer, "__dlpack_device__", lambda _: (2, 1))
    monkeypatch.setattr(_jax_runners, "engine_for", lambda _: other)
    with pytest.raises(jax.errors.JaxRuntimeError, match="needs more memory than this was traced with, or another lay"):
        jax.block_until_ready(run(problem_of(dropout=0.5), dropout_position=1))


def near(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("time_major", [True, False])
def test_a_zero_length_never_reaches_the_library(shim, time_major):
    problem = problem_of(lengths=(5, 0, 3))
    expected = expected_of(problem)
    if not time_major:
        problem = dataclasses.replace(problem, x=problem.x.swapaxes(0, 1), dy=problem.dy.swapaxes(0, 1))
        expected = [a.swapaxes(0, 1) if i in {0, 4} else a for i, a in enumerate(expected)]  # output, and input's
    near(run(problem, time_major=time_major), expected)


@pytest.mark.parametrize("options", [{}, {"kind": "gru"}, {"dropout": 0.5}], ids=str)
def test_lengths_that_are_an_array_are_read_on_the_host_with_one_wait_for_each_pass(shim, device, options):
    problem = problem_of(lengths=None, **options)
    more = {"dropout_position": 2} if "dropout" in options else {}

    @jax.jit
    def both(lengths, *arguments):
        call = {"spec": problem.spec, "sequence_lengths": lengths, "platform": "cuda"} | more
        results, pullback = jax.vjp(lambda *a: rnn(*a, **call), *arguments)
        return [*results, *pullback(upstream_of(problem))]

    whole = problem
    for lengths in [(5, 2, 4), (5, 0, 3), (5, 5, 5), (1, 1, 1), (0, 0, 0), (5, 2, 4)]:
        device.synchronized.clear()
        inside = np.arange(5)[:, None, None] < np.array(lengths)[:, None]
        problem = dataclasses.replace(whole, x=np.where(inside, whole.x, np.nan))
        found = jax.block_until_ready(both(jnp.array(lengths, "int32"), *arguments_of(problem)))
        assert device.synchronized == [STREAM, STREAM]
        if "dropout" not in options:
            near(found, expected_of(dataclasses.replace(problem, lengths=[*lengths])))
        elif 0 not in lengths:
            near(found, run(dataclasses.replace(problem, lengths=[*lengths]), **more))
    assert both._cache_size() == 1
    with pytest.raises(
        (jax.errors.JaxRuntimeError, ValueError), match=r"Invalid sequence_lengths\[1\]: -1, expecting a length"
    ):
        jax.block_until_ready(both(jnp.array([5, -1, 0], "int32"), *arguments_of(problem)))


def test_device_memory_is_read_on_its_stream_after_the_work_there():
    memory, done = np.arange(4, dtype="i4"), []

    def copy(target, source, nbytes, kind, stream):
        ctypes.memmove(target, source, nbytes)
        done.append(("copy", kind, stream))

    runtime = mock.Mock(memcpyAsync=copy, memcpyDeviceToHost=2, streamSynchronize=lambda s: done.append(("wait", s)))
    device = mock.Mock(**{"xp.cuda.runtime": runtime})
    found = CudaDevice.read_at(device, memory.ctypes.data, memory.nbytes, STREAM)
    assert np.array_equal(found.view("i4"), memory)
    assert done == [("copy", 2, STREAM), ("wait", STREAM)]


def test_dropout_is_seeded_by_the_seed_and_the_position(shim):
    problem = problem_of(dropout=0.5, seed=3)
    outputs = []
    for position in (0, 4, 4):
        found = run(problem, dropout_position=position)
        outputs.append(found[0])
        problem.op.set_dropout_state(DropoutState("numpy", seed_at(problem.spec.seed, position), 0))
        equal(found, expected_of(problem))
    assert np.array_equal(outputs[1], outputs[2])
    assert not np.array_equal(outputs[0], outputs[1])


@pytest.mark.parametrize("way", [lambda f: f, jax.checkpoint], ids=["plain", "checkpoint"])
def test_states_go_from_call_to_call_as_an_ops_do(shim, way):
    problem = problem_of(dropout=0.5, seed=3)
    arguments, states = arguments_of(problem), dropout_states(problem.spec, platform="cuda")

    def both(states, _=None):
        def run(*a):
            options = {"spec": problem.spec, "sequence_lengths": problem.lengths, "platform": "cuda"}
            *results, advanced = rnn(*a, dropout_states=states, **options)
            return tuple(results), advanced

        results, pullback, advanced = jax.vjp(way(run), *arguments, has_aux=True)
        return advanced, (*results, *pullback(upstream_of(problem)))

    before = np.asarray(states).copy()
    equal(both(states)[1], both(states)[1])
    assert np.array_equal(states, before), "a call is pure"
    _, looped = jax.jit(lambda s: jax.lax.scan(both, s, length=3))(states)
    problem.op.set_dropout_state(DropoutState("numpy", problem.spec.seed, 0))
    for k in range(3):
        near([array[k] for array in looped], expected_of(problem))


def test_what_cuda_cannot_have_is_refused_while_it_is_traced(shim, monkeypatch):
    problem = problem_of()
    arguments = arguments_of(problem)
    with pytest.raises(ArgumentError, match="Invalid spec algo: 'auto', expecting one algorithm: 'auto' is found by"):
        rnn(*arguments, spec=problem.spec.replace(algo="auto"), platform="cuda")
    drops = problem.spec.replace(dropout=0.5)
    text = (
        "Invalid dropout_position: a traced value, expecting an integer known while tracing, .* dropout_states may be"
    )
    with pytest.raises(ArgumentError, match=text):
        jax.jit(lambda k: rnn(*arguments, spec=drops, dropout_position=k, platform="cuda"))(1)
    monkeypatch.setattr("pycudnnrnn.interop.jax.TIME_MAX", 4)
    with pytest.raises(ArgumentError, match="Invalid T: 5, expecting at most 4 steps on CUDA"):
        rnn(*arguments, spec=problem.spec, platform="cuda")
    monkeypatch.setattr("pycudnnrnn.interop.jax.TIME_MAX", 5)
    rnn(*arguments, spec=problem.spec, platform="cuda")


def test_a_buffer_laid_out_by_arithmetic_is_never_misread(play):
    play(engine=ShuffledEngine(3))
    problem = problem_of()
    with pytest.raises(LayoutError, match="move_params"):
        run(problem)
    with use_engine(ShuffledEngine(3)):
        moved = problem_of()
        expected = expected_of(moved)
    equal(run(moved), expected)


def test_a_trace_for_cuda_that_runs_elsewhere_says_so(shim, monkeypatch):
    monkeypatch.undo()
    problem = problem_of(dtype="float32")
    with pytest.raises(jax.errors.JaxRuntimeError, match=f"{EngineError.__name__}: this was traced for CUDA"):
        jax.block_until_ready(rnn(*arguments_of(problem), spec=problem.spec, platform="cuda"))
