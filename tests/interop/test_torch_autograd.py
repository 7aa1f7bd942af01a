"""Outputs, states and every gradient are torch's in float64; what has no gradient says so."""

import pytest
from hypothesis import given, target

from tests.helpers.examples import examples
from tests.helpers.oracles import need

need("torch")
import torch  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from pycudnnrnn.errors import EngineError  # noqa: E402
from pycudnnrnn.interop import torch as ours  # noqa: E402
from pycudnnrnn.testing import PermutedLayoutEngine, use_engine  # noqa: E402
from tests.interop.pairs import KINDS, calls, gradients, make_call, make_pair, worst  # noqa: E402

TOLERANCE = 1e-10


@examples(600)
@given(calls())
def test_outputs_states_and_every_gradient_equal_torch(drawn):
    (theirs, mine), call = drawn
    error, where = worst(call(mine), call(theirs))
    target(error)
    assert error <= TOLERANCE, where


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_come_in_evaluation_mode_too(kind):
    theirs, mine = make_pair(kind, 3, 5, 2, dropout=0.5)
    call = make_call(theirs, 4, 3)
    assert worst(call(mine.eval()), call(theirs.eval()))[0] <= TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_with_another_layout_equals_torch_too(kind):
    with use_engine(PermutedLayoutEngine(seed=1)):
        theirs, mine = make_pair(kind, 3, 5, 2, bidirectional=True)
        call = make_call(theirs, 4, 3, "packed unsorted")
        assert worst(call(mine), call(theirs))[0] <= TOLERANCE
        for name, weight in theirs.state_dict().items():
            assert torch.equal(getattr(mine, name), weight)
            assert torch.equal(mine.state_dict()[name], weight)


@pytest.mark.parametrize(("kind", "ragged"), [(kind, n % 2 == 0) for n, kind in enumerate([*KINDS][:3])])
def test_gradcheck(kind, ragged):
    _, mine = make_pair(kind, 2, 3, 2, bidirectional=True)
    call = make_call(mine, 3, 2)
    lstm = mine.mode == "LSTM"

    def run(x, params, h, c):
        data = pack_padded_sequence(x, [1, 3], enforce_sorted=False) if ragged else x
        y, states = torch.func.functional_call(mine, {"params": params}, (data, (h, c) if lstm else h))
        return y.data if ragged else y, *(states if lstm else [states])

    inputs = [call.x, mine.params.detach(), *call.hx, torch.zeros(1, dtype=torch.float64)][:4]
    assert torch.autograd.gradcheck(run, [a.clone().requires_grad_() for a in inputs[: 3 + lstm]] + inputs[3 + lstm :])


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


def test_frozen_weights_get_no_gradient_and_the_input_does():
    theirs, mine = make_pair("LSTM", 3, 5, 2)
    x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    (theirs(x)[0].square().sum()).backward()
    expected, x.grad = x.grad, None
    mine.requires_grad_(False)
    mine(x)[0].square().sum().backward()
    assert mine.params.grad is None
    assert (x.grad - expected).abs().max() <= TOLERANCE


def kept_nbytes(function):
    """Return the bytes that autograd keeps of a call, and its result."""
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.nbytes) or t, lambda t: t):
        result = function()
    return sum(kept), result


def test_nothing_is_kept_where_no_gradient_will_be_asked_for():
    _, mine = make_pair("LSTM", 3, 5, 2)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    nbytes, expected = kept_nbytes(lambda: mine(x)[0])
    assert nbytes > mine.params.nbytes + 2 * x.nbytes
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            nbytes, y = kept_nbytes(lambda: mine(x)[0])
        assert nbytes == 0
        assert torch.equal(y, expected)
    mine.requires_grad_(False)
    assert kept_nbytes(lambda: mine(x))[0] == 0


def test_no_reserve_is_made_without_gradients(monkeypatch):
    from pycudnnrnn.engines.numpy_engine import forward

    _, mine = make_pair("LSTM", 3, 5, 2)
    made = []
    monkeypatch.setattr(forward, "make_reserve", lambda *a, **k: made.append(1))
    with torch.no_grad():
        mine(torch.randn(4, 2, 3, dtype=torch.float64))
    assert not made


def test_gradients_of_gradients_are_refused_and_never_zero():
    _, mine = make_pair("LSTM", 3, 5, 2)
    x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    for loss in (lambda y: y.square().sum(), lambda y: y.sum()):
        (gradient,) = torch.autograd.grad(loss(mine(x)[0]), x, create_graph=True)
        with pytest.raises(EngineError, match="double backward"):
            gradient.sum().backward()
    with pytest.raises(EngineError, match="double backward"):
        torch.autograd.gradgradcheck(lambda z: mine(z)[0], x)
    once = torch.func.grad(lambda z: mine(z)[0].sum())
    with pytest.raises(EngineError, match="double backward"):
        torch.func.grad(lambda z: once(z).sum())(x.detach())


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own call
def test_forward_mode_is_refused():
    _, mine = make_pair("GRU", 3, 5)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    with pytest.raises(NotImplementedError, match="jvp"):
        torch.func.jvp(lambda z: mine(z)[0], (x,), (x,))


