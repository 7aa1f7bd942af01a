"""Sequences of unequal lengths as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pycudnnrnn import _arrays
from pycudnnrnn.errors import ArgumentError, ArgumentTypeError


def pad(sequences: Sequence[npt.ArrayLike]) -> tuple[npt.NDArray[Any], list[int]]:
    """Put sequences of unequal lengths into one batch, with zeros after each end.

    Args:
        sequences: one array per sequence, [steps, I], with the same I and dtype. The steps may be 0.

    Returns:
        (batch, lengths): an array [T, B, I] of B sequences, where T is the number of steps of the longest, and the
        number of steps of each sequence. Pass them as the input and as `sequence_lengths`.

    Raises:
        ArgumentTypeError: not a list of NumPy arrays.
        ArgumentError: no sequences, or sequences of different I or dtype.

    Example:
        >>> import numpy as np
        >>> from pycudnnrnn import ops, pad
        >>> x, lengths = pad([np.ones((4, 3), "float32"), np.ones((2, 3), "float32")])
        >>> x.shape, lengths
        ((4, 2, 3), [4, 2])
        >>> op = ops.CudnnGRU(1, num_units=8, input_size=3)
        >>> output, h = op(x, None, op.init_params(seed=1), sequence_lengths=lengths)
    """
    arrays = []
    for i, sequence in enumerate(sequences):
        if library := _arrays.library_of(sequence).replace("numpy", ""):
            expected = "a NumPy array, such as np.asarray makes (torch has torch.nn.utils.rnn.pad_sequence)"
            raise ArgumentTypeError(f"sequences[{i}]", expected, f"an array of {library}")
        arrays.append(np.asarray(sequence))
        if arrays[i].ndim != 2 or arrays[i].shape[1] != arrays[0].shape[1]:
            width = arrays[0].shape[1] if arrays[0].ndim == 2 else "I"
            raise ArgumentError(f"sequences[{i}]", f"[steps, {width}]", arrays[i].shape, aspect="shape")
        if arrays[i].dtype != arrays[0].dtype:
            raise ArgumentError(f"sequences[{i}]", f"{arrays[0].dtype}, as the first", arrays[i].dtype, aspect="dtype")
    if not arrays:
        raise ArgumentError("sequences", "at least one", "none")
    lengths = [len(array) for array in arrays]
    batch = np.zeros((max(lengths), len(arrays), arrays[0].shape[1]), arrays[0].dtype)
    for i, array in enumerate(arrays):
        batch[: lengths[i], i] = array
    return batch, lengths
