"""Small sizes and numbers for the tests of the members that TF 1.x's API reference documents."""

import numpy as np

RNG = np.random.default_rng(0)
T, B, I, U = 4, 3, 5, 2


def normal(*shape):
    return RNG.normal(size=shape)
