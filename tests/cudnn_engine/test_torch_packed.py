"""torch's packed sequences on the cuDNN engine, on the stand-in: they go to the library as they are, as packed data.

The NumPy engine computes: numbers show that data, lengths and states are in their places, not what cuDNN makes of them.
"""

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from tests.helpers.pairwise import pairwise
from tests.interop.pairs import KINDS, make_call, make_pair, worst
from tests.stand_in import shim
from tests.stand_in.torch_on_cpu import equal, make, on_numpy, step

PACKED, UNPACKED = "SEQ_MAJOR_PACKED", "SEQ_MAJOR_UNPACKED"

LENGTHS = ((5, 4, 1), (2, 5, 2), (5, 5, 5), (1, 1, 1), (3,), (1,), (5, 5, 1), (1, 5, 4))


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(("kind", "lengths", "both"), pairwise(KINDS, LENGTHS, [False, True]), ids=str)
def test_results_and_every_gradient_are_torchs_in_any_order_of_lengths(played, kind, lengths, both):
    theirs, mine = make_pair(kind, 3, 6, 2, bidirectional=both, batch_first=both)
    call = make_call(theirs, max(lengths), len(lengths), "packed unsorted")
    call.lengths = [*lengths]
    difference, where = worst(call(mine), call(theirs))
    assert difference <= 1e-12, where
    assert played.described == [(PACKED, tuple(sorted(lengths, reverse=True)))] * 3


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


def test_packed_and_padded_batches_of_one_size_share_nothing(played):
    module, x = make()
    batches = [5, 4, 2], None, [5, 3, 1], None
    for lengths in batches:
        equal(step(module, x, lengths), on_numpy(module, x, lengths))
    expected = [(UNPACKED, (5, 5, 5)) if lengths is None else (PACKED, tuple(lengths)) for lengths in batches]
    assert played.described == [described for described in expected for _ in range(3)]
