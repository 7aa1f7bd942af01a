"""Dropout of torch's modules on the stand-in: whose random states, and which masks."""

import functools

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from pycudnnrnn.engines.cudnn.dropout import KEPT_MAX
from pycudnnrnn.errors import EngineError
from tests.stand_in.torch_on_cpu import equal, first_seed, make, on_numpy, step

F64 = torch.float64


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


def test_modules_on_one_stream_drop_each_at_its_rate(played):
    for number, rate in enumerate((0.5, 0.25, 0.5)):
        module, x = make(dropout=rate)
        seed = first_seed(number)
        equal(step(module, x), on_numpy(module, x, chain=(seed, 0)))


@pytest.mark.parametrize(
    ("number", "count", "batch"), [(5, 3, 3), (5, 2 * KEPT_MAX, 3), (5, 9, 2), (6, 9, 3)],
    ids=["the same", "more than is kept", "another batch", "another number"],
)  # fmt: skip
def test_masks_follow_from_what_ran_since_the_generator_was_set(played, number, count, batch):
    """Compared with the NumPy engine, whose positions are those of a chain that has begun there."""
    module, x = make(dropout=0.5)
    chain = first_seed(5)
    torch.manual_seed(number)
    outputs(module, x[:, :batch], count)
    torch.manual_seed(5)
    for k, y in enumerate(outputs(module, x, KEPT_MAX + 4)):
        assert torch.equal(y, on_numpy(module, x, run=outputs_of_one, chain=(chain, k)))


def outputs_of_one(module, x):
    return outputs(module, x, 1)[0]


# --- activation checkpointing -----------------------------------------------------------------------------------------


def repeated(module, x, **options):
    return checkpoint(module, x, **{"use_reentrant": False} | options)


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

    expected = torch.autograd.grad(loss_before(torch.nn.Module.__call__, KEPT_MAX), list(module.parameters()))
    played.calls.clear()
    loss_before(repeats, KEPT_MAX - 1).backward()
    assert len(seedings(played)) == 1
    equal([weight.grad for weight in module.parameters()], expected)
    y, chain = outputs_of_one(module, x), (first_seed(8), KEPT_MAX)
    equal([y], [on_numpy(module, x, run=outputs_of_one, chain=chain)])  # what ran again left the chain where it was
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
