"""torch's modules on the cuDNN engine, on the stand-in over CPU tensors: what a call and a training step ask of it."""

import collections

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from pycudnnrnn import _arrays
from pycudnnrnn.engines.cudnn import owned
from pycudnnrnn.errors import CaptureError
from pycudnnrnn.interop import _torch_cudnn
from pycudnnrnn.interop import torch as ours
from pycudnnrnn.interop._torch_rules import TorchArgumentError
from tests.helpers.pairwise import pairwise
from tests.interop.pairs import TORCHS_WARNINGS
from tests.stand_in import shim
from tests.stand_in.torch_on_cpu import STREAM, equal, first_seed, flat_gradient, make, on_numpy, step

pytestmark = TORCHS_WARNINGS
BATCHES = ([5, 4, 1], [5, 2, 2], [5, 5, 3], [5, 4, 1], [5, 5, 5], None, [5, 1, 1])


def counted(monkeypatch, played):
    """Count from now on; what is returned gives what was done beside the three passes, by name."""
    counts, device = collections.Counter(), played.device
    watched = [
        (owned.Owned, "__init__", "descriptors"), (torch.Tensor, "__dlpack__", "exchanges"),
        (torch.Tensor, "__dlpack_device__", "exchanges"), (_arrays, "to_engine", "exchanges"),
        (_torch_cudnn, "_as_torch", "kinds"), (torch.cuda, "device", "devices"),
    ]  # fmt: skip
    for owner, name, what in watched:
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, r=real, w=what, **k: counts.update([w]) or r(*a, **k))

    def of_device():
        lists = {"waits": device.waits, "allocations": device.allocations, "synchronisations": device.synchronized}
        sizes = {what: len(found) for what, found in lists.items()}
        return collections.Counter(devices=device.entered, copies=device.copies, **sizes)

    before = of_device()
    played.calls.clear()

    def beside_the_passes():
        asked = collections.Counter(name for name, *_ in played.calls if name not in shim.PASSES)
        return counts + asked + (of_device() - before)

    return beside_the_passes


DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
OPTIONS = {"plain": {}, "batch first": {"batch_first": True}, "projected": {"proj_size": 2}}
CASES = pairwise(DTYPES, (None, (5, 2, 4)), OPTIONS)


@pytest.mark.parametrize(("dtype", "lengths", "option"), CASES, ids=str)
def test_every_address_is_in_its_place(played, monkeypatch, dtype, lengths, option):
    module, x = make(dtype=dtype, **OPTIONS[option])
    x = x.to(dtype)
    x = x.transpose(0, 1).contiguous() if module.batch_first else x
    hx = torch.randn(4, 3, module.proj_size or 6).to(dtype), torch.randn(4, 3, 6).to(dtype)
    for states in (None, hx):
        beside = counted(monkeypatch, played)
        found = step(module, x, lengths, states)
        assert beside()["exchanges"] == 0
        equal(found, on_numpy(module, x, lengths, states))


def test_what_is_not_aligned_is_copied(played):
    """The stand-in refuses what is not aligned, and a reserve that a backward has used."""

    def shifted(tensor):
        """The same numbers, eight bytes off."""
        found = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)[1:].view(tensor.shape).copy_(tensor)
        assert found.data_ptr() % 16
        return found

    (module, x), found = make(), []
    hx = tuple(torch.randn(4, 3, 6, dtype=torch.float64) for _ in range(2))
    for given in (torch.clone, shifted):
        module.zero_grad()
        y, (h, c) = module(given(x), tuple(map(given, hx)))
        for _ in range(2):
            torch.autograd.backward([y, h, c], [given(torch.ones_like(r)) for r in (y, h, c)], retain_graph=True)
        found.append([y.detach(), flat_gradient(module)])
    equal(*found)


def test_work_goes_to_torchs_current_stream(played):
    module, x = make()
    expected = step(module, x)
    for stream in (0x8000, STREAM, 0):
        played.stream = stream
        played.launches.clear()
        equal(step(module, x), expected)
        assert {found for _, _, found, _ in played.launches} == {stream}


def test_calls_of_one_size_are_other_kinds_with_the_batch_first_or_a_backward_to_come(played):
    module, x = make()
    torch.no_grad()(module)(x[:3])
    y, *_ = step(module, x[:3])
    turned = make(batch_first=True)[0](x[:3].transpose(0, 1))[0]
    equal([turned.detach().transpose(0, 1)], [y])


