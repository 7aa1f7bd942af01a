"""torch's module and ours with the same weights, called alike: every result and every gradient, by name."""

import dataclasses
import functools
import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from pycudnnrnn.interop import torch as ours

torch.set_num_threads(1)
TORCHS_WARNINGS = [
    pytest.mark.filterwarnings(f"ignore:{text}")
    for text in (
        "LSTM with projections is not supported with oneDNN",
        ".*torch.autograd.function.Function.* should not be instantiated",
        "`torch.jit.[a-z_]*` is deprecated",
        ".*weight_norm.*is deprecated",
        "The tensor attributes .*_flat_weights.* were assigned during export",
        "Converting a tensor to a Python boolean might cause the trace to be incorrect",
        "The .grad attribute of a Tensor that is not a leaf Tensor",
    )
]
"""What torch says of itself."""

KINDS = {
    "LSTM": ("LSTM", {}),
    "projected": ("LSTM", {"proj_size": 2}),
    "GRU": ("GRU", {}),
    "tanh": ("RNN", {"nonlinearity": "tanh"}),
    "relu": ("RNN", {"nonlinearity": "relu"}),
}


def build(library, kind, *sizes, **options):
    """Return the module of a kind, torch's or ours."""
    name, keywords = KINDS[kind]
    return getattr(library, name)(*sizes, **keywords, **options)


def make_pair(kind, *sizes, seed=0, dtype=torch.float64, **options):
    """Return torch's module and ours, with torch's weights."""
    torch.manual_seed(seed)
    theirs = build(torch.nn, kind, *sizes, dtype=dtype, **options)
    mine = build(ours, kind, *sizes, dtype=dtype, **options)
    mine.load_state_dict(theirs.state_dict())
    return theirs, mine


class Model(torch.nn.Module):
    """An RNN inside of a model, which has its outputs."""

    def __init__(self, rnn):
        super().__init__()
        self.rnn = rnn

    def forward(self, x):
        return self.rnn(x)[0]


@dataclasses.dataclass
class Call:
    """What a module is called with: `form` says how. "lengths" is a packed sequence to torch's module."""

    x: torch.Tensor
    hx: Any
    form: str
    lengths: list[int]
    strided: bool = False

    def __call__(self, module):
        """Return every result, and the gradient of a random weighting of them for every argument and weight."""
        x = self.x.detach().clone().requires_grad_()
        leaves = [] if self.hx is None else [h.detach().clone().requires_grad_() for h in self.hx]
        data, *states = (torch.stack([a, a], -1)[..., 0] if self.strided else a for a in (x, *leaves))
        options = {}
        if self.form == "lengths" and isinstance(module, (ours.LSTM, ours.GRU, ours.RNN)):
            options["lengths"] = self.lengths
        elif self.form not in {"batched", "unbatched"}:
            data = pack_padded_sequence(data, self.lengths, module.batch_first, enforce_sorted=self.form == "packed")
        hx = None if not states else tuple(states) if module.mode == "LSTM" else states[0]
        module.zero_grad()
        output, final = module(data, hx, **options)
        results = {}
        if isinstance(output, PackedSequence):
            if self.form != "lengths":
                assert torch.equal(output.batch_sizes, data.batch_sizes)
                assert output.sorted_indices is data.sorted_indices
                assert output.unsorted_indices is data.unsorted_indices
                results["data"] = output.data
            T = self.x.shape[1 if module.batch_first else 0]
            output, _ = pad_packed_sequence(output, module.batch_first, total_length=T)
        results["output"] = output
        results |= dict(zip(("h", "c"), final if isinstance(final, tuple) else [final], strict=False))
        weighting = torch.Generator().manual_seed(1)
        loss = sum((r * torch.randn(r.shape, generator=weighting, dtype=r.dtype)).sum() for r in results.values())
        loss.backward()
        results |= {"d_x": x.grad} | {f"d_hx{i}": state.grad for i, state in enumerate(leaves)}
        return results | {f"d_{name}": grad for name, grad in gradients(module).items()}


def tensors(results):
    """Return the tensors of a module's results: data or output, then states."""
    output, states = results
    output = output.data if isinstance(output, PackedSequence) else output
    return [output, *(states if isinstance(states, tuple) else [states])]


def in_one_buffer(module):
    """Say whether the weights' memory is one piece."""
    parts = sorted((weight.data_ptr(), weight.nbytes) for weight in module.parameters())
    return all(start + nbytes == following for (start, nbytes), (following, _) in itertools.pairwise(parts))


def one_graph(compiled):
    """Return a compiled module that runs where torch's compiler takes RNNs into its graphs."""

    @functools.wraps(compiled)
    def run(*arguments):
        with torch._dynamo.config.patch(allow_rnn=True):
            return compiled(*arguments)

    return run


def gradients(module):
    """Return every weight's gradient under torch's name."""
    named = module.named_parameters()
    return {name.removeprefix("_orig_mod."): parameter.grad for name, parameter in named}


def worst(mine, theirs):
    """Return the largest difference of equally named tensors of equal shape and dtype, and where it is."""
    assert list(mine) == list(theirs)
    largest = (0.0, "")
    for name, tensor in mine.items():
        assert tensor.shape == theirs[name].shape, name
        assert tensor.dtype == theirs[name].dtype, name
        difference = (tensor.detach() - theirs[name].detach()).abs().flatten().tolist()
        assert not any(map(math.isnan, difference)), name
        largest = max(largest, (max(difference, default=0.0), name))
    return largest


@st.composite
def calls(draw):
    """Draw a pair and a call of it."""
    kind = draw(st.sampled_from(list(KINDS)))
    I, U = draw(st.integers(1, 5)), draw(st.integers(3, 6))
    options = {name: draw(st.booleans()) for name in ("bias", "batch_first", "bidirectional")}
    layers, seed = draw(st.integers(1, 3)), draw(st.integers(0, 2**31))
    pair = make_pair(kind, I, U, layers, seed=seed, **options)
    form = draw(st.sampled_from(["batched", "unbatched", "packed", "packed unsorted", "lengths"]))
    call = make_call(pair[0], draw(st.integers(1, 6)), draw(st.integers(1, 4)), form, draw(st.booleans()))
    return pair, dataclasses.replace(call, strided=draw(st.booleans()))


def make_call(module, T, B, form="batched", with_states=True):
    """Return a random call; ragged lengths reach T and 1, where there are two sequences."""
    lengths = torch.randint(1, T + 1, (B,))
    lengths[torch.randint(B, ())] = T
    if form == "packed":
        lengths = lengths.sort(descending=True).values
    batch = [] if form == "unbatched" else [B]
    x = torch.randn(*([*batch, T] if module.batch_first else [T, *batch]), module.input_size, dtype=torch.float64)
    count = module.num_layers * (1 + module.bidirectional)
    widths = [module.proj_size or module.hidden_size] + [module.hidden_size] * (module.mode == "LSTM")
    hx = [torch.randn(count, *batch, width, dtype=torch.float64) for width in widths]
    return Call(x, hx if with_states else None, form, lengths.tolist())
