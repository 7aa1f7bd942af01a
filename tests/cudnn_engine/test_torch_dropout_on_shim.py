"""Dropout of torch's modules on the stand-in: whose random states, and which masks."""

import contextlib
import functools

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.cudnn.stream_states import KEPT_MAX
from pycudnnrnn.engines.numpy_engine import NumpyEngine
from pycudnnrnn.errors import EngineError
from pycudnnrnn.interop import torch as ours
from tests.stand_in.torch_on_cpu import equal, first_seed, make, on_numpy, step


def seedings(played):
    """The calls that wrote random states: their streams' addresses."""
    return [given[3] for name, given, _ in played.calls if name == "cudnnSetDropoutDescriptor" and given[3]]


def outputs(module, x, count):
    return [module(x)[0].detach().clone() for _ in range(count)]


def test_a_hundred_steps_seed_cudnn_once_and_each_has_masks_of_its_own(played):
    module, x = make(dropout=0.5)
    seed = first_seed(1)
    found = [step(module, x) for _ in range(100)]
    assert len(seedings(played)) == 1
    for k in (0, 1, 50, 99):
        equal(found[k], on_numpy(module, x, chain=(seed, k)))
    assert len({found[k][0].numpy().tobytes() for k in range(100)}) == 100


def forwards(count, batch=3):
    return lambda _, module, x: outputs(module, x[:, :batch], count)


def drawn(played, module, x):
    torch.randint(2**63 - 1, ())
    outputs(module, x, 9)


def an_offset(played, module, x):
    drawn(played, module, x)
    torch.manual_seed(5)
    played.generator.set_offset(4000)


def a_state(played, module, x):
    torch.manual_seed(6)
    outputs(module, x, 2)
    played.generator.set_state((5, played.generator.get_offset()))
    torch.default_generator.manual_seed(5)


PASTS = {
    # the seed of what ran before; what it was; whether torch's seed is set after it
    "the same": (5, forwards(3), True),
    "more than is kept": (5, forwards(2 * KEPT_MAX), True),
    "another batch": (5, forwards(9, batch=2), True),
    "another number": (6, forwards(9), True),
    "the same seeds from the second on": (5, drawn, True),
    "an offset of the device's generator": (5, an_offset, False),
    "a state of the device's generator": (5, a_state, False),
}


@pytest.mark.parametrize("past", PASTS)
def test_masks_follow_from_what_ran_since_the_generator_was_set(played, past):
    """Compared with the NumPy engine, whose positions are those of a chain that has begun there."""
    module, x = make(dropout=0.5)
    chain, (before, ran, is_set) = first_seed(5), PASTS[past]
    torch.manual_seed(before)
    ran(played, module, x)
    if is_set:
        torch.manual_seed(5)
    for k, y in enumerate(outputs(module, x, KEPT_MAX + 4)):
        assert torch.equal(y, on_numpy(module, x, run=outputs_of_one, chain=(chain, k)))


def outputs_of_one(module, x):
    return outputs(module, x, 1)[0]


# --- activation checkpointing -----------------------------------------------------------------------------------------


class Two(torch.nn.Module):
    """Two RNNs that drop, of different shares; `through` runs each of them."""

    def __init__(self, through):
        super().__init__()
        torch.manual_seed(3)
        self.through, self.first = through, ours.LSTM(4, 6, 2, dropout=0.5, dtype=torch.float64)
        self.second = ours.GRU(6, 5, 2, dropout=0.25, dtype=torch.float64)

    def forward(self, x):
        return self.through(self.second, self.through(self.first, x)[0])[0]


def plainly(module, x):
    return module(x)


def repeated(module, x, **options):
    return checkpoint(module, x, **{"use_reentrant": False} | options)


def gradients(module, count):
    """The gradients of some steps, in each of which two batches go forward before the backward."""
    found = []
    for _ in range(count):
        module.zero_grad()
        x = torch.randn(7, 3, 4, dtype=torch.float64, requires_grad=True)
        (module(x).square().sum() + module(2 * x).sum()).backward()
        found += [x.grad, *(parameter.grad.clone() for parameter in module.parameters())]
    return found


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_has_the_gradients_of_the_plain_module(played, reentrant):
    torch.manual_seed(8)
    expected = gradients(Two(plainly), 5)
    played.calls.clear()
    torch.manual_seed(8)
    found = gradients(Two(functools.partial(repeated, use_reentrant=reentrant)), 5)
    equal(found, expected)
    assert len(seedings(played)) == 1, "what runs again leaves the chain where it was"


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_repetition_has_its_masks_until_too_many_forwards_came_between_and_raises_then(played, reentrant):
    module, x = make(dropout=0.5)
    x.requires_grad_()
    repeats = functools.partial(repeated, use_reentrant=reentrant)

    def loss_before(through, between):
        torch.manual_seed(8)
        loss = through(module, x)[0].square().sum()
        outputs(module, x, between)
        return loss

    (expected,) = torch.autograd.grad(loss_before(plainly, 0), module.params)
    loss_before(repeats, KEPT_MAX - 1).backward()
    equal([module.params.grad], [expected])
    late, launched = loss_before(repeats, KEPT_MAX), len(played.launches)
    with pytest.raises(EngineError, match=f"kept for the latest {KEPT_MAX} forwards.*run the backward"):
        late.backward()
    assert len(played.launches) == launched


def test_a_forward_of_a_seed_of_its_own_inside_a_backward_raises(played):
    module, x = make(dropout=0.5)
    x.requires_grad_()
    loss = repeated(module, x, preserve_rng_state=False)[0].sum()
    with pytest.raises(EngineError, match="preserve_rng_state=True"):
        loss.backward()


# --- chains -----------------------------------------------------------------------------------------------------------


def test_a_backward_has_the_masks_of_its_forward_after_another_one(played):
    module, x = make(dropout=0.5)
    found = []
    for engine in (contextlib.nullcontext(), use_engine(NumpyEngine())):
        with engine:
            torch.manual_seed(4)
            first, _second = module(x)[0].square().sum(), module(x)
            found.append(torch.autograd.grad(first, module.params))
    equal(*found)


def test_streams_have_chains_of_their_own(played):
    module, x = make(dropout=0.5)
    for number in (5, 5):
        seeds, found = [first_seed(number), int(torch.randint(2**63 - 1, (2,))[1])], []
        torch.manual_seed(number)
        for stream in (0x100, 0x200, 0x100, 0x200):
            played.stream = stream
            found.append(outputs_of_one(module, x))
        for y, chain in zip(found, [(seeds[0], 0), (seeds[1], 0), (seeds[0], 1), (seeds[1], 1)], strict=True):
            assert torch.equal(y, on_numpy(module, x, run=outputs_of_one, chain=chain))
    first, second, *again = seedings(played)
    assert first != second
    assert again == [first, second], "where they were"