def test_a_stream_that_is_captured_refuses(played, monkeypatch):
    module, x = make()
    y = module(x)[0].sum()

    def refuse(stream, what):
        assert stream.ptr == STREAM
        raise CaptureError(what)

    monkeypatch.setattr(played.device, "refuse_capture", refuse)
    with pytest.raises(CaptureError, match="eager forward, which takes memory"):
        module(x)
    with pytest.raises(CaptureError, match="eager backward, which takes memory"):
        y.backward()


def test_weights_in_one_buffer_are_read_in_place_and_others_from_a_copy(played):
    """In one piece, in one that is not aligned, and in two."""
    module, x = make()
    weights = {name: weight.detach() for name, weight in module.named_parameters()}
    first = min(weight.data_ptr() for weight in weights.values())
    shifted, off = torch.zeros(1 + sum(map(torch.numel, weights.values())), dtype=torch.float64), {}
    for name, weight in weights.items():
        at = 1 + (weight.data_ptr() - first) // 8
        off[name] = shifted[at : at + weight.numel()].view(weight.shape).copy_(weight)
    apart = weights | {"bias_hh_l0": weights["bias_hh_l0"].clone()}
    for others, in_place in ((weights, True), (off, False), (apart, False)):
        played.calls.clear()
        torch.func.functional_call(module, others, (x,))
        (params,) = [arguments[15] for name, arguments, _ in played.calls if name == "cudnnRNNForward"]
        assert (params == first) is in_place


def test_an_empty_batch_makes_no_call(played):
    module, _ = make()
    played.calls.clear()
    y, (h, _) = module(torch.zeros(5, 0, 4, dtype=torch.float64))
    y.sum().backward()
    assert y.shape == (5, 0, 12)
    assert h.shape == (4, 0, 6)
    assert not flat_gradient(module).any()
    assert not [name for name, *_ in played.calls if name in shim.PASSES]


@pytest.mark.parametrize("lengths", [None, [5, 2, 4]], ids=["padded", "packed"])
def test_more_steps_than_one_native_call_takes_are_refused(played, monkeypatch, lengths):
    module, x = make()
    data = x if lengths is None else pack_padded_sequence(x, lengths, enforce_sorted=False)
    monkeypatch.setattr(_torch_cudnn, "TIME_MAX", 4)
    with pytest.raises(TorchArgumentError, match="Invalid input length: 5, expecting at most 4 steps on CUDA"):
        module(data)
    monkeypatch.setattr(_torch_cudnn, "TIME_MAX", 5)
    module(data)


@pytest.mark.parametrize("kind", [ours.LSTM, ours.GRU])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_repeated_step_does_nothing_beside_its_passes_and_what_dropout_takes(played, monkeypatch, kind, dropout):
    """No exchange, no device made current, no event, no descriptor, no query: with new lengths, too.

    With dropout a copy of the states is kept for each forward, and they are seeded since torch's generator was set.
    """
    module, x = make(kind, dropout=dropout)
    for lengths in ([5, 3, 3], None):
        step(module, x, lengths)
    seed = first_seed(5)
    beside = counted(monkeypatch, played)
    found = [step(module, x, lengths) for lengths in BATCHES]
    expected = {"cudnnSetDropoutDescriptor": 1, "allocations": len(BATCHES)} if dropout else {}
    assert beside() == expected
    monkeypatch.undo()
    for k, lengths in enumerate(BATCHES):
        equal(found[k], on_numpy(module, x, lengths, chain=(seed, k)))


def test_the_library_reads_and_writes_the_sequences_own_memory(played):
    module, x = make()
    packed = pack_padded_sequence(x, [5, 4, 2])
    data = packed.data.requires_grad_()
    played.calls.clear()
    y, _ = module(PackedSequence(data, packed.batch_sizes))
    upstream = torch.randn_like(y.data)
    y.data.backward(upstream)
    forward, backward, weights = (arguments for name, arguments, _ in played.calls if name in shim.PASSES)
    assert (forward[5], forward[7]) == (data.data_ptr(), y.data.data_ptr())
    assert (backward[4], backward[5], backward[7]) == (y.data.data_ptr(), upstream.data_ptr(), data.grad.data_ptr())
    assert (weights[5], weights[9]) == (data.data_ptr(), y.data.data_ptr())
