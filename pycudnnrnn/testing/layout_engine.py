"""An engine whose params have a layout of the caller's choice."""

from __future__ import annotations

from pycudnnrnn._checks import check_type
from pycudnnrnn.engines.numpy_engine import NumpyEngine
from pycudnnrnn.errors import LayoutError
from pycudnnrnn.layout import ParamLayout, canonical_shapes
from pycudnnrnn.spec import RNNSpec


class LayoutEngine(NumpyEngine):
    """The NumPy engine with another layout of the params, for RNNs that this layout belongs to.

    cuDNN may choose any layout. Code that works with this engine asks for the layout and does not assume one. Use it
    with `use_engine`. `strategies.layouts` draws layouts.

    Args:
        layout: the layout of the params.

    Raises:
        ArgumentTypeError: something other than a `ParamLayout`.

    Example:
        >>> from pycudnnrnn import ParamLayout, ops, testing
        >>> op = ops.CudnnGRU(1, num_units=3, input_size=2)
        >>> layout = op.layout()
        >>> with testing.use_engine(testing.LayoutEngine(ParamLayout(99, layout.regions))):
        ...     op.params_size()
        99
    """

    def __init__(self, layout: ParamLayout) -> None:
        check_type("layout", layout, ParamLayout, "a ParamLayout")
        self._layout = layout

    def layout(self, spec: RNNSpec) -> ParamLayout:
        """Return the engine's layout.

        Args:
            spec: description of the RNN.

        Raises:
            LayoutError: an RNN with other regions.
        """
        regions = [(*region.key, region.gate, region.shape, region.num_dirs) for region in self._layout.regions]
        expected = [(p, i, kind, gate, shape, spec.num_dirs) for p, i, gate, kind, shape in canonical_shapes(spec)]
        if regions != expected:
            raise LayoutError(f"the layout of this LayoutEngine has other regions than those of {spec!r}")
        return self._layout
