"""NumPy's functions, made to find no memory one after another."""

import contextlib
import itertools
import sys

import numpy as np


def is_numpys(function):
    """Say whether a function written in C is one of NumPy's, or a method of its arrays."""
    owner = getattr(function, "__self__", None)
    return isinstance(owner, np.ndarray) or (function.__module__ or "").startswith("numpy")


@contextlib.contextmanager
def failing(nth):
    """Let the `nth` call of NumPy's functions in the block fail, counted from 0, in this thread."""
    count = itertools.count()

    def profile(_frame, event, function):
        if event == "c_call" and is_numpys(function) and next(count) == nth:
            raise MemoryError

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


def until_it_works(call, after_each_failure, failing=failing):
    """Let each allocation of a call fail in turn; return what it returns at last, and how many there were."""
    for nth in range(1000):
        try:
            with failing(nth):
                return call(), nth
        except MemoryError:
            after_each_failure()
    raise AssertionError("more than 1000 allocations")
