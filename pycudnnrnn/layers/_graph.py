"""A layer's calls as one CUDA graph."""

from __future__ import annotations

from typing import Any, Protocol, Self

from pycudnnrnn.errors import CaptureError
from pycudnnrnn.ops import Graph


class _Layer(Protocol):
    @property
    def params(self) -> Any: ...


class LayerGraph(Graph):
    """An op's `Graph` with the layer's names: `inputs` and `outputs`, and states always in a tuple."""

    _layer: _Layer | None = None

    @classmethod
    def of(cls, graph: Graph, layer: _Layer) -> Self:
        """Take over a graph that captured the layer's buffer."""
        own = cls(graph._native, graph._schedule, graph._kind, graph.params)  # noqa: SLF001
        own._layer = layer
        return own

    @property
    def inputs(self) -> Any:
        return self.x

    @property
    def outputs(self) -> Any:
        return self.y

    @property
    def initial_state(self) -> tuple[Any, ...]:
        return _states(self.hx, self.cx)

    @property
    def states(self) -> tuple[Any, ...]:
        return _states(self.hy, self.cy)

    def replay(self, *, sequence_lengths: Any = None) -> None:
        """Run on the current stream what was captured, with the layer's weights as they are now.

        Raises:
            CaptureError: other sequence lengths, or the layer has been moved, cast or restored into another buffer.
        """
        if self._layer is not None and self._layer.params is not self.params:
            raise CaptureError("the layer's weights are in another buffer than the one that was captured: capture anew")
        super().replay(sequence_lengths=sequence_lengths)


def _states(h: Any, c: Any | None) -> tuple[Any, ...]:
    return (h,) if c is None else (h, c)
