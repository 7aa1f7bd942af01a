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


def _exp(x: Any) -> Any:
    """Return two numbers whose sum is exp(x): a power of 2, and the rest. The compiler can vectorise it.

    Beyond LIMIT and -LIMIT, exp(x) is that of the limit. NaN stays.
    """


LIMIT: Final = 64


def _exp_for(real: Any, integer: Any, mantissa: int, bias: int, degree: int) -> Any:
    """Return `_exp` for a type: exp(x) = 2**k * exp(r), the second factor by Taylor's series."""
    limit, log2e, ln2 = real(LIMIT), real(1 / math.log(2)), real(math.log(2))
    # Numbers of this size have no fraction. A sum with k ends with the bits of k + bias: the exponent of 2**k.
    whole, bits = real(1.5 * 2**mantissa + bias), integer(mantissa)
    terms = tuple(real(1 / math.factorial(n)) for n in range(degree, 1, -1))

    def exp(x: Any) -> Any:
        x = limit if x > limit else x
        x = -limit if x < -limit else x
        shifted = x * log2e + whole
        r = x - (shifted - whole) * ln2
        p = terms[0]
        for term in terms[1:]:
            p = term + r * p
        power = integer(real(shifted).view(integer) << bits).view(real)
        return power, power * (r + r * r * p)

    return exp


_exp32, _exp64 = _exp_for(np.float32, np.int32, 23, 127, 7), _exp_for(np.float64, np.int64, 52, 1023, 13)


@overload(_exp, inline="never")  # type: ignore[untyped-decorator]
def _exp_of(x: Any) -> Any:
    return _exp32 if x == types.float32 else _exp64


@inner
def tanh(x: Any, one: Any) -> Any:
    """Return the hyperbolic tangent: expm1(2 x) / (expm1(2 x) + 2). `one` has the type of x."""
    power, rest = _exp(x + x)
    expm1 = rest + (power - one)
    return expm1 / (expm1 + (one + one))


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
    one, zero, limit = row.dtype.type(1), row.dtype.type(0), row.dtype.type(LIMIT)
    for u in range(row.size):
        a = -(row[u] + bias[u])
        power, rest = _exp(a)
        row[u] = zero if a > limit else one / (rest + (power + one))  # 0 times infinity is NaN


@inner
def tanh_of(row: Any, bias: Any) -> None:
    one = row.dtype.type(1)
    for u in range(row.size):
        row[u] = tanh(row[u] + bias[u], one)


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
    one = h.dtype.type(1)
    for u in range(h.size):
        t[u] = tanh(c[u], one)
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
    one = n.dtype.type(1)
    for u in range(n.size):
        q[u] += q_bias[u]
        n[u] = tanh(n[u] + n_bias[u] + r[u] * q[u], one)


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
