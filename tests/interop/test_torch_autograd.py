"""Outputs, states and every gradient are torch's in float64; what has no gradient says so. Read this file first.

Oracle: torch's own modules on the CPU. Dropout has other masks than torch's, so its gradient is compared with
differences of the loss.
"""

import copy

import pytest
import torch
from hypothesis import given, target
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

from pycudnnrnn.errors import EngineError
from tests.helpers.examples import examples
from tests.interop.pairs import TORCHS_WARNINGS, Model, calls, gradients, make_pair, one_graph, worst

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


@pytest.mark.parametrize("place", range(3))
def test_one_result_alone_gives_one_argument_alone_its_gradient(place):
    """The gradients of the other results count as zero, and frozen weights have none."""
    x, h, c = (torch.randn(shape, dtype=torch.float64) for shape in ((4, 2, 3), (2, 2, 5), (2, 2, 5)))
    leaf = (x, h, c)[place].requires_grad_()
    gradients_of = []
    for module in make_pair("LSTM", 3, 5, 2):
        y, states = module.requires_grad_(False)(x, (h, c))
        gradients_of.append(torch.autograd.grad((y, *states)[place][-1].square().sum(), leaf)[0])
    assert (gradients_of[1] - gradients_of[0]).abs().max() <= TOLERANCE


def test_a_graph_that_is_kept_gives_the_same_gradients_again():
    _, mine = make_pair("GRU", 3, 5, 2)
    loss = mine(torch.randn(4, 2, 3, dtype=torch.float64))[0].square().sum()
    loss.backward(retain_graph=True)
    first = {name: gradient.clone() for name, gradient in gradients(mine).items()}
    mine.zero_grad()
    loss.backward()
    assert worst(gradients(mine), first)[0] == 0
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_nothing_is_kept_and_no_reserve_is_made_where_no_gradient_will_be_asked_for(engine_calls):
    _, mine = make_pair("LSTM", 3, 5, 2)
    x, saved = torch.randn(4, 2, 3, dtype=torch.float64), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        for context in (torch.no_grad(), torch.inference_mode()):
            with context:
                mine(x)
        mine.requires_grad_(False)(x)
        assert not saved
        mine.requires_grad_(True)(x)
        assert saved
    assert [config.keep_reserve for _, config, _ in engine_calls] == [False, False, False, True]


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
    before = {name: weight.clone() for name, weight in mine.state_dict().items()}
    doubled = {name: 2 * weight for name, weight in before.items()}
    theirs.load_state_dict(doubled)
    theirs(x)[0].square().sum().backward()
    found = torch.func.grad(lambda weights: torch.func.functional_call(mine, weights, (x,))[0].square().sum())(doubled)
    assert worst(found, gradients(theirs))[0] <= TOLERANCE
    assert worst(mine.state_dict(), before)[0] == 0
    mixed = torch.func.functional_call(mine.to(torch.float32), doubled, (x,))[0]
    assert torch.allclose(mixed, theirs(x)[0])


def test_a_weight_that_changes_between_forward_and_backward_raises_torchs_error():
    _, mine = make_pair("LSTM", 3, 5, 2)
    for weight in mine.parameters():
        loss = mine(torch.randn(4, 2, 3, dtype=torch.float64))[0].sum()
        with torch.no_grad():
            weight.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@pytest.mark.parametrize("before", [torch.nn.Identity(), torch.nn.Tanh(), torch.nn.Linear(3, 3)], ids=str)
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("autocast", [False, True])
def test_a_checkpointed_block_has_its_gradients_whatever_stands_before_the_rnn(before, reentrant, autocast):
    results, x = [], torch.randn(6, 2, 3)
    for module in make_pair("LSTM", 3, 5, dtype=torch.float32):
        model, leaf = torch.nn.Sequential(before, Model(module)), x.clone().requires_grad_()
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            y = checkpoint(model, leaf, use_reentrant=reentrant)
        y.float().square().sum().backward()
        results.append({"x": leaf.grad} | {name: weight.grad for name, weight in model.named_parameters()})
    assert worst(results[1], results[0])[0] <= (0.05 if autocast else 1e-5)


# --- dropout ----------------------------------------------------------------------------------------------------------

WAYS = {
    "padded": lambda module, x: module(x)[0],
    "packed": lambda module, x: module(pack_padded_sequence(x, [2, 4], enforce_sorted=False))[0].data,
    "checkpointed": lambda module, x: checkpoint(lambda z: module(z)[0], x, use_reentrant=False),
    "compiled": lambda module, x: one_graph(torch.compile(module, backend="aot_eager", fullgraph=True))(x)[0],
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
