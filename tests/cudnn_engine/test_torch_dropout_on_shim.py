"""Dropout of torch's modules on the stand-in: whose random states, and which masks."""

import contextlib
import contextvars
import copy
import functools
import gc
import threading
import weakref

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.cudnn.descriptors import DropoutDescriptor
from pycudnnrnn.engines.cudnn.runtime import STREAMS_MAX
from pycudnnrnn.engines.cudnn.stream_states import KEPT_MAX
from pycudnnrnn.engines.numpy_engine import NumpyEngine
from pycudnnrnn.errors import EngineError
from pycudnnrnn.interop import torch as ours
from tests.stand_in.torch_on_cpu import equal, first_seed, make, on_numpy, playing, step


@pytest.fixture
def played(shim_path, monkeypatch):
    yield from playing(shim_path, monkeypatch)


class AwaitedLock:
    """A lock that says when somebody has to wait for it."""

    def __init__(self, awaited):
        self.awaited, self._lock = awaited, threading.Lock()

    def __enter__(self):
        if not self._lock.acquire(blocking=False):
            self.awaited.set()
            self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()


def awaited_locks(played, module, x):
    """Run a forward, so that the stream has its states, and say when somebody waits for them, or their descriptors."""
    with torch.no_grad():
        module(x)
    runtime, awaited = played.native.runtime, threading.Event()
    (states,) = runtime._own_states.values()
    states._lock = AwaitedLock(awaited)
    for dropout in runtime._dropouts.values():
        dropout.lock = AwaitedLock(awaited)
    return awaited


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


def test_torchs_generator_on_the_device_is_moved_once_after_it_was_set(played):
    module, x = make(dropout=0.5)
    for number in (1, 1, 2):
        torch.manual_seed(number)
        before = played.generator.moves
        outputs(module, x, 3)
        assert played.generator.moves == before + 1


def run_the_same(played, module, x):
    torch.manual_seed(5)
    outputs(module, x, 3)


def run_more_than_is_kept(played, module, x):
    torch.manual_seed(5)
    outputs(module, x, 2 * KEPT_MAX)


def run_another_batch(played, module, x):
    torch.manual_seed(5)
    outputs(module, x[:, :2], 9)


def run_another_number(played, module, x):
    torch.manual_seed(6)
    outputs(module, x, 9)


def draw_more_on_the_device_than_before(played, module, x):
    run_the_same_seeds_from_the_second_on(played, module, x)
    torch.manual_seed(5)
    played.generator.set_offset(4000)


def run_the_same_seeds_from_the_second_on(played, module, x):
    torch.manual_seed(5)
    torch.randint(2**63 - 1, ())
    outputs(module, x, 9)


def load_a_state_of_the_generators(played, module, x):
    torch.manual_seed(6)
    outputs(module, x, 2)
    played.generator.set_state((5, played.generator.get_offset()))
    torch.default_generator.manual_seed(5)


PASTS = [
    run_the_same, run_more_than_is_kept, run_another_batch, run_another_number, run_the_same_seeds_from_the_second_on,
]  # fmt: skip
SETTING = [draw_more_on_the_device_than_before, load_a_state_of_the_generators]


@pytest.mark.parametrize("past", PASTS + SETTING, ids=lambda past: past.__name__)
def test_masks_follow_from_what_ran_since_the_generator_was_set(played, past):
    """Compared with the NumPy engine, whose positions are those of a chain that has begun there."""
    module, x = make(dropout=0.5)
    seed = first_seed(5)
    past(played, module, x)
    if past in PASTS:
        torch.manual_seed(5)
    for k, y in enumerate(outputs(module, x, KEPT_MAX + 4)):
        assert torch.equal(y, on_numpy(module, x, run=outputs_of_one, chain=(seed, k)))


def outputs_of_one(module, x):
    return outputs(module, x, 1)[0]


def test_a_forward_run_again_from_a_state_of_torchs_generators_has_its_masks(played):
    module, x = make(dropout=0.5)
    torch.manual_seed(3)
    outputs(module, x, 2)
    cpu, device = torch.get_rng_state(), played.generator.get_state()
    first = outputs(module, x, 5)
    torch.set_rng_state(cpu)
    played.generator.set_state(device)
    assert all(map(torch.equal, outputs(module, x, 5), first))
    assert not any(torch.equal(outputs_of_one(module, x), y) for y in first)


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


def test_torchs_generator_goes_through_a_repetition_as_through_the_forward(played):
    """So that what torch itself drops on the device after the RNN is what it dropped in the forward."""
    module, x = make(dropout=0.5)
    x.requires_grad_()
    generator, places = played.generator, []
    for between in (0, 1):
        torch.manual_seed(8)
        outputs(module, x, between)
        before = generator.get_state()

        @contextlib.contextmanager
        def again(before=before):
            outside = generator.get_state()
            generator.set_state(before)
            yield
            generator.set_state(outside)

        def run(x):
            y = module(x)[0]
            places.append(generator.get_state())
            return y * y

        repeated(run, x, context_fn=lambda: (contextlib.nullcontext(), again())).sum().backward()
    assert places[:1] == places[1:2]
    assert places[2:3] == places[3:]


