"""A layer's calls as one CUDA graph."""

from __future__ import annotations

from typing import Any, Protocol, Self

from pycudnnrnn.errors import CaptureError
from pycudnnrnn.ops import Graph


class _Layer(Protocol):
    @property
    def params(self) -> Any: ...


class LayerGraph(Graph):
    """A layer's call as a CUDA graph, which `layer.capture` makes: an op's `Graph` with the layer's names.

    Write into `inputs` and `initial_state`, call `replay`, read `outputs` and `states`. States are always tuples.
    """

    _layer: _Layer | None = None

    @classmethod
    def of(cls, graph: Graph, layer: _Layer) -> Self:
        """Return an op's graph as this layer's; `layer.capture` calls this.

        Args:
            graph: a graph that captured the layer's weights.
            layer: the layer that owns the weights.
        """
        own = cls(graph._native, graph._schedule, graph._kind, graph.params, graph._check)  # noqa: SLF001
        own._layer = layer
        return own

    @property
    def inputs(self) -> Any:
        """The array to write the inputs into."""
        return self.x

    @property
    def outputs(self) -> Any:
        """The array that each replay writes the outputs into."""
        return self.y

    @property
    def initial_state(self) -> tuple[Any, ...]:
        """The arrays to write the initial states into: (h, c) for the LSTM, (h,) for the others."""
        return _states(self.hx, self.cx)

    @property
    def states(self) -> tuple[Any, ...]:
        """The arrays that each replay writes the final states into: (h, c) or (h,)."""
        return _states(self.hy, self.cy)

    def replay(self, *, sequence_lengths: Any = None) -> None:
        """Run the captured call on the current stream, with the layer's present weights.

        Args:
            sequence_lengths: the lengths of the capture, to have them checked. None: no check. Default: None.

        Raises:
            CaptureError: other sequence lengths, or the layer's weights are in another array (it was moved or cast).
            StateError: the dropout state was set after the capture.
        """
        if self._layer is not None and self._layer.params is not self.params:
            raise CaptureError("the layer's weights are in another buffer than the captured one: capture it again")
        super().replay(sequence_lengths=sequence_lengths)


def _states(h: Any, c: Any | None) -> tuple[Any, ...]:
    return (h,) if c is None else (h, c)
