"""Compare the results and gradients of two computations of one problem."""

import numpy as np

CLOSE = {"rtol": 0, "atol": 1e-11}


def assert_same(results, expected):
    """Assert that both have the same names, and values that differ by no more than rounding in float64."""
    assert results.keys() == expected.keys()
    for name in results:
        np.testing.assert_allclose(results[name], expected[name], **CLOSE, err_msg=name)
