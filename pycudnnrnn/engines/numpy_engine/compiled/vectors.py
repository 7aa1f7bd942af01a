"""The loops over units that `kernels` is made of: each is a separate function on contiguous rows.

The compiler vectorises such a loop, but not one loop over many arrays. Numbers follow IEEE 754, with products and sums
fused: NaN and infinity are data. Comparisons are written so that NaN stays; with `min` and `max` that would depend on
the order of their arguments.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numba import types
from numba.extending import overload

from pycudnnrnn.engines.numpy_engine.compiled.products import inner


def tanh(x: Any) -> Any:
    """Return the hyperbolic tangent, by instructions that the compiler can vectorise."""


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
        a[u] = zero if a[u] <= zero else dh[u]  # as in torch: 0 even for NaN where a is 0; passes where a is NaN
