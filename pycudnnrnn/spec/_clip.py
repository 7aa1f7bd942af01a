"""A bound of `cell_clip`: a float32 with every dtype."""

from __future__ import annotations

import math
import struct


def as_float32(value: float) -> float:
    """Round to float32; numbers beyond its range become infinite."""
    (rounded,) = struct.unpack("f", struct.pack("f", value))
    return float(rounded)


def bound_source(bound: float) -> str:
    """Return the shortest number that rounds to this clip bound: usually the one the user gave."""
    if math.isinf(bound):
        return f"float('{bound}')"
    texts = (repr(float(f"{bound:.{digits}g}")) for digits in range(1, 10))
    return next(text for text in texts if as_float32(float(text)) == bound)
