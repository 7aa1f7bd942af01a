"""A variable: a named array that a layer owns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _arrays, _overwriting
from pycudnnrnn._checks import check_bool, check_text

Array = npt.NDArray[Any]


class Variable:
    """A named array with TF's members: `assign`, `assign_add`, `assign_sub`, `shape`, `dtype`, `numpy`.

    `value` is the array itself. NumPy functions take a variable for that array, and indexing reads and writes it.
    """

    def __init__(
        self, name: str, value: Array, *, trainable: bool = True, constraint: Callable[[Any], Any] | None = None
    ) -> None:
        self.name = check_text("name", name)
        self.value = value
        self.trainable = check_bool("trainable", trainable)
        self.constraint = constraint

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.value.dtype

    def assign(self, value: Any) -> Variable:
        """Write `value` into the array, cast to its dtype.

        Raises:
            ArgumentError: a value of another shape, or no numbers. Nothing has been written then.
        """
        self.assigning(self.name, value)()
        return self

    def assigning(self, name: str, value: Any) -> Callable[[], None]:
        """Return what writes `value`, after all that can fail has been done; errors call it `name`.

        Raises:
            ArgumentError: as of `assign`.
        """
        return _overwriting.overwriting(name, self.value, _arrays.host_values(name, value))

    def assign_add(self, delta: Any) -> Variable:
        return self.assign(self.value + delta)

    def assign_sub(self, delta: Any) -> Variable:
        return self.assign(self.value - delta)

    def numpy(self) -> Array:
        """Return a copy of the array."""
        return np.array(_arrays.to_host(self.name, self.value))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        own: Array = _arrays.to_host(self.name, self.value)
        array = own if dtype is None else own.astype(dtype, copy=False)
        if copy is False and array is not self.value:
            raise ValueError("a variable of another dtype is a copy")
        return array.copy() if copy else array

    def __getitem__(self, key: Any) -> Any:
        return self.value[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.value[key] = value

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        return f"Variable({self.name!r}, shape={self.shape}, dtype={self.dtype})"
