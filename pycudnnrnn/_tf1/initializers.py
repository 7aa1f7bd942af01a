"""Starting values by name: the words that `kernel_initializer` and `bias_initializer` take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _arrays
from pycudnnrnn._checks import one_of, shorten
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError

Array = npt.NDArray[Any]
Initializer = Callable[[tuple[int, ...], np.dtype[Any]], Any]
InitializerName = Literal[
    "glorot_uniform", "glorot_normal", "orthogonal", "random_normal", "random_uniform", "zeros", "ones"
]
InitializerLike = InitializerName | Initializer


def _glorot_uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    bound = (6 / sum(_fans(shape))) ** 0.5
    return rng.uniform(-bound, bound, shape)


def _glorot_normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.normal(0, (2 / sum(_fans(shape))) ** 0.5, shape)


def _orthogonal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    if len(shape) != 2:
        raise ArgumentError("initializer", "a matrix to make orthogonal", shape, aspect="shape")
    rows, columns = shape
    q, r = np.linalg.qr(rng.normal(size=(max(shape), min(shape))))
    q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)  # without this, q is not uniform over the rotations
    return q if rows >= columns else q.T


_NAMED: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = {
    "glorot_uniform": _glorot_uniform,
    "glorot_normal": _glorot_normal,
    "orthogonal": _orthogonal,
    "random_normal": lambda rng, shape: rng.normal(0, 0.05, shape),
    "random_uniform": lambda rng, shape: rng.uniform(-0.05, 0.05, shape),
    "zeros": lambda _, shape: np.zeros(shape),
    "ones": lambda _, shape: np.ones(shape),
}


def check_initializer(name: str, given: Any, default: InitializerName) -> InitializerLike:
    """Return an initializer's name or a callable over (shape, dtype).

    Raises:
        ArgumentError: a name that is not known.
        ArgumentTypeError: neither a string nor a callable.
    """
    value: InitializerLike = default if given is None else given
    if isinstance(value, str) and value not in _NAMED:
        raise ArgumentError(name, one_of(list(_NAMED)), shorten(value))
    if not isinstance(value, str) and not callable(value):
        raise ArgumentTypeError(name, "a name or a callable over (shape, dtype)", type(value))
    return value


def initial_value(
    name: str, initializer: str | Initializer, shape: tuple[int, ...], dtype: np.dtype[Any], seed: list[int]
) -> Array:
    """Return an array of `shape`. A named initializer draws from `seed`; a callable gets (shape, dtype).

    Raises:
        ArgumentError: a callable returned another shape.
    """
    if isinstance(initializer, str):
        return _NAMED[initializer](np.random.default_rng(seed), shape).astype(dtype)
    array = _arrays.host_values(name, initializer(shape, dtype))
    if array.shape != shape:
        raise ArgumentError(name, f"a callable that returns shape {shape}", array.shape, aspect="shape")
    return array.astype(dtype)


def _fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return fan-in and fan-out, or two numbers with the same sum. A vector counts as in TF."""
    if not shape:
        return 1, 1
    return (shape[0], shape[0]) if len(shape) == 1 else (shape[-2], shape[-1])
