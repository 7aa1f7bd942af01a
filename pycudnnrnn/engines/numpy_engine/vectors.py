"""The loops over units that `kernels` is made of: each a function of its own on contiguous rows.

The compiler makes vector instructions of such a loop, and not of one loop over many arrays. Numbers follow IEEE 754,
with products and sums fused: NaN and infinity are data. Comparisons are written so that NaN stays; with `min` and `max`
that would depend on the order of their arguments.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numba import types
from numba.extending import overload, register_jitable

OPTIONS: Final[dict[str, Any]] = {"fastmath": {"contract"}, "error_model": "numpy"}
"""With Python's error model each division would be checked, and no loop with one be made vector instructions."""

ROW_MAJOR, PLAIN, TRANSPOSED = 101, 111, 112
"""Source: cblas.h, CBLAS_LAYOUT and CBLAS_TRANSPOSE."""

BLOCK: Final = 16
"""Columns that are turned at a time."""


def inner(function: Any) -> Any:
    """Return a part of kernels, which is compiled with them."""
    return register_jitable(**OPTIONS)(function)


def _external(name: str, real: Any) -> tuple[Any, Any]:
    """Declare gemm and gemv of a type, as `blas` makes them known: 64-bit integers, addresses as integers."""
    size, at = types.int64, types.uintp
    gemm = types.void(size, size, size, size, size, size, real, at, size, at, size, real, at, size)
    gemv = types.void(size, size, size, size, real, at, size, at, size, real, at, size)
    return (
        types.ExternalFunction(f"pycudnnrnn_{name}gemm", gemm),
        types.ExternalFunction(f"pycudnnrnn_{name}gemv", gemv),
    )


_sgemm, _sgemv = _external("s", types.float32)
_dgemm, _dgemv = _external("d", types.float64)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent, as instructions that a loop can be made vectors of."""


_F: Final = np.float32
_D: Final = np.float64
_I: Final = np.int32
_J: Final = np.int64
_F_ONE, _F_TWO, _F_LIMIT = _F(1), _F(2), _F(20)
_F_LOG2E, _F_LN2_HIGH, _F_LN2_LOW = _F(1 / math.log(2)), _F(0.693359375), _F(math.log(2) - 0.693359375)
_F_ROUND, _F_BITS = _F(1.5 * 2**23), _I(23)
_F_BIAS = _I(np.array(_F_ROUND).view(_I) - 127)
_F2, _F3, _F4, _F5, _F6, _F7 = (_F(1 / math.factorial(n)) for n in range(2, 8))
_D_LIMIT, _D_LOG2E, _D_LN2_HIGH = _D(44), _D(1 / math.log(2)), _D(6.93145751953125e-1)
_D_LN2_LOW = _D(1.42860682030941723212e-6)
_D_ROUND, _D_BITS = _D(1.5 * 2**52), _J(52)
_D_BIAS = _J(np.array(_D_ROUND).view(_J) - 1023)
_D2, _D3, _D4, _D5, _D6, _D7, _D8, _D9, _D10, _D11, _D12, _D13 = (_D(1 / math.factorial(n)) for n in range(2, 14))


def _tanh32(x: Any) -> Any:
    e = x + x
    e = _F_LIMIT if e > _F_LIMIT else e  # NaN stays
    e = -_F_LIMIT if e < -_F_LIMIT else e
    shifted = e * _F_LOG2E + _F_ROUND
    k = shifted - _F_ROUND
    r = (e - k * _F_LN2_HIGH) - k * _F_LN2_LOW
    p = r + r * r * (_F2 + r * (_F3 + r * (_F4 + r * (_F5 + r * (_F6 + r * _F7)))))
    power = np.int32(np.int32(np.float32(shifted).view(np.int32) - _F_BIAS) << _F_BITS).view(np.float32)
    expm1 = power * p + (power - _F_ONE)
    return expm1 / (expm1 + _F_TWO)


def _tanh64(x: Any) -> Any:
    e = x + x
    e = _D_LIMIT if e > _D_LIMIT else e
    e = -_D_LIMIT if e < -_D_LIMIT else e
    shifted = e * _D_LOG2E + _D_ROUND
    k = shifted - _D_ROUND
    r = (e - k * _D_LN2_HIGH) - k * _D_LN2_LOW
    p = _D8 + r * (_D9 + r * (_D10 + r * (_D11 + r * (_D12 + r * _D13))))
    p = _D2 + r * (_D3 + r * (_D4 + r * (_D5 + r * (_D6 + r * (_D7 + r * p)))))
    p = r + r * r * p
    power = np.int64((np.float64(shifted).view(np.int64) - _D_BIAS) << _D_BITS).view(np.float64)
    expm1 = power * p + (power - 1.0)
    return expm1 / (expm1 + 2.0)


@overload(tanh, inline="never")  # type: ignore[untyped-decorator]
def _tanh_of(x: Any) -> Any:
    """tanh(x) = expm1(2 x) / (expm1(2 x) + 2), with expm1 as 2**k * p(r) + (2**k - 1), by Taylor's series."""
    return _tanh32 if x == types.float32 else _tanh64


