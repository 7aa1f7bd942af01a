"""`interop.jax.rnn` against JAX's own LSTM and the op, and what it refuses. Read this file first of JAX's."""

import itertools
import re
import subprocess
import sys
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import rnn as jax_rnn

from pycudnnrnn import convert, ops
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, EngineError, MissingDependencyError
from pycudnnrnn.interop.jax import rnn
from pycudnnrnn.testing.strategies import make_problem
from tests.helpers.pairwise import pairwise
from tests.interop.jax_problems import KINDS, RAGGED, arguments_of, equal, expected_of, loss_of, problem_of, upstream_of


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


WAYS = {
    "eager": lambda f: f,
    "jit": jax.jit,
    "checkpoint": jax.checkpoint,
    "jit of checkpoint": lambda f: jax.jit(jax.checkpoint(f)),
}


@pytest.mark.parametrize(("way", "time_major", "lengths", "kind"), pairwise(WAYS, [True, False], [None, RAGGED], KINDS))
def test_results_and_every_gradient_are_the_ops(kind, lengths, time_major, way):
    problem = problem_of(kind, lengths)
    results, gradients = expected_of(problem)
    params, x, *states = arguments_of(problem)
    dy, *rest = upstream_of(problem)
    if not time_major:
        x, dy = x.swapaxes(0, 1), dy.swapaxes(0, 1)
        results[0], gradients[1] = results[0].swapaxes(0, 1), gradients[1].swapaxes(0, 1)

    def run(*arguments):
        return rnn(*arguments, spec=problem.spec, sequence_lengths=lengths, time_major=time_major)

    def loss(*arguments):
        return sum((d * a).sum() for d, a in zip([dy, *rest], run(*arguments), strict=True))

    equal(WAYS[way](run)(params, x, *states), results)
    every = tuple(range(2 + len(states)))
    _, found = WAYS[way](jax.value_and_grad(loss, argnums=every))(params, x, *states)
    equal(found, gradients)


BATCHES = ((False, True), (False, True), ((1, 1, 5, 1), (3, 6, 4, 2)))
OFTEN = pairwise(*BATCHES)


@pytest.mark.parametrize(
    ("ragged", "bidirectional", "sizes"),
    [pytest.param(*row, marks=() if row in OFTEN else pytest.mark.long) for row in itertools.product(*BATCHES)],
    ids=str,
)
def test_what_jax_promises_of_its_lstm_holds_for_ours(ragged, bidirectional, sizes):
    """Values, final states and every gradient of `jax.experimental.rnn`, batch first, whatever the padding holds."""
    B, T, units, layers = sizes
    direction = "bidirectional" if bidirectional else "unidirectional"
    op = ops.CudnnLSTM(layers, units, 4, direction=direction, dtype="float64")
    lengths = np.random.default_rng(3).integers(1, T, B, endpoint=True).tolist() if ragged else [T] * B
    problem = make_problem(op, T, B, None, seed=11)
    params, x, h, c = arguments_of(problem)
    x, dy = x.swapaxes(0, 1), jnp.asarray(problem.dy).swapaxes(0, 1)
    inside = (jnp.arange(T) < jnp.array(lengths)[:, None])[..., None]
    x = jnp.where(inside, x, 1e6)

    def total(results):
        y, hy, cy = results
        return (jnp.where(inside, dy * y, 0)).sum() + (problem.dhy * hy).sum() + (problem.dcy * cy).sum(), results

    def ours(params, x, h, c):
        return total(rnn(params, x, h, c, spec=op, sequence_lengths=lengths, time_major=False))

    def theirs(weights, x, h, c):
        parts = jax_rnn.unpack_lstm_weights(weights, 4, units, layers, bidirectional)
        given = (jnp.array(lengths, "int32"), 4, units, layers, 0.0, bidirectional)
        return total(jax_rnn.lstm_ref(x, h, c, *parts, *given))

    def flat(params):
        canonical = convert.Canonical(op.spec, *op.params_to_canonical(np.asarray(params)))
        return convert.jax_rnn.from_canonical(canonical)["weights"]

    def both(function, *arguments):
        return jax.jit(jax.value_and_grad(function, argnums=(0, 1, 2, 3), has_aux=True))(*arguments)

    (_, (y, *states)), (d_params, dx, *d_states) = both(ours, params, x, h, c)
    (_, (their_y, *their_states)), (d_weights, their_dx, *their_d_states) = both(
        theirs, jnp.asarray(flat(params)), x, h, c
    )
    found = [jnp.where(inside, y, 0), flat(d_params), dx, *states, *d_states]
    expected = [jnp.where(inside, their_y, 0), d_weights, their_dx, *their_states, *their_d_states]
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-11)
    assert not jnp.where(inside, 0, y).any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_dtype_goes_through(dtype):
    problem = problem_of(dtype=dtype)
    results, gradients = expected_of(problem)
    options = {"spec": problem.spec, "sequence_lengths": RAGGED}
    found, pullback = jax.vjp(lambda *a: rnn(*a, **options), *arguments_of(problem))
    equal(found, results)
    equal(pullback(tuple(jnp.asarray(a) for a in problem.upstream())), gradients)


