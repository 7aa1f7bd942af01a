"""Outputs, states and every gradient are torch's in float64; what has no gradient says so. Read this file first.

Oracle: torch's own modules on the CPU. Dropout has other masks than torch's, so its gradient is compared with
differences of the loss.
"""

import copy
import dataclasses

import pytest
from hypothesis import given, target
from hypothesis import strategies as st

from tests.helpers.examples import examples
from tests.helpers.oracles import need

need("torch")
import torch  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from pycudnnrnn.errors import EngineError  # noqa: E402
from tests.interop.pairs import TORCHS_WARNINGS, calls, gradients, make_call, make_pair, worst  # noqa: E402

TOLERANCE = 1e-10

pytestmark = TORCHS_WARNINGS


@examples(600)
@given(calls(), st.booleans())
def test_outputs_states_and_every_gradient_equal_torch(drawn, evaluates):
    """In evaluation with dropout, which acts in neither, gradients are there too."""
    (theirs, mine), call = drawn
    if evaluates:
        for module in (theirs.eval(), mine.eval()):
            module.dropout = 0.5
    error, where = worst(call(mine), call(theirs))
    target(error)
    assert error <= TOLERANCE, where


def test_states_of_packed_sequences_are_in_the_callers_order():
    """The order of these lengths is not its own inverse."""
    theirs, mine = make_pair("GRU", 3, 5, 2, bidirectional=True)
    call = dataclasses.replace(make_call(theirs, 5, 4, "packed unsorted"), lengths=[2, 5, 3, 4])
    assert worst(call(mine), call(theirs))[0] <= TOLERANCE


def test_an_output_that_is_not_used_counts_as_zero():
    theirs, mine = make_pair("LSTM", 3, 5, 2)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    for pick in (lambda y, h, c: y[-1], lambda y, h, c: h[0], lambda y, h, c: c[1]):
        for module in (theirs, mine):
            module.zero_grad()
            y, (h, c) = module(x)
            pick(y, h, c).square().sum().backward()
        assert worst(gradients(mine), gradients(theirs))[0] <= TOLERANCE


def test_a_graph_that_is_kept_gives_the_same_gradients_again():
    _, mine = make_pair("GRU", 3, 5, 2)
    loss = mine(torch.randn(4, 2, 3, dtype=torch.float64))[0].square().sum()
    loss.backward(retain_graph=True)
    first = mine.params.grad.clone()
    mine.zero_grad()
    loss.backward()
    assert torch.equal(mine.params.grad, first)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_only_what_requires_a_gradient_gets_one():
    theirs, mine = (module.requires_grad_(False) for module in make_pair("LSTM", 3, 5, 2))
    x, h, c = (torch.randn(shape, dtype=torch.float64) for shape in ((4, 2, 3), (2, 2, 5), (2, 2, 5)))
    for wanted in (x, h, c):
        wanted.requires_grad_()
        found = [torch.autograd.grad(module(x, (h, c))[0].square().sum(), wanted)[0] for module in (theirs, mine)]
        assert (found[1] - found[0]).abs().max() <= TOLERANCE
        mine(x, (h, c))[0].sum().backward()
        assert mine.params.grad is None
        wanted.requires_grad_(False)


def kept_nbytes(function):
    """Return the bytes that autograd keeps of a call, and its result."""
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.nbytes) or t, lambda t: t):
        result = function()
    return sum(kept), result


def test_nothing_is_kept_and_no_reserve_is_made_where_no_gradient_will_be_asked_for(engine_calls):
    _, mine = make_pair("LSTM", 3, 5, 2)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    nbytes, expected = kept_nbytes(lambda: mine(x)[0])
    assert nbytes > mine.params.nbytes + 2 * x.nbytes
    engine_calls.clear()
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            nbytes, y = kept_nbytes(lambda: mine(x)[0])
        assert nbytes == 0
        assert torch.equal(y, expected)
    mine.requires_grad_(False)
    assert kept_nbytes(lambda: mine(x))[0] == 0
    assert [config.keep_reserve for _, config, _ in engine_calls] == [False] * 3


def twice(run, x):
    """Differentiate once, so that it can be differentiated again, and then again."""
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(run(leaf)[0].sum(), leaf, create_graph=True)
    gradient.sum().backward()


REFUSED = {
    "double backward": (twice, EngineError, "double backward"),
    "jvp": (lambda run, x: torch.func.jvp(lambda z: run(z)[0], (x,), (x,)), NotImplementedError, "jvp"),
    "vmap": (lambda run, x: torch.func.vmap(run)(x[None]), EngineError, "vmap: .* batch axis"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_gradient_is_refused_by_name_and_never_zero(what):
    _, mine = make_pair("GRU", 3, 5)
    call, error, text = REFUSED[what]
    with pytest.raises(error, match=text):
        call(mine, torch.randn(4, 2, 3, dtype=torch.float64))


def test_functional_call_and_func_grad_take_other_weights():
    theirs, mine = make_pair("GRU", 3, 5, 2)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    before = mine.params.detach().clone()

    def loss(params):
        return torch.func.functional_call(mine, {"params": params}, (x,))[0].square().sum()

    theirs.load_state_dict({name: 2 * weight for name, weight in theirs.state_dict().items()})
    theirs(x)[0].square().sum().backward()
    gradient = dict(mine.named_weights(torch.func.grad(loss)(2 * before)))
    assert worst(gradient, gradients(theirs))[0] <= TOLERANCE
    assert torch.equal(mine.params, before)


# --- dropout ----------------------------------------------------------------------------------------------------------

WAYS = {
    "padded": lambda module, x: module(x)[0],
    "packed": lambda module, x: module(pack_padded_sequence(x, [2, 4], enforce_sorted=False))[0].data,
    "checkpointed": lambda module, x: checkpoint(lambda z: module(z)[0], x, use_reentrant=False),
    "compiled": lambda module, x: torch.compile(module, backend="aot_eager", fullgraph=True)(x)[0],
}


@pytest.mark.parametrize("way", WAYS)
def test_masks_follow_torchs_generator_and_the_backward_drops_what_the_forward_dropped(way):
    """Against differences of the loss, with the generator wound back each time."""
    _, mine = make_pair("LSTM", 3, 4, 3, dropout=0.5)
    x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    torch.compiler.reset()

    def loss(x, seed=7):
        torch.manual_seed(seed)
        return WAYS[way](mine, x).square().sum()

    assert loss(x) == loss(x)
    assert loss(x) != loss(x, seed=8)
    torch.manual_seed(7)
    assert not torch.equal(WAYS[way](mine, x), WAYS[way](mine, x))
    assert torch.autograd.gradcheck(loss, x)


def test_it_drops_the_share_that_the_module_has_now_and_only_in_training():
    """`tests/numpy_engine/test_dropout.py` has what a share is; here all of the first layer's outputs are dropped."""
    _, mine = make_pair("GRU", 3, 4, 2)
    x, without = torch.randn(4, 2, 3, dtype=torch.float64), copy.deepcopy(mine)
    torch.nn.init.zeros_(without.weight_ih_l1)
    plain = mine(x)[0]
    mine.dropout = 1.0
    assert torch.equal(mine(x)[0], without(x)[0])
    assert torch.equal(mine.eval()(x)[0], plain)
