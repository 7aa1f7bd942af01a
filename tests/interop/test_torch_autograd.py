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
from pycudnnrnn.interop import torch as ours  # noqa: E402
from tests.interop.pairs import TORCHS_WARNINGS, calls, gradients, make_call, make_pair, one_graph, worst  # noqa: E402

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
    first = {name: gradient.clone() for name, gradient in gradients(mine).items()}
    mine.zero_grad()
    loss.backward()
    assert worst(gradients(mine), first)[0] == 0
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
        assert set(gradients(mine).values()) == {None}
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
    assert nbytes > sum(weight.nbytes for weight in mine.parameters()) + 2 * x.nbytes
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
    before = {name: weight.clone() for name, weight in mine.state_dict().items()}

    def loss(weights):
        return torch.func.functional_call(mine, weights, (x,))[0].square().sum()

    doubled = {name: 2 * weight for name, weight in theirs.state_dict().items()}
    theirs.load_state_dict(doubled)
    theirs(x)[0].square().sum().backward()
    found = {f"d_{name}": gradient for name, gradient in torch.func.grad(loss)(doubled).items()}
    assert worst(found, {f"d_{name}": gradient for name, gradient in gradients(theirs).items()})[0] <= TOLERANCE
    assert worst(mine.state_dict(), before)[0] == 0
    expected = torch.func.functional_call(theirs.to(torch.float32), doubled, (x,))[0]
    assert torch.allclose(torch.func.functional_call(mine.to(torch.float32), doubled, (x,))[0], expected)


def test_a_frozen_weight_gets_no_gradient_and_the_others_get_theirs():
    theirs, mine = make_pair("LSTM", 3, 5, 2)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    for module in (theirs, mine):
        module.weight_hh_l0.requires_grad_(False)
        module.bias_ih_l1.requires_grad_(False)
        module(x)[0].square().sum().backward()
        assert module.weight_hh_l0.grad is module.bias_ih_l1.grad is None
    found, expected = ({name: g for name, g in gradients(m).items() if g is not None} for m in (mine, theirs))
    assert len(found) == 6
    assert worst(found, expected)[0] <= TOLERANCE


def test_a_hook_of_one_weight_acts_on_its_gradient_alone():
    theirs, mine = make_pair("GRU", 3, 5)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    for module in (theirs, mine):
        module.weight_hh_l0.register_hook(lambda gradient: 3 * gradient)
        module(x)[0].square().sum().backward()
        module(x)[0].square().sum().backward()  # gradients add up
    assert worst(gradients(mine), gradients(theirs))[0] <= TOLERANCE


def test_a_weight_that_changes_between_forward_and_backward_raises_torchs_error():
    _, mine = make_pair("LSTM", 3, 5, 2)
    for weight in mine.parameters():
        loss = mine(torch.randn(4, 2, 3, dtype=torch.float64))[0].sum()
        with torch.no_grad():
            weight.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


BLOCKS = {
    "RNN": lambda library: ([], library.LSTM(3, 5), []),
    "RNN, Linear": lambda library: ([], library.LSTM(3, 5), [torch.nn.Linear(5, 2)]),
    "Linear, RNN": lambda library: ([torch.nn.Linear(3, 4)], library.LSTM(4, 5), []),
    "tanh, RNN": lambda library: ([torch.nn.Tanh()], library.GRU(3, 5), []),
    "RNN, RNN": lambda library: ([torch.nn.GRU(3, 4), First()], library.LSTM(4, 5), []),
}


class First(torch.nn.Module):
    def forward(self, pair):
        return pair[0]


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("autocast", [False, True])
def test_a_checkpointed_block_has_its_gradients_whatever_stands_before_the_rnn(block, reentrant, autocast):
    found = []
    for library in (torch.nn, ours):
        torch.manual_seed(0)
        before, rnn, after = BLOCKS[block](library)
        model = torch.nn.Sequential(*before, rnn, First(), *after)
        x = torch.randn(6, 2, 3, generator=torch.Generator().manual_seed(1), requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            y = checkpoint(model, x, use_reentrant=reentrant)
        y.float().square().sum().backward()
        found.append({"x": x.grad} | gradients(model))
    assert worst(found[1], found[0])[0] <= (0.05 if autocast else 1e-5)


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