def product(out: Any, x: Any, w: Any, transposed: Any, beta: Any, scratch: Any) -> None:
    """Write beta * out + x @ w, or with w transposed."""


def _product_by(gemm: Any, gemv: Any) -> Any:
    def multiply(out: Any, x: Any, w: Any, transposed: Any, beta: Any, scratch: Any) -> None:
        one, zero = out.dtype.type(1), out.dtype.type(0)
        n, k, m = x.shape[0], x.shape[1], out.shape[1]
        to, at, by, columns, across = out.ctypes.data, x.ctypes.data, w.ctypes.data, w.shape[1], scratch.ctypes.data
        if n == 1:
            way = PLAIN if transposed else TRANSPOSED
            gemv(ROW_MAJOR, way, w.shape[0], columns, one, by, columns, at, 1, beta, to, 1)
        elif transposed and (out.itemsize == 4 or n < 16):
            # OpenBLAS takes up to twice as long for x @ w.T as for (w @ x.T).T, where x has few rows.
            turn(scratch[: k * n], x)
            below = scratch[k * n : (k + m) * n]
            gemm(ROW_MAJOR, PLAIN, PLAIN, m, n, k, one, by, k, across, n, zero, below.ctypes.data, n)
            turn_back(out, below, beta != zero)
        else:
            way = TRANSPOSED if transposed else PLAIN
            gemm(ROW_MAJOR, PLAIN, way, n, m, k, one, at, k, by, columns, beta, to, m)

    return multiply


_sproduct, _dproduct = _product_by(_sgemm, _sgemv), _product_by(_dgemm, _dgemv)


@overload(product, inline="never")  # type: ignore[untyped-decorator]
def _product_of(out: Any, x: Any, w: Any, transposed: Any, beta: Any, scratch: Any) -> Any:  # noqa: ARG001
    return _sproduct if out.dtype == types.float32 else _dproduct


@inner
def turn(out: Any, x: Any) -> None:
    n = x.shape[0]
    for b in range(n):
        for u in range(x.shape[1]):
            out[u * n + b] = x[b, u]


@inner
def turn_back(out: Any, x: Any, adds: Any) -> None:
    n = out.shape[0]
    for first in range(0, out.shape[1], BLOCK):
        last = first + BLOCK if first + BLOCK < out.shape[1] else out.shape[1]
        for b in range(n):
            row = out[b]
            for u in range(first, last):
                row[u] = x[u * n + b] + row[u] if adds else x[u * n + b]


@inner
def copy(out: Any, row: Any) -> None:
    for u in range(out.size):
        out[u] = row[u]


@inner
def add(out: Any, row: Any) -> None:
    for u in range(out.size):
        out[u] += row[u]


@inner
def sigmoid_of(row: Any, bias: Any) -> None:
    half = row.dtype.type(0.5)
    for u in range(row.size):
        row[u] = half + half * tanh(half * (row[u] + bias[u]))


