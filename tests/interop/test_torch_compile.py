"""One graph for a compiler, the operators' contracts, and a program that is exported and read back."""

import pytest

from tests.helpers.oracles import need

need("torch")
import torch  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence  # noqa: E402

from pycudnnrnn.errors import EngineError  # noqa: E402
from pycudnnrnn.interop._torch_ops import rnn, rnn_backward  # noqa: E402
from tests.helpers.pairwise import pairwise  # noqa: E402
from tests.interop.pairs import KINDS, TORCHS_WARNINGS, make_call, make_pair, tensors, worst  # noqa: E402

pytestmark = TORCHS_WARNINGS


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.parametrize(
    ("kind", "form", "backend"),
    [
        ("LSTM", "packed unsorted", "aot_eager"),
        ("GRU", "batched", "aot_eager"),
        ("tanh", "unbatched", "aot_eager"),
        pytest.param("LSTM", "batched", "inductor", marks=pytest.mark.long),
    ],
)
def test_a_compiled_module_is_one_graph_and_equals_torch(kind, form, backend):
    theirs, mine = make_pair(kind, 3, 5, 2, bidirectional=True)
    compiled = torch.compile(mine, fullgraph=True, backend=backend)
    for T in (4, 6):
        call = make_call(theirs, T, 3, form)
        assert worst(call(compiled), call(theirs))[0] <= 1e-10


def test_steps_that_change_do_not_compile_again():
    _, mine = make_pair("GRU", 3, 5, 2)
    compiled = torch.compile(mine, backend="aot_eager", fullgraph=True, dynamic=True)
    compiled(torch.randn(4, 7, 3, dtype=torch.float64))
    with torch.compiler.set_stance("fail_on_recompile"):
        for T, B in ((5, 6), (9, 2), (6, 8)):
            x = torch.randn(T, B, 3, dtype=torch.float64)
            assert torch.equal(compiled(x)[0], mine(x)[0])


@pytest.mark.parametrize(("kind", "ragged", "keep"), pairwise(KINDS, [False, True], [False, True])[:6])
def test_the_operators_keep_torchs_contracts(kind, ragged, keep):
    """No argument is changed, no result shares memory with one, and fake tensors have the real ones' shapes."""
    _, mine = make_pair(kind, 3, 5, 2, bidirectional=True)
    call = make_call(mine, 4, 3)
    packed = pack_padded_sequence(call.x, [2, 4, 1], enforce_sorted=False)
    h, c = [*call.hx, None][:2]
    for seed, dropout in ((None, 0.0), (torch.tensor(3), 0.5)):
        x, sizes = (packed.data, packed.batch_sizes) if ragged else (call.x, None)
        arguments = (x, sizes, h, c, mine.params.detach(), seed, mine._spec_json, dropout, False)
        # The last check compares every byte, and between the arrays of a reserve some are never written.
        checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
        torch.library.opcheck(rnn, (*arguments, keep), test_utils=checks[:3] if keep else checks)
        if keep:
            y, hy, cy, reserve = rnn(*arguments, keep)
            torch.library.opcheck(rnn_backward, (y + 1, hy + 1, cy + 1, y, reserve, *arguments, True))


def test_an_operator_by_itself_has_no_gradient_and_says_so():
    _, mine = make_pair("GRU", 3, 5)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    y, *_ = rnn(x, None, None, None, mine.params, None, mine._spec_json, 0.0, False, True)
    with pytest.raises(EngineError, match=r"interop.torch's modules have the gradients"):
        y.sum().backward()


def test_an_exported_program_computes_the_same_for_any_number_of_steps(tmp_path):
    _, mine = make_pair("LSTM", 3, 5, 2, bidirectional=True, dropout=0.5)
    mine.eval()
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    steps = torch.export.Dim("T", min=2, max=100)
    program = torch.export.export(mine, (x,), dynamic_shapes=({0: steps},))
    torch.export.save(program, tmp_path / "m.pt2")
    for read in (program, torch.export.load(tmp_path / "m.pt2")):
        for T in (4, 9):
            x = torch.randn(T, 2, 3, dtype=torch.float64)
            assert all(map(torch.equal, tensors(read.module()(x)), tensors(mine(x))))
