"""An engine whose params layout is not the predicted one."""

from __future__ import annotations

import dataclasses
import random

from pycudnnrnn.engines.numpy_engine import NumpyEngine
from pycudnnrnn.layout import ParamLayout
from pycudnnrnn.spec import RNNSpec


class PermutedLayoutEngine(NumpyEngine):
    """The NumPy engine over a buffer with its regions in another order and padding between them, drawn from a seed.

    cuDNN may place regions as it likes. Whatever works on this engine asked for the layout and did not assume it.
    Use it with `use_engine`.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def layout(self, spec: RNNSpec) -> ParamLayout:
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
