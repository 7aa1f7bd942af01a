"""torch's packed sequences on the cuDNN engine, on the stand-in: they go to the library as they are, as packed data.

The NumPy engine computes: numbers show that data, lengths and states are in their places, not what cuDNN makes of them.
"""

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from pycudnnrnn import RNNSpec
from pycudnnrnn.engines.cudnn import native_calls as native_passes
from pycudnnrnn.engines.cudnn.descriptors import RNNDescriptor
from pycudnnrnn.errors import ArgumentError, CudnnError
from pycudnnrnn.interop import _torch_cudnn
from pycudnnrnn.interop._torch_rules import TorchArgumentError
from pycudnnrnn.passes import CallConfig
from pycudnnrnn.schedule import Schedule
from tests.interop.pairs import KINDS, Call, make_call, make_pair, worst
from tests.stand_in import shim
from tests.stand_in.torch_on_cpu import STREAM, equal, make, on_numpy, playing, step

PACKED, UNPACKED = "SEQ_MAJOR_PACKED", "SEQ_MAJOR_UNPACKED"

LENGTHS = ([5, 4, 1], [2, 5, 2], [5, 5, 5], [1, 1, 1], [3], [1], [5, 5, 1], [1, 5, 4])


@pytest.fixture
def played(shim_path, monkeypatch):
    yield from playing(shim_path, monkeypatch)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "batch_first": True}], ids=str)
def test_results_and_every_gradient_are_torchs_in_any_order_of_lengths(played, kind, lengths, options):
    theirs, mine = make_pair(kind, 3, 6, 2, **options)
    call = make_call(theirs, max(lengths), len(lengths), "packed unsorted")
    call.lengths = lengths
    difference, where = worst(call(mine), call(theirs))
    assert difference <= 1e-12, where
    assert played.described == [(PACKED, tuple(sorted(lengths, reverse=True)))] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_sorted_data_and_no_states_are_taken_too(played, kind):
    theirs, mine = make_pair(kind, 3, 6, 2, bidirectional=True)
    call = Call(torch.randn(5, 3, 3, dtype=torch.float64), None, "packed", [5, 4, 2])
    assert worst(call(mine), call(theirs))[0] <= 1e-12
    assert played.described == [(PACKED, (5, 4, 2))] * 3


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


def operators(module, x, lengths):
    """The names of torch's operators that a training step runs, inside of ours, too."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiled:
        data = pack_padded_sequence(x, lengths)
        with torch.profiler.record_function("step"):
            module(data)[0].data.sum().backward()
    (whole,) = [event for event in profiled.events() if event.name == "step"]
    start, end = whole.time_range.start, whole.time_range.end
    return {e.name for e in profiled.events() if start <= e.time_range.start <= end}


def test_a_training_step_neither_pads_nor_packs(played):
    module, x = make()
    both = {"aten::_pad_packed_sequence", "aten::_pack_padded_sequence"}
    assert operators(module, x, [5, 4, 2]) & both == set()
    assert played.described
    assert on_numpy(module, x, [5, 4, 2], run=operators) & both == set()


def test_no_memory_is_set_for_padding_that_is_not_there(played, monkeypatch):
    module, x = make()
    monkeypatch.setattr(played.device, "zero_at", lambda *_: pytest.fail("packed data has no padding"))
    step(module, x, [5, 4, 2])


def test_lengths_of_one_size_share_what_is_compiled_and_the_sizes_that_were_asked(played):
    module, x = make()
    step(module, x, [5, 4, 2])
    step(module, x)
    played.calls.clear()
    for lengths in ([5, 5, 5], [5, 1, 1], [2, 5, 5]):
        step(module, x, lengths)
    assert {name for name, *_ in played.calls} == set(shim.PASSES)
    assert {layout for layout, _ in played.described[6:]} == {PACKED}
    step(module, x)
    assert {layout for layout, _ in played.described[-3:]} == {UNPACKED}


def test_packed_and_padded_batches_of_one_size_share_nothing(played, monkeypatch):
    module, x = make()
    batches = [5, 4, 2], [5, 3, 1]
    for lengths in batches:
        found = step(module, x, lengths)
        with monkeypatch.context() as patched:
            patched.setattr(_torch_cudnn, "batch_of", lambda *_, **__: None)  # then ops run a forward, padded
            with torch.no_grad():
                output, final = module(pack_padded_sequence(x, lengths))
        equal(found[:3], [output.data, *final])
    expected = [[(PACKED, tuple(b))] * 3 + [(UNPACKED, tuple(b))] for b in batches]
    assert played.described == [described for of_batch in expected for described in of_batch]


@pytest.mark.parametrize("lengths", [None, [5, 4, 2]], ids=["padded", "packed"])
def test_padded_io_goes_with_the_layout(played, monkeypatch, lengths):
    """The stand-in refuses the other. Padded layouts need it, and for packed data PyTorch turns it off."""
    module, x = make()

    def turned(*arguments, padded_io, **keywords):
        return RNNDescriptor(*arguments, padded_io=not padded_io, **keywords)

    monkeypatch.setattr(native_passes, "RNNDescriptor", turned)
    with pytest.raises(CudnnError, match="BAD_PARAM"):
        step(module, x, lengths)
    assert played.complaints
    while played.complaints:  # of torch's algorithm, and of the standard one after it
        assert "padded I/O" in played.complaints.pop()


@pytest.mark.parametrize("sizes", [[2, 1, 0], [2, 2, 2], [1, 2], [3, 2, 1]], ids=str)
def test_batch_sizes_that_are_not_those_of_the_data_are_refused_before_the_library_is_asked(played, sizes):
    module, _ = make()
    step(module, torch.randn(3, 2, 4, dtype=torch.float64), [3, 2])
    played.calls.clear()
    hx = [torch.zeros(4, 2, 6, dtype=torch.float64)] * 2
    data = PackedSequence(torch.randn(3, 4, dtype=torch.float64), torch.tensor(sizes))
    with pytest.raises(TorchArgumentError, match=r"Invalid (batch_sizes|hx)"):
        module(data, tuple(hx))
    assert not [name for name, *_ in played.calls if name in shim.PASSES]


@pytest.mark.parametrize("algo", ["persist_static", "persist_dynamic", "persist_static_small_h"])
@pytest.mark.parametrize(("T", "B"), [(5, 3), (1, 3), (5, 1)])
def test_packed_data_needs_the_standard_algorithm(played, algo, T, B):
    """As torch has it; whether others take such data is not documented."""
    batch = CallConfig(RNNSpec("lstm", 1, 8, 4, algo=algo), Schedule(T, B, packed=True))
    with pytest.raises(ArgumentError, match="packed"):
        played.native.addressed(STREAM, batch, drops=False)
