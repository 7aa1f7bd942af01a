"""The places of a torch module's weights in the params buffer of an engine."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import torch

from pycudnnrnn.convert.gates import form_of
from pycudnnrnn.convert.pytorch import name_of
from pycudnnrnn.engines import engine_for
from pycudnnrnn.engines.cudnn.descriptors import ALIGNMENT_NBYTES
from pycudnnrnn.interop._torch_rules import TorchArgumentError
from pycudnnrnn.layout import ParamLayout, Region, arithmetic_layout
from pycudnnrnn.spec import LSTM_PROJECTION_ID, BiasMode, Direction, RNNMode, RNNSpec

KNOWN_MAX: Final = 256
"""Most specs, places, batches and plans that are remembered."""


class Part(NamedTuple):
    """A weight's shape and strides, and the (start, stop) of its elements in a params buffer, a pair for each run."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    runs: tuple[tuple[int, int], ...]


Parts = tuple[Part, ...]
"""The parts of a params buffer, in torch's order of weights."""


class Places:
    """Where each weight of a module is in a params buffer. Weights are in torch's order."""

    def __init__(self, spec: RNNSpec, layout: ParamLayout) -> None:
        regions = _regions(spec, layout)
        self.size = layout.size
        self._names = [*regions]
        self.parts: Parts = tuple(map(_part, regions.values()))
        self._is_flat = all(len(part.runs) == 1 for part in self.parts)
        """Whether the engine stores the gates of each matrix next to each other, so that weights can be views."""

    def join(self, weights: Sequence[Any], dtype: Any) -> tuple[int, Any]:
        """Return the address of the buffer that the weights are in, and what owns its memory: the weights, or a copy.

        They are copied if they do not lie as in a buffer. Memory that lies so is one, whoever allocated it: each byte
        that is read belongs to a weight.
        """
        itemsize = weights[0].element_size()
        address = weights[0].data_ptr() - self.parts[0].runs[0][0] * itemsize
        if self._is_flat and not address % ALIGNMENT_NBYTES:
            for weight, (shape, _, runs) in zip(weights, self.parts, strict=True):
                if weight.data_ptr() != address + runs[0][0] * itemsize or weight.dtype is not dtype:
                    break
                if weight.shape != shape or not weight.is_contiguous():
                    break
            else:
                return address, weights
        buffer = self.copy(weights, dtype)
        return buffer.data_ptr(), buffer

    def flatten(self, weights: Sequence[Any]) -> None:
        """Move parameters into one buffer, unless they are in one, or gates are stored separately.

        Each parameter has its own storage object over its part of the memory. Code that saves a part of a storage saves
        all of it, and code that sees two tensors in one storage takes them for one weight.
        """
        _, buffer = self.join(weights, weights[0].dtype)
        if self._is_flat and buffer is not weights:
            with torch.cuda.device_of(buffer):  # torch exports from the current device alone
                for weight, view in zip(weights, split(buffer, self.parts), strict=True):
                    weight.data = torch.from_dlpack(view)

    def copy(self, weights: Sequence[Any], dtype: Any) -> Any:
        """Return a new buffer with the weights in it.

        Raises:
            TorchArgumentError: weights of a wrong shape, or of more than one dtype or device.
        """
        like = weights[0]
        for name, weight, (shape, *_) in zip(self._names, weights, self.parts, strict=True):
            if (weight.shape, weight.dtype, weight.device) != (shape, like.dtype, like.device):
                got = f"{tuple(weight.shape)} of {weight.dtype} on {weight.device}"
                raise TorchArgumentError(name, f"{shape} of {like.dtype} on {like.device}", got)
        buffer = like.new_zeros(self.size, dtype=dtype)
        places = [buffer[start:stop] for part in self.parts for start, stop in part.runs]
        pieces = [
            piece
            for weight, part in zip(weights, self.parts, strict=True)
            for piece in weight.reshape(-1).split([stop - start for start, stop in part.runs])
        ]
        torch._foreach_copy_(places, pieces)
        return buffer


def _regions(spec: RNNSpec, layout: ParamLayout) -> dict[str, tuple[Region, ...]]:
    """Return the regions of each of torch's weights, in torch's order of names and of gates."""
    first = {"W": 0, "R": spec.num_gates, "P": LSTM_PROJECTION_ID, "bW": 0, "bR": spec.num_gates}
    form = form_of("pytorch", spec.mode, biases=spec.has_input_bias, projection=bool(spec.num_proj))
    return {
        name_of(tensor.name, *divmod(p, spec.num_dirs)): tuple(
            layout.region(p, first[kind] + gate, "bias" if kind.startswith("b") else "weight")
            for kind, gate in tensor.parts
        )
        for p in range(spec.num_pseudo_layers)
        for tensor in form
    }


def _part(regions: tuple[Region, ...]) -> Part:
    shape = (sum(region.shape[0] for region in regions), *regions[0].shape[1:])
    cuts = [0, *(n for n, (a, b) in enumerate(itertools.pairwise(regions), 1) if a.slice.stop != b.offset)]
    runs = [regions[start:stop] for start, stop in itertools.pairwise([*cuts, len(regions)])]
    return Part(shape, (*shape[1:], 1), tuple((run[0].offset, run[-1].slice.stop) for run in runs))


def split(params: Any, parts: Parts) -> list[Any]:
    """Return the weights of a buffer, or their gradients: views, or copies where gates are stored separately."""
    return [
        params.as_strided(shape, strides, runs[0][0])
        if len(runs) == 1
        else torch.cat([params[start:stop] for start, stop in runs]).view(shape)
        for shape, strides, runs in parts
    ]


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def parts_on(device: str, spec_text: str, dtype: Any) -> Parts:
    """Return where each weight is, as plain numbers, which a compiler takes for constants."""
    return places_of(engine_on(device), spec_text, dtype).parts


def engine_on(device: str) -> Any:
    """Return the engine of a device; None for "meta", whose tensors have no numbers."""
    return None if device == "meta" else engine_for(device)


@functools.lru_cache(maxsize=KNOWN_MAX)
def places_of(engine: Any, spec_text: str, dtype: Any) -> Places:
    """Return the places in an engine's layout."""
    spec = spec_of(spec_text, dtype)
    return Places(spec, arithmetic_layout(spec) if engine is None else engine.layout(spec))


@functools.lru_cache(maxsize=KNOWN_MAX)
def spec_of(text: str, dtype: Any, dropout: float = 0.0) -> RNNSpec:
    """Return the spec of calls in one dtype. The text is the module's, which a compiler can make of its attributes."""
    mode, *numbers, bias, bidirectional = text.split()
    num_layers, hidden_size, input_size, proj_size = map(int, numbers)
    return RNNSpec(
        RNNMode(mode.lower()), num_layers, hidden_size, input_size,
        direction=Direction.BIDIRECTIONAL if bidirectional == "True" else Direction.UNIDIRECTIONAL,
        num_proj=proj_size or None, bias_mode=BiasMode.DOUBLE if bias == "True" else BiasMode.NONE,
        dtype=dtype, dropout=dropout,
    )  # fmt: skip