@pytest.mark.filterwarnings("ignore:.*torch.autograd.function.Function.* should not be instantiated")  # by torch itself
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")
def test_a_compiled_checkpoint_has_the_gradients_of_the_plain_module(played):
    module, x = make(dropout=0.5)
    x.requires_grad_()
    found = []
    for run, forwards in ((plainly, 1), (torch.compile(repeated, backend="aot_eager"), 2)):
        torch.compiler.reset()
        torch.manual_seed(8)
        played.counts.clear()
        y = run(module, x)[0]
        outputs(module, x, 2)
        found.append([y.detach(), *torch.autograd.grad(y.square().sum(), [x, module.params])])
        assert played.counts["cudnnRNNForward"] == forwards + 2
    equal(*found)


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


def test_all_shares_of_a_stream_are_in_one_chain(played):
    module, x = make(dropout=0.5)
    seed = first_seed(5)
    for k, share in enumerate([0.5, 0.25, 0.5, 0.25]):
        module.dropout = share
        assert torch.equal(outputs_of_one(module, x), on_numpy(module, x, run=outputs_of_one, chain=(seed, k)))
    assert len(seedings(played)) == 1


def test_copies_of_states_are_made_on_the_stream_of_the_forward(played, monkeypatch):
    module, x = make(dropout=0.5)
    module.eval()(x)  # which asks for layouts
    module.train()
    x.requires_grad_()
    device, streams, before = played.device, [], played.device.current

    def watch(real):
        return lambda *arguments: (streams.append(device.current.ptr), real(*arguments))[1]

    for name in ("empty", "copy", "copy_bytes"):
        monkeypatch.setattr(device, name, watch(getattr(device, name)))
    played.stream = 0x100
    repeated(module, x)[0].sum().backward()
    copies_and_their_memory, new_states = [0x100] * (2 * 2 + 2), [0x100]
    assert streams == copies_and_their_memory + new_states
    assert device.current is before


def test_states_of_many_streams_do_not_pile_up(played):
    module, x = make(dropout=0.5)
    for stream in range(0x1000, 0x1000 + 0x100 * 3 * STREAMS_MAX, 0x100):
        played.stream = stream
        outputs(module, x, KEPT_MAX + 3)
    taken = [weakref.ref(memory.raw) for memory in played.device.allocations]
    played.device.allocations.clear()
    gc.collect()
    assert sum(memory() is not None for memory in taken) == STREAMS_MAX * (1 + KEPT_MAX)


@pytest.mark.parametrize("share", [0.5, 0.25])
def test_a_forward_on_the_same_stream_comes_after_the_seed_and_its_forward(played, monkeypatch, share):
    """Another thread begins when the states have been seeded, and before they have been used."""
    module, x = make(dropout=0.5)
    other = copy.deepcopy(module)
    other.dropout = share
    chain = first_seed(8)
    expected, following = (on_numpy(m, x, run=outputs_of_one, chain=(chain, k)) for k, m in enumerate([module, other]))
    seed, threads, found = DropoutDescriptor.seed, [], []

    def interrupted(self, *arguments):
        seed(self, *arguments)
        if not threads:
            context = contextvars.copy_context()
            threads.append(threading.Thread(target=context.run, args=[lambda: found.append(outputs_of_one(other, x))]))
            threads[0].start()
            while threads[0].is_alive() and not awaited.is_set():
                awaited.wait(0.01)

    awaited = awaited_locks(played, module, x)
    monkeypatch.setattr(DropoutDescriptor, "seed", interrupted)
    torch.manual_seed(8)
    y = outputs_of_one(module, x)
    threads[0].join()
    assert torch.equal(y, expected)
    assert torch.equal(found[0], following)


def test_a_backward_waits_while_a_forward_seeds_its_descriptor(played, monkeypatch):
    module, x = make(dropout=0.5)
    awaited = awaited_locks(played, module, x)
    chain = first_seed(8)
    expected = on_numpy(module, x, chain=(chain, 0))[-1]
    module.zero_grad()
    torch.manual_seed(8)
    y, _ = module(x)
    loss, seed = (y * torch.arange(1, y.numel() + 1).view(y.shape)).sum(), DropoutDescriptor.seed
    thread = threading.Thread(target=contextvars.copy_context().run, args=[loss.backward])

    def interrupted(self, *arguments):
        thread.start()
        while thread.is_alive() and not awaited.is_set():
            awaited.wait(0.01)
        assert module.params.grad is None
        seed(self, *arguments)

    monkeypatch.setattr(DropoutDescriptor, "seed", interrupted)
    torch.manual_seed(9)
    outputs(module, x.detach(), 1)
    thread.join()
    torch.testing.assert_close(module.params.grad, expected, rtol=1e-12, atol=1e-12)