@inner
def tanh_of(row: Any, bias: Any) -> None:
    for u in range(row.size):
        row[u] = tanh(row[u] + bias[u])


@inner
def relu_of(row: Any, bias: Any) -> None:
    zero = row.dtype.type(0)
    for u in range(row.size):
        a = row[u] + bias[u]
        row[u] = zero if a <= zero else a  # NaN stays


@inner
def lstm_c(c: Any, i: Any, f: Any, g: Any) -> None:
    for u in range(c.size):
        c[u] = f[u] * c[u] + i[u] * g[u]


@inner
def clip(c: Any, low: Any, high: Any) -> None:
    for u in range(c.size):
        a = c[u]
        a = low if a < low else a
        c[u] = high if a > high else a


@inner
def within(inside: Any, c: Any, low: Any, high: Any) -> None:
    one, zero = c.dtype.type(1), c.dtype.type(0)
    for u in range(c.size):
        inside[u] = one if (c[u] >= low) & (c[u] <= high) else zero


@inner
def lstm_h(h: Any, t: Any, c: Any, o: Any) -> None:
    for u in range(h.size):
        t[u] = tanh(c[u])
        h[u] = o[u] * t[u]


@inner
def lstm_o_back(o: Any, t: Any, dm: Any, dc: Any) -> None:
    one = o.dtype.type(1)
    for u in range(o.size):
        d = dm[u] * o[u]
        dc[u] += d * (one - t[u] * t[u])
        o[u] = d * t[u] * (one - o[u])


@inner
def lstm_ig_back(i: Any, g: Any, dc: Any) -> None:
    one = i.dtype.type(1)
    for u in range(i.size):
        d = dc[u] * i[u]
        i[u] = d * g[u] * (one - i[u])
        g[u] = d * (one - g[u] * g[u])


@inner
def lstm_f_back(f: Any, c_before: Any, dc: Any) -> None:
    one = f.dtype.type(1)
    for u in range(f.size):
        d = dc[u] * f[u]
        f[u] = d * c_before[u] * (one - f[u])
        dc[u] = d


@inner
def keep_open(dc: Any, inside: Any) -> None:
    for u in range(dc.size):
        dc[u] *= inside[u]


@inner
def gru_n(n: Any, q: Any, q_bias: Any, r: Any, n_bias: Any) -> None:
    for u in range(n.size):
        q[u] += q_bias[u]
        n[u] = tanh(n[u] + n_bias[u] + r[u] * q[u])


@inner
def gru_h(h: Any, z: Any, n: Any) -> None:
    for u in range(h.size):
        h[u] = n[u] + z[u] * (h[u] - n[u])


@inner
def gru_z_back(z: Any, n: Any, h_before: Any, dh: Any) -> None:
    """Leave the gradient of z in z, that of n on its input side in n, and what goes straight back in dh."""
    one = z.dtype.type(1)
    for u in range(z.size):
        carried = z[u] * dh[u]
        slope = one - n[u] * n[u]
        z[u] = (h_before[u] - n[u]) * carried * (one - z[u])
        n[u] = (dh[u] - carried) * slope
        dh[u] = carried


@inner
def gru_n_back(r: Any, n: Any, q: Any) -> None:
    """Leave the gradient of r in r, that of n on its input side in q, and that on its recurrent side in n."""
    one = r.dtype.type(1)
    for u in range(r.size):
        d = n[u] * r[u]
        r[u] = d * q[u] * (one - r[u])
        q[u] = n[u]
        n[u] = d


@inner
def tanh_back(a: Any, dh: Any) -> None:
    one = a.dtype.type(1)
    for u in range(a.size):
        a[u] = (one - a[u] * a[u]) * dh[u]


@inner
def relu_back(a: Any, dh: Any) -> None:
    zero = a.dtype.type(0)
    for u in range(a.size):
        a[u] = zero if a[u] <= zero else dh[u]  # a closed unit lets no NaN through; open at NaN, as in torch
