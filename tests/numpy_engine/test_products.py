"""What the compiled kernels are made of: matrix products by tiles, tanh and sigmoid."""

import numpy as np
import pytest

from pycudnnrnn.engines.numpy_engine.compiled import cells as compiled
from pycudnnrnn.engines.numpy_engine.compiled import kernels, products, teams, threads

pytestmark = pytest.mark.compiled


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 15, 400])
def test_a_product_by_tiles_is_the_matrix_product(monkeypatch, n, dtype, transposed, turned):
    """Each height of a tile, a last panel that is full and one that is not, sums that are split and not, and shares."""
    width = products.PANEL_NBYTES // np.dtype(dtype).itemsize
    monkeypatch.setattr(compiled, "WORK_MIN", 1)
    monkeypatch.setattr(threads, "in_team", lambda: 3)
    rng = np.random.default_rng(n)
    for depth in (1, 7, 33):
        for columns in (1, width - 1, width, 9 * width + 3):
            x, w = rng.normal(size=(n, depth)).astype(dtype), rng.normal(size=(depth, columns)).astype(dtype)
            rows = np.stack([x.T if turned else x] * 2, axis=1).reshape(depth if turned else n, -1)
            rows = rows[:, rows.shape[1] // 2 :]  # as the columns of a gate are
            others = np.ascontiguousarray(w.T).T if transposed else w
            before = rng.normal(size=(n + 1, columns)).astype(dtype)
            for adds in (False, True):
                out = before.copy()
                compiled._multiply([(rows, others, out[:n])], transposed=turned, adds=adds)
                expected = x.astype("longdouble") @ w + (before[:n] if adds else 0)
                assert np.abs(out[:n] - expected).max() <= 8 * depth * np.finfo(dtype).eps
                np.testing.assert_array_equal(out[n], before[n])


def test_tanh_is_right_to_three_units_in_the_last_place():
    for dtype in (np.float32, np.float64):
        x = np.concatenate([np.linspace(-50, 50, 20001), np.linspace(-1e-3, 1e-3, 1001), [1e-30, 0]]).astype(dtype)
        found, expected = x.copy(), np.tanh(x.astype(np.longdouble))
        _tanh_rows(found)
        off = np.abs(found - expected) / np.spacing(np.abs(expected).astype(dtype))
        assert off.max() <= 3
        edges = np.array([np.nan, np.inf, -np.inf], dtype)
        _tanh_rows(edges)
        np.testing.assert_array_equal(edges, [np.nan, 1, -1])


def _tanh_rows(row):
    """Run `vectors.tanh_of` as the kernels do: a plain cell of one unit, without a product."""
    steps, empty = np.array([[0, len(row)]]), np.empty((0, 1), row.dtype)
    h, y, R, bias = (np.zeros(shape, row.dtype) for shape in ((len(row), 1), (len(row), 1), (0, 0, 1), 1))
    run, x = kernels.ready(kernels.plain, row.dtype), row[:, None].copy()  # without W, x is added to the gates
    run(h, np.empty_like(x), empty, R, x, R, bias, y, empty, empty, False, steps, *teams.new(1, 1), 0)
    row[:] = y[:, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_small_sigmoids_are_right_too_and_that_of_minus_infinity_is_zero(dtype):
    x = np.concatenate([np.linspace(-60, 60, 20001), [-1e-30, 0]]).astype(dtype)
    expected = 1 / (1 + np.exp(-x.astype(np.longdouble)))
    assert (np.abs(_sigmoids(x) - expected) / expected).max() <= 64 * np.finfo(dtype).eps
    edges = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30], dtype)
    np.testing.assert_array_equal(_sigmoids(edges), [np.nan, 1, 0, 1, 0])


def _sigmoids(x):
    """Run an LSTM cell of one unit, without products: if g is 1 and c was 0, the new c is i."""
    steps, empty, n = np.array([[0, len(x)]]), np.empty((0, 1), x.dtype), len(x)
    h, c, spare_t, spare_m, y, gates, R, bounds = (
        np.zeros(shape, x.dtype) for shape in (*[(n, 1)] * 5, (n, 4), (0, 0, 1), 0)
    )
    bias = np.array([0, 0, 1000, 0], x.dtype)
    run = kernels.ready(kernels.lstm, x.dtype)
    states = h, c, spare_t, spare_m
    run(*states, gates, empty, R, x[:, None], R, bias, bounds, R, y, *[empty] * 6, steps, *teams.new(1, 1), 0)
    return c[:, 0]
