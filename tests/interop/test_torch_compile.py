"""One graph for a compiler, the operators' contracts, and exports, which run torch's own forward."""

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from pycudnnrnn.errors import EngineError
from pycudnnrnn.interop import torch as ours
from pycudnnrnn.interop._torch_ops import rnn, rnn_backward
from tests.helpers.pairwise import pairwise
from tests.interop.pairs import KINDS, TORCHS_WARNINGS, Model, make_call, make_pair, worst

pytestmark = TORCHS_WARNINGS


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()
    with torch._dynamo.config.patch(allow_rnn=True):
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
        arguments = (x, sizes, h, c, seed, mine._spec_text(), dropout, [w.detach() for w in mine.parameters()])
        # The last check compares every byte, and between the arrays of a reserve some are never written.
        checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
        torch.library.opcheck(rnn, (*arguments, keep), test_utils=checks[:3] if keep else checks)
        if keep:
            y, hy, cy, *kept = rnn(*arguments, keep)
            torch.library.opcheck(rnn_backward, (y + 1, hy + 1, cy + 1, y, *kept, *arguments, True))


def test_an_operator_by_itself_has_no_gradient_and_says_so():
    _, mine = make_pair("GRU", 3, 5)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    y, *_ = rnn(x, None, None, None, None, mine._spec_text(), 0.0, list(mine.parameters()), True)
    with pytest.raises(EngineError, match=r"interop.torch's modules have the gradients"):
        y.sum().backward()


# --- exports ----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=KINDS)
def models(request):
    """Torch's model and ours, in evaluation, and an input."""
    pair = make_pair(request.param, 3, 5, 2, bidirectional=True, dropout=0.5, dtype=torch.float32)
    return *(Model(module).eval() for module in pair), torch.randn(4, 2, 3)


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_needs_nothing_of_this_package(models, strict, tmp_path):
    theirs, mine, x = models
    program = torch.export.export(mine, (x,), strict=strict)
    assert not [node for node in program.graph.nodes if "pycudnnrnn" in str(node.target)]
    torch.export.save(program, tmp_path / "m.pt2")
    for read in (program, torch.export.load(tmp_path / "m.pt2")):
        assert torch.allclose(read.module()(x), theirs(x), atol=1e-6)
    assert torch.allclose(mine(x), theirs(x), atol=1e-6)


def test_a_traced_model_saves_and_runs_without_this_package(models, tmp_path):
    theirs, mine, x = models
    torch.jit.trace(mine, x).save(tmp_path / "m.pt")
    traced = torch.jit.load(tmp_path / "m.pt")
    assert "pycudnnrnn::" not in str(traced.inlined_graph)
    assert torch.allclose(traced(x), theirs(x), atol=1e-6)
    assert traced.state_dict().keys() == mine.state_dict().keys()


def test_a_scripted_model_is_torchs_and_the_model_can_be_turned_back(models):
    theirs, mine, x = models
    scripted = torch.jit.script(mine)
    assert torch.equal(scripted(x), theirs(x))
    assert dict(scripted.named_parameters())["rnn.weight_hh_l1"].data_ptr() == mine.rnn.weight_hh_l1.data_ptr()
    ours.replace_rnns(mine)  # torch's hook leaves torch's module in the model
    assert isinstance(mine.rnn, (ours.LSTM, ours.GRU, ours.RNN))
    assert torch.allclose(mine(x), theirs(x), atol=1e-6)


def test_lengths_in_an_export_are_refused(models):
    _, mine, x = models
    with pytest.raises(RuntimeError, match=r"lengths.*pack the sequences"):
        torch.jit.trace(lambda data: mine.rnn(data, lengths=[4, 2])[0], x)


def test_a_compiled_module_takes_lengths():
    _, mine = make_pair("LSTM", 3, 5)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    compiled = torch.compile(mine, backend="eager")
    assert torch.equal(compiled(x, lengths=[4, 1])[0], mine(x, lengths=[4, 1])[0])
