"""Checks of single arguments. Each error names the argument, the expected value and the value given."""

from __future__ import annotations

import contextlib
import math
import operator
import os
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from pycudnnrnn.errors import ArgumentError, ArgumentTypeError, MissingDependencyError

_Enum = TypeVar("_Enum", bound=StrEnum)


def check_word(enum: type[_Enum], name: str, value: Any) -> _Enum:
    """Return the member of `enum` for a string; the error lists the allowed strings."""
    try:
        return enum(value)
    except ValueError:
        raise ArgumentError(name, one_of([str(m) for m in enum]), shorten(value)) from None


def check_int(name: str, value: Any, low: int, high: int) -> int:
    """Return `value` as an int in [low, high]. NumPy integers are accepted; True, 3.0 and "3" are not."""
    if isinstance(value, (bool, np.bool_)):
        raise ArgumentTypeError(name, "an integer", shorten(value))
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentTypeError(name, "an integer", shorten(value)) from None
    if not low <= number <= high:
        raise ArgumentError(name, f"an integer from {low} to {high}", shorten(number))
    return number


def check_bool(name: str, value: Any) -> bool:
    """Return `value` as a bool. NumPy booleans are accepted; numbers are not."""
    if not isinstance(value, (bool, np.bool_)):
        got = f"an array of shape {tuple(value.shape)}" if getattr(value, "ndim", 0) else shorten(value)
        raise ArgumentTypeError(name, "a Python bool", got)
    return bool(value)


def check_text(name: str, value: Any) -> str:
    """Return `value`, which must be a string."""
    if not isinstance(value, str):
        raise ArgumentTypeError(name, "a string", shorten(value))
    return value


def check_real(name: str, value: Any) -> float:
    """Return `value` as a float. Booleans, strings and NaN are not accepted."""
    if isinstance(value, (bool, np.bool_, str, bytes)):
        raise ArgumentTypeError(name, "a real number", shorten(value))
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ArgumentTypeError(name, "a real number", shorten(value)) from None
    except OverflowError:
        raise ArgumentError(name, "a number that fits a C double", "a larger one") from None
    if math.isnan(number):
        raise ArgumentError(name, "a real number", number)
    return number


def check_dropout(value: Any) -> float:
    """Return a probability of dropping."""
    dropout = check_real("dropout", value)
    if not 0.0 <= dropout <= 1.0:
        raise ArgumentError("dropout", "a probability of dropping, from 0 to 1", dropout)
    return dropout


def shorten(value: Any, most: int = 80) -> str:
    """Return a repr that is short enough for an error message. Values in errors are shown through this."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return f"a value of {type(value)} that has too many digits"
    return text if len(text) <= most else text[: most - 3] + "..."


def plain(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a NumPy array as a plain ndarray over the same memory.

    Raises:
        ArgumentTypeError: a masked array, whose mask would be ignored, or a matrix.
    """
    if type(array) is np.ndarray:
        return array
    if isinstance(array, (np.ma.MaskedArray, np.matrix)):
        raise ArgumentTypeError(name, "a plain array (filled() or np.asarray makes one)", type(array))
    return array.view(np.ndarray)


def one_of(names: list[str]) -> str:
    """Join names for an error text: 'a', 'b' or 'c'."""
    quoted = [repr(name) for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


@contextlib.contextmanager
def needs(package: str, extra: str, purpose: str, install: str | None = None) -> Iterator[None]:
    """Raise a `MissingDependencyError`, which has these arguments, if the block imports a module that is not there.

    A package that is there and fails, as CuPy without its libraries, says itself why.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingDependencyError(package, extra, purpose, install) from error


def is_file_name(name: str) -> bool:
    """Return True if this is a possible name of a file in a folder, not a path."""
    try:
        return name == Path(name).name and name not in {"", ".."} and b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        return False