def test_states_may_be_left_out_and_an_op_stands_for_its_spec():
    problem = problem_of()
    params, x, *_ = arguments_of(problem)
    expected = problem.op(problem.x, None, None, problem.params)
    equal(rnn(params, x, spec=problem.op), expected)
    equal(rnn(problem.params, problem.x, None, jnp.asarray(problem.cx), spec=problem.spec),
          problem.op(problem.x, None, problem.cx, problem.params))  # fmt: skip


def test_threads_may_run_traces_of_it_at_once():
    problem = problem_of(dropout=0.5)
    arguments = arguments_of(problem)
    loss = jax.jit(lambda k, *a: loss_of(problem, dropout_position=k)(*a))
    expected, wrong = [float(loss(k, *arguments)) for k in range(4)], []

    def work():
        with jax.enable_x64(True):
            wrong.extend(k for k in list(range(4)) * 5 if float(loss(k, *arguments)) != expected[k])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_large_arrays_do_not_lock_the_callback():
    op = ops.CudnnGRU(1, 128, 96)
    params, x = jnp.asarray(op.init_params()), jnp.ones((60, 64, 96), "f4")
    gradient = jax.jit(jax.grad(lambda p: rnn(p, x * 2, spec=op)[0].sum()))
    for _ in range(3):
        gradient(params).block_until_ready()


# --- what is refused, while it is traced ------------------------------------------------------------------------------

PROBLEM = make_problem(ops.CudnnLSTM(2, 6, 4, direction="bidirectional", dtype="float64"), 5, 3, None, seed=7)
SPEC, X, H, C, P = PROBLEM.spec, PROBLEM.x, PROBLEM.hx, PROBLEM.cx, PROBLEM.params
GRU = ops.CudnnGRU(2, 6, 4, direction="bidirectional", dtype="float64")

