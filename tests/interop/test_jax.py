"""`interop.jax.rnn` against JAX's own LSTM and the op, and what it refuses. Read this file first of JAX's."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.errors import ArgumentError, EngineError
from pycudnnrnn.interop.jax import rnn
from pycudnnrnn.testing.strategies import make_problem
from tests.helpers.kinds import DTYPES, problem_of
from tests.helpers.pairwise import pairwise
from tests.helpers.together import together
from tests.interop.jax_problems import RAGGED, arguments_of, equal, expected_of, loss_of, upstream_of

pytestmark = pytest.mark.usefixtures("float64")

WAYS = {
    "eager": lambda f: f,
    "jit": jax.jit,
    "checkpoint": jax.checkpoint,
    "jit of checkpoint": lambda f: jax.jit(jax.checkpoint(f)),
}
KINDS = [ops.CudnnLSTM, ops.CudnnGRU, ops.CudnnRNNTanh, ops.CudnnRNNRelu]


@pytest.mark.parametrize(
    ("way", "kind", "dtype", "time_major", "lengths", "platform"),
    pairwise(WAYS, KINDS, DTYPES, [True, False], [None, RAGGED], ["cpu", "host"]),
)
def test_results_and_every_gradient_are_the_ops(kind, lengths, time_major, way, dtype, platform):
    """To the bit, in XLA's own buffers and on copies."""
    problem = problem_of(dtype, lengths, kind)
    results, gradients = expected_of(problem)
    params, x, *states = arguments_of(problem)
    upstream = [jnp.asarray(d) for d in upstream_of(problem)]
    if not time_major:
        x, upstream[0], results[0], gradients[1] = (
            a.swapaxes(0, 1) for a in (x, upstream[0], results[0], gradients[1])
        )
    options = {"spec": problem.spec, "sequence_lengths": lengths, "time_major": time_major, "platform": platform}

    def run(*arguments):
        return rnn(*arguments, **options)

    def gradient(*arguments):
        return jax.vjp(WAYS[way](run), *arguments)[1](tuple(upstream))

    equal(WAYS[way](run)(params, x, *states), results)
    equal((jax.jit(gradient) if "jit" in way else gradient)(params, x, *states), gradients)


def test_states_may_be_left_out_and_an_op_stands_for_its_spec():
    problem = problem_of()
    params, x, *_ = arguments_of(problem)
    expected = problem.op(problem.x, None, None, problem.params)
    equal(rnn(params, x, spec=problem.op), expected)
    equal(rnn(problem.params, problem.x, None, jnp.asarray(problem.cx), spec=problem.spec),
          problem.op(problem.x, None, problem.cx, problem.params))  # fmt: skip


def test_threads_may_run_traces_of_it_at_once():
    problem = problem_of(dropout=0.5)
    loss = jax.jit(lambda k, *a: loss_of(problem, dropout_position=k)(*a))
    expected = [float(loss(k, *arguments_of(problem))) for k in range(4)]
    found = together(4, lambda _: [float(loss(k, *arguments_of(problem))) for k in list(range(4)) * 5])
    assert found == [expected * 5] * 4


# --- what is refused, while it is traced ------------------------------------------------------------------------------

PROBLEM = make_problem(ops.CudnnLSTM(2, 6, 4, direction="bidirectional", dtype="float64"), 5, 3, None, seed=7)
SPEC, X, H, C, P = PROBLEM.spec, PROBLEM.x, PROBLEM.hx, PROBLEM.cx, PROBLEM.params
GRU = ops.CudnnGRU(2, 6, 4, direction="bidirectional", dtype="float64")
DROPPING, KEY = SPEC.replace(dropout=0.5), jax.random.key(7)

REFUSED = {
    "dtype": ((P, X.astype("f4")), {}, "Invalid input_data dtype: float32, expecting float64"),
    "params size": ((P[:-1], X), {}, "Invalid params shape: "),
    "input size": ((P, X[..., :3]), {}, "Invalid input_data shape: (5, 3, 3), expecting [T, B, input_size]"),
    "h": ((P, X, H[:1], C), {}, "Invalid input_h shape: (1, 3, 6), expecting (4, 3, 6)"),
    "c of a gru": ((GRU.init_params(), X, H, C), {"spec": GRU}, "Invalid input_c: an array, expecting None"),
    "no spec": ((P, X), {"spec": "lstm"}, "Invalid spec: <class 'str'>, expecting an RNNSpec or an op"),
    "lengths": ((P, X), {"sequence_lengths": [6, 1, 1]}, "Invalid sequence_lengths[0]: 6"),
    "platform": ((P, X), {"platform": "gpu"}, "Invalid platform: 'gpu', expecting one of 'cpu', 'cuda', 'host', of"),
    "no position": ((P, X), {"spec": DROPPING}, "Invalid dropout_position: None, expecting an integer that differs"),
    "position": ((P, X), {"spec": DROPPING, "dropout_position": 0.5}, "Invalid dropout_position: 0.5"),
    "key as position": ((P, X), {"spec": DROPPING, "dropout_position": KEY}, "Invalid dropout_position: key<fry> of"),
    "key as states": ((P, X), {"spec": DROPPING, "dropout_states": KEY}, "Invalid dropout_states: key<fry> of shape"),
    "negative position": ((P, X), {"dropout_position": -1}, "Invalid dropout_position: -1, expecting an integer"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_call_is_refused_when_it_is_traced(case):
    arguments, keywords, text = REFUSED[case]
    keywords = {"spec": SPEC} | keywords
    with pytest.raises(ArgumentError, match=re.escape(text)):
        rnn(*arguments, **keywords)
    with pytest.raises(ArgumentError, match=re.escape(text)):
        jax.eval_shape(lambda *a: rnn(*a, **keywords), *arguments)


def test_a_negative_position_that_is_traced_is_named_when_it_is_met():
    with pytest.raises(jax.errors.JaxRuntimeError, match="Invalid dropout_position: -1"):
        jax.jit(lambda k: rnn(P, X, spec=DROPPING, dropout_position=k))(-1)[0].block_until_ready()


def test_without_x64_neither_float64_nor_a_position_is_cut_off():
    op = ops.CudnnGRU(2, 6, 4, dropout=0.5)
    with jax.enable_x64(False):
        with pytest.raises(ArgumentError, match="jax_enable_x64 is off"):
            rnn(P, X, spec=SPEC)
        for kind in (int, np.int64, np.array):
            with pytest.raises(ArgumentError, match=f"Invalid dropout_position: {2**40}, expecting"):
                rnn(op.init_params(), X.astype("f4"), spec=op, dropout_position=kind(2**40))


DERIVATIVES = {
    "second": lambda f: jax.grad(lambda p: jax.grad(lambda p: f(p).sum())(p).sum()),
    "second, forward over reverse": lambda f: lambda p: jax.jvp(jax.grad(lambda p: f(p).sum()), (p,), (p,)),
    "forward-mode of checkpoint": lambda f: jax.jit(jax.jacfwd(jax.checkpoint(f))),
}


@pytest.mark.parametrize("way", DERIVATIVES)
def test_derivatives_that_no_engine_has_are_refused_by_name(way):
    text = "second derivatives of lstm" if "second" in way else r"forward-mode derivatives of lstm .*\(jvp, jacfwd\)"
    with pytest.raises(EngineError, match=text):
        DERIVATIVES[way](lambda p: rnn(p, X, spec=SPEC)[0])(jnp.asarray(P))
