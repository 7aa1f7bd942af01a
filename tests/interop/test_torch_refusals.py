"""What torch refuses is refused: where torch's tests name a type, with an error of that type too."""

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from pycudnnrnn.errors import ArgumentTypeError
from pycudnnrnn.interop._torch_rules import TorchArgumentError
from tests.interop.pairs import TORCHS_WARNINGS, make_call, make_pair

pytestmark = TORCHS_WARNINGS


BAD_INPUTS = {
    "narrow": (lambda x: x[..., :2], "input.size"),
    "one axis": (lambda x: x[0, 0], "Expected input to be 2D or 3D, got 1D instead"),
    "no step": (lambda x: x[:0], "at least one step|sequence length"),
    "float32": (lambda x: x.float(), "RNN input dtype"),
    "elsewhere": (lambda x: x.to("meta"), "device"),
    "narrow, packed": (lambda x: pack_padded_sequence(x[..., :2], [4, 2]), "input.size|cannot be multiplied"),
}
BAD_STATES = {
    "one layer": (lambda h: h[:1], r"\(1, 2, 5\)"),
    "narrow": (lambda h: h[..., :1], r"\(4, 2, 1\)"),
    "float32": (lambda h: h.float(), "float32"),
    "elsewhere": (lambda h: h.to("meta"), "meta"),
}


@pytest.fixture(params=["LSTM", "GRU"])
def called(request):
    """Torch's module and ours, and a call."""
    pair = make_pair(request.param, 3, 5, 2, bidirectional=True)
    return *pair, make_call(pair[0], 4, 2)


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_a_bad_input_raises_torchs_type_of_error(called, case):
    theirs, mine, call = called
    change, text = BAD_INPUTS[case]
    with pytest.raises((RuntimeError, ValueError), match=text) as expected:
        theirs(change(call.x))
    with pytest.raises(expected.type, match=text):
        mine(change(call.x))


@pytest.mark.parametrize("case", BAD_STATES)
def test_a_bad_state_is_named(called, case):
    _, mine, call = called
    change, text = BAD_STATES[case]
    for place in range(len(call.hx)):
        states = [change(h) if n == place else h for n, h in enumerate(call.hx)]
        name = rf"hx\[{place}\]" if len(call.hx) == 2 else "hx"
        for data in (call.x, pack_padded_sequence(call.x, [4, 2])):
            with pytest.raises(TorchArgumentError, match=f"^Invalid {name}: .*{text}"):
                mine(data, tuple(states) if len(states) == 2 else states[0])


def test_what_is_no_input_no_state_and_no_pair_of_states_is_named(called):
    _, mine, call = called
    wrong = [(call.x.numpy(), None, "Invalid input: <class 'numpy.ndarray'>"), (call.x, 3, "Invalid hx")]
    wrong += [(call.x, call.hx[0], "Invalid hx: .*a pair")] if mine.mode == "LSTM" else []
    for data, hx, text in wrong:
        with pytest.raises(ArgumentTypeError, match=text):
            mine(data, hx)


@pytest.mark.parametrize(
    ("got", "change"),
    [(r"\(14,\)", lambda w: w[:-1]), ("float32", lambda w: w.float()), ("device: meta", lambda w: w.to("meta"))],
)
def test_a_weight_that_does_not_fit_is_named(got, change):
    _, mine = make_pair("GRU", 3, 5, 2)
    wrong = {"bias_hh_l1": change(mine.bias_hh_l1.detach())}
    with pytest.raises(TorchArgumentError, match=f"Invalid (bias_hh_l1|weights).*{got}.*, expecting"):
        torch.func.functional_call(mine, wrong, (torch.zeros(2, 2, 3, dtype=torch.float64),))


def test_lengths_that_do_not_fit_are_named(called):
    _, mine, call = called
    for lengths, error, text in (
        ([5, 1], ValueError, r"lengths\[0\]: 5, .*from 0 to T=4"),
        ([-1, 1], ValueError, r"lengths\[0\]"),
        ([1], ValueError, "lengths shape"),
        ([1.0, 2.0], TypeError, "lengths dtype"),
        (torch.empty(2, dtype=torch.int64, device="meta"), TypeError, "lengths: .*host integers"),
    ):
        with pytest.raises(error, match=f"Invalid {text}"):
            mine(call.x, lengths=lengths)
    for data in (call.x[:, 0], pack_padded_sequence(call.x, [4, 2])):
        with pytest.raises((TypeError, ValueError), match="Invalid input"):
            mine(data, lengths=[4, 2])
    hx = [torch.cat([h, h], 1) for h in call.hx]
    with pytest.raises(TorchArgumentError, match="Invalid hx"):
        mine(call.x, tuple(hx) if mine.mode == "LSTM" else hx[0], lengths=[1, 2])


def test_batch_sizes_that_are_not_those_of_the_data_are_named_before_memory_is_read_by_them(called):
    """Rising, too few or too many rows, negative, beyond the data, of an empty step, and not int64 of one axis."""
    _, mine, call = called
    hx = tuple(call.hx) if mine.mode == "LSTM" else call.hx[0]
    sizes = [[1, 2], [2], [2, 2], [2, -1, 2], [-1, 4], [3, 2, 1], [2, 1, 0], [[2, 1]], [2.0, 1.0]]
    for wrong in (*map(torch.tensor, sizes), torch.empty(0, dtype=torch.int64), torch.tensor([2, 1]).int()):
        for states in (None, hx):
            with pytest.raises(TorchArgumentError, match=r"Invalid batch_sizes: |Invalid hx"):
                mine(PackedSequence(torch.randn(3, 3, dtype=torch.float64), wrong), states)