REFUSED = {
    "dtype": ((P, X.astype("f4")), {}, "Invalid input_data dtype: float32, expecting float64"),
    "params size": ((P[:-1], X), {}, "Invalid params shape: "),
    "input size": ((P, X[..., :3]), {}, "Invalid input_data shape: (5, 3, 3), expecting [T, B, input_size]"),
    "axes": ((P, X[0]), {}, "Invalid input_data shape: (3, 4)"),
    "h": ((P, X, H[:1], C), {}, "Invalid input_h shape: (1, 3, 6), expecting (4, 3, 6)"),
    "c": ((P, X, H, C[:, :1]), {}, "Invalid input_c shape: "),
    "c of a gru": ((GRU.init_params(), X, H, C), {"spec": GRU}, "Invalid input_c: an array, expecting None"),
    "a list": ((P, X.tolist()), {}, "Invalid input_data: <class 'list'>, expecting a JAX or NumPy array"),
    "no spec": ((P, X), {"spec": "lstm"}, "Invalid spec: <class 'str'>, expecting an RNNSpec or an op"),
    "lengths": ((P, X), {"sequence_lengths": [6, 1, 1]}, "Invalid sequence_lengths[0]: 6"),
    "flag": ((P, X), {"is_training": 1}, "Invalid is_training: 1, expecting a Python bool"),
    "no position": (
        (P, X), {"spec": SPEC.replace(dropout=0.5)}, "Invalid dropout_position: None, expecting an integer that differs"
    ),
    "position": (
        (P, X), {"spec": SPEC.replace(dropout=0.5), "dropout_position": 0.5}, "Invalid dropout_position: 0.5"
    ),
    "array position": ((P, X), {"dropout_position": np.ones(2, int)}, "Invalid dropout_position: int64 of shape (2,)"),
    "large position": ((P, X), {"dropout_position": 2**70}, f"Invalid dropout_position: {2**70}, expecting an integer"),
    "negative position": ((P, X), {"dropout_position": -1}, "Invalid dropout_position: -1, expecting an integer"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_call_is_refused_when_it_is_traced(case):
    arguments, keywords, text = REFUSED[case]
    keywords = {"spec": SPEC} | keywords
    with pytest.raises(ArgumentError, match=re.escape(text)):
        rnn(*arguments, **keywords)
    if case != "a list":
        with pytest.raises(ArgumentError, match=re.escape(text)):
            jax.eval_shape(lambda *a: rnn(*a, **keywords), *arguments)


def test_lengths_cannot_be_traced():
    with pytest.raises(ArgumentTypeError, match="Invalid sequence_lengths: "):
        jax.jit(lambda n: rnn(P, X, spec=SPEC, sequence_lengths=n))(jnp.array([5, 1, 1]))


def test_float64_without_x64_says_which_switch():
    with jax.enable_x64(False), pytest.raises(ArgumentError, match="jax_enable_x64 is off"):
        rnn(P, X, spec=SPEC)


DERIVATIVES = {
    "second": lambda f: jax.grad(lambda p: jax.grad(lambda p: f(p).sum())(p).sum()),
    "second in jit": lambda f: jax.jit(jax.grad(lambda p: jax.grad(lambda p: f(p).sum())(p).sum())),
    "second of jit, a hessian": lambda f: jax.hessian(jax.jit(lambda p: f(p).sum())),
    "second, forward over reverse": lambda f: lambda p: jax.jvp(jax.grad(lambda p: f(p).sum()), (p,), (p,)),
    "forward-mode": lambda f: lambda p: jax.block_until_ready(jax.jvp(f, (p,), (p,))),
    "forward-mode of jit": lambda f: lambda p: jax.block_until_ready(jax.jvp(jax.jit(f), (p,), (p,))),
    "forward-mode of checkpoint": lambda f: jax.jit(jax.jacfwd(jax.checkpoint(f))),
}


@pytest.mark.parametrize("way", DERIVATIVES)
def test_derivatives_that_no_engine_has_are_refused_by_name(way):
    text = "second derivatives of lstm" if "second" in way else r"forward-mode derivatives of lstm .*\(jvp, jacfwd\)"
    with pytest.raises(EngineError, match=text):
        DERIVATIVES[way](lambda p: rnn(p, X, spec=SPEC)[0])(jnp.asarray(P))


@pytest.mark.parametrize("kind", [int, np.int64, np.array])
def test_a_position_that_jax_would_cut_off_is_refused(kind):
    op = ops.CudnnGRU(2, 6, 4, dropout=0.5)
    with jax.enable_x64(False), pytest.raises(ArgumentError, match=f"Invalid dropout_position: {2**40}, expecting"):
        rnn(op.init_params(), X.astype("f4"), spec=op, dropout_position=kind(2**40))


def test_a_negative_position_that_is_traced_is_named_when_it_is_met():
    with pytest.raises(jax.errors.JaxRuntimeError, match="Invalid dropout_position: -1"):
        jax.jit(lambda k: rnn(P, X, spec=SPEC.replace(dropout=0.5), dropout_position=k))(-1)[0].block_until_ready()


def test_without_jax_the_module_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    for name in [name for name in sys.modules if name.startswith("pycudnnrnn.interop")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingDependencyError, match=r"pip install 'jax>=0.10', .* pip install '\.\[jax\]'"):
        __import__("pycudnnrnn.interop.jax")


@pytest.mark.long
def test_the_example_learns():
    path = Path(__file__).parents[2] / "examples/jax_training.py"
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False, cwd=path.parents[1])
    assert done.returncode == 0, done.stderr
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines()]
    assert len(losses) == 6
    assert losses[-1] < losses[0] / 2
