"""An engine whose params layout differs from the predicted one."""

from __future__ import annotations

import dataclasses
import random

from pycudnnrnn.engines.numpy_engine import NumpyEngine
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.spec import RNNSpec


class PermutedLayoutEngine(NumpyEngine):
    """The NumPy engine with a random layout: the regions are in another order, with padding between them.

    cuDNN may choose any layout. Code that works with this engine asks for the layout and does not assume one. Use it
    with `use_engine`.

    Args:
        seed: seed of the layout. The same seed gives the same layout for a spec.

    Example:
        >>> from pycudnnrnn import ops, testing
        >>> op = ops.CudnnGRU(1, num_units=3, input_size=2)
        >>> op.layout().region(0, 0, "weight").offset
        0
        >>> with testing.use_engine(testing.PermutedLayoutEngine(seed=1)):
        ...     op.layout().region(0, 0, "weight").offset
        12
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def layout(self, spec: RNNSpec) -> ParamLayout:
        """Return the random layout of an RNN's params.

        Args:
            spec: description of the RNN.
        """
        regions = list(super().layout(spec).regions)
        rng = random.Random(self.seed)  # noqa: S311
        places = list(range(len(regions)))
        rng.shuffle(places)
        end = rng.randrange(4)
        for place in places:
            if regions[place].size:
                regions[place] = dataclasses.replace(regions[place], offset=end)
                end += regions[place].size + rng.randrange(4)
        return ParamLayout(end, tuple(regions))
