"""An engine with another layout for each RNN: `testing.LayoutEngine` has one, and is for one RNN."""

import dataclasses
import random

from pycudnnrnn.engines.numpy_engine import NumpyEngine
from pycudnnrnn.layout import ParamLayout, arithmetic_layout


class ShuffledEngine(NumpyEngine):
    """The NumPy engine with the regions of each RNN in an order drawn from a seed, with padding between them."""

    def __init__(self, seed):
        self.seed = seed

    def layout(self, spec):
        regions = list(arithmetic_layout(spec).regions)
        rng = random.Random(self.seed)
        places = list(range(len(regions)))
        rng.shuffle(places)
        end = rng.randrange(4)
        for place in places:
            if regions[place].size:
                regions[place] = dataclasses.replace(regions[place], offset=end)
                end += regions[place].size + rng.randrange(4)
        return ParamLayout(end, tuple(regions))
