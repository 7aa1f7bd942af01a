"""Data with sequences as the first axis, for `time_major=False`, and back."""

import dataclasses

import numpy as np


def by_batch(problem):
    """Return a problem with its data in this order, contiguous."""
    data = {name: np.ascontiguousarray(getattr(problem, name).swapaxes(0, 1)) for name in ("x", "dy")}
    return dataclasses.replace(problem, **data)


def by_time(results):
    """Return results with their data in the usual order."""
    return results | {name: results[name].swapaxes(0, 1) for name in ("y", "dx")}