def test_vmap_is_refused_by_name():
    _, mine = make_pair("GRU", 3, 5)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    with pytest.raises(EngineError, match=r"vmap: .* batch axis"):
        torch.func.vmap(mine)(x[None])
    with pytest.raises(EngineError, match=r"vmap: .* batch axis"):
        torch.func.jacrev(lambda z: mine(z)[0])(x)


def test_functional_call_and_func_grad_take_other_weights():
    theirs, mine = make_pair("GRU", 3, 5, 2)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    before = mine.params.detach().clone()

    def loss(params):
        return torch.func.functional_call(mine, {"params": params}, (x,))[0].square().sum()

    with torch.no_grad():
        for weight in theirs.parameters():
            weight.mul_(2)
    theirs(x)[0].square().sum().backward()
    gradient = dict(mine.named_weights(torch.func.grad(loss)(2 * before)))
    assert worst(gradient, gradients(theirs))[0] <= TOLERANCE
    assert torch.equal(mine.params, before)


def test_functional_call_by_torchs_names_is_refused_and_leaves_the_weights():
    _, mine = make_pair("GRU", 3, 5)
    before = mine.params.detach().clone()
    with pytest.raises(TypeError, match="weight_ih_l0"):
        torch.func.functional_call(mine, {"weight_ih_l0": mine.weight_ih_l0 * 2}, (torch.zeros(1, 1, 3).double(),))
    assert torch.equal(mine.params, before)


class TestDropout:
    @pytest.mark.parametrize("form", ["batched", "packed unsorted"])
    def test_the_backward_drops_what_the_forward_dropped(self, form):
        """Against the numbers: the loss is differentiated by difference, with the generator wound back each time."""
        _, mine = make_pair("LSTM", 3, 5, 3, dropout=0.5)
        call = make_call(mine, 4, 2, form)

        def loss(x):
            torch.manual_seed(7)
            data = pack_padded_sequence(x, call.lengths, enforce_sorted=False) if form != "batched" else x
            y = mine(data)[0]
            return (y if form == "batched" else y.data).square().sum()

        assert torch.autograd.gradcheck(loss, call.x.requires_grad_())

    def test_masks_follow_torchs_generator(self):
        _, mine = make_pair("GRU", 3, 5, 2, dropout=0.5)
        x = torch.randn(4, 2, 3, dtype=torch.float64)

        def outputs(seed):
            torch.manual_seed(seed)
            return mine(x)[0], mine(x)[0]

        (a, b), (again, _), (other, _) = outputs(1), outputs(1), outputs(2)
        assert torch.equal(a, again)
        assert not torch.equal(a, b)
        assert not torch.equal(a, other)

    def test_activation_checkpointing_draws_the_same_masks_again(self):
        _, mine = make_pair("LSTM", 3, 5, 2, dropout=0.5)
        x = torch.randn(4, 2, 3, dtype=torch.float64)
        found = []
        for run in (lambda: mine(x)[0], lambda: checkpoint(lambda z: mine(z)[0], x, use_reentrant=False)):
            mine.zero_grad()
            torch.manual_seed(3)
            run().square().sum().backward()
            found.append(mine.params.grad.clone())
        assert torch.equal(*found)

    def test_it_acts_in_training_without_gradients_too_and_never_in_evaluation(self):
        theirs, mine = make_pair("LSTM", 3, 5, 2, dropout=0.5)
        x = torch.randn(4, 2, 3, dtype=torch.float64)
        plain = theirs.eval()(x)[0]
        with torch.no_grad():
            assert not torch.allclose(mine(x)[0], plain)
            assert torch.allclose(mine.eval()(x)[0], plain)

    @pytest.mark.parametrize("p", [0.0, 1.0, 0.25])
    def test_it_drops_that_share_and_scales_the_rest(self, p):
        """As torch's own test: ones through weights of 1 / width, so that an output tells how many were kept."""
        module = ours.RNN(10, 1000, 2, nonlinearity="relu", bias=False, dropout=p)
        with torch.no_grad():
            module.weight_ih_l0.fill_(1)
            module.weight_hh_l0.fill_(1)
            module.weight_ih_l1.fill_(1 / 1000)
            module.weight_hh_l1.fill_(1)
        with torch.no_grad():
            output, hx = module(torch.ones(1, 1, 10), torch.zeros(2, 1, 1000))
        value = float(output[0, 0, 0])
        assert output.min() == output.max() == hx[1].max() == hx[1].min()
        assert (hx[0] == 10).all()
        if p in {0, 1}:
            assert value == pytest.approx(10 * (1 - p), abs=1e-4)
        else:
            kept = value / (10 / (1 - p)) * 1000
            assert kept == pytest.approx(round(kept), abs=1e-2)
            assert abs(kept - 750) <= 5 * (1000 * p * (1 - p)) ** 0.5

    def test_the_share_can_be_changed_between_calls(self):
        _, mine = make_pair("GRU", 3, 5, 2, dropout=0.0)
        x = torch.randn(4, 2, 3, dtype=torch.float64)
        plain = mine(x)[0]
        mine.dropout = 0.5
        assert not torch.allclose(mine(x)[0], plain)
        mine.dropout = 0.0
        assert torch.equal(mine(x)[0], plain)
