"""A variable: a named array that a layer owns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from pycudnnrnn import _arrays, _assignment
from pycudnnrnn._arrays import Array
from pycudnnrnn._checks import check_bool, check_text

OPAQUE_KERNEL: Final = "opaque_kernel"
"""TF's name of the params buffer, within a layer's scope."""


class Variable:
    """A named array that a layer owns, with TF's members. `value` is the array itself.

    NumPy functions accept a variable as its array. Indexing reads and writes the array.

    Attributes:
        name: its full name, such as "lstm/opaque_kernel".
        value: the array.
        trainable: whether training changes it.
        constraint: function that an optimizer applies after each update, or None.
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
        """The sizes of the array."""
        return self.value.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the array."""
        return self.value.dtype

    def assign(self, value: Any) -> Variable:
        """Write new values into the array.

        Args:
            value: an array of the same shape; it is cast to the variable's dtype.

        Returns:
            The variable itself.

        Raises:
            ArgumentError: another shape, or no numbers. The array has not changed then.
        """
        self.assigning(self.name, value)()
        return self

    def assigning(self, name: str, value: Any) -> Callable[[], None]:
        """Return a function that writes `value`, after all checks have passed.

        Args:
            name: what errors call the value.
            value: an array of the same shape.

        Raises:
            ArgumentError: another shape, or no numbers.
        """
        return _assignment.assignment(name, self.value, _arrays.host_values(name, value))

    def assign_add(self, delta: Any) -> Variable:
        """Add to the array in place.

        Args:
            delta: what to add, an array or a number.

        Returns:
            The variable itself.
        """
        return self.assign(self.value + delta)

    def assign_sub(self, delta: Any) -> Variable:
        """Subtract from the array in place.

        Args:
            delta: what to subtract, an array or a number.

        Returns:
            The variable itself.
        """
        return self.assign(self.value - delta)

    def numpy(self) -> Array:
        """Return a copy of the array."""
        return np.array(_arrays.to_host(self.name, self.value))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        host = _arrays.to_host(self.name, self.value)
        return np.asarray(host, dtype) if copy is None else np.array(host, dtype, copy=copy)  # 1.26 knows no copy=None

    def __getitem__(self, key: Any) -> Any:
        return self.value[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.value[key] = value

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        return f"Variable({self.name!r}, shape={self.shape}, dtype={self.dtype})"


def value_of(array: Any, name: str = "opaque_params") -> Any:
    """Return the array of a variable, or any other array as it is, after a check that it is one."""
    array = array.value if isinstance(array, Variable) else array
    _arrays.kind_of(name, array)
    return array


def host_of(name: str, array: Any) -> Array:
    """Return the NumPy array over the memory of an array or a variable."""
    host: Array = _arrays.to_host(name, array.value if isinstance(array, Variable) else array)
    return host
