"""The choices of `algo="auto"`."""

from __future__ import annotations

from pycudnnrnn import _arrays
from pycudnnrnn._checks import shorten, with_hints
from pycudnnrnn.engines import engine_for
from pycudnnrnn.engines.cudnn.choices import AlgorithmChoice, Choices
from pycudnnrnn.errors import ArgumentError


@with_hints
def algorithm_choices(*, device: str = "cuda") -> tuple[AlgorithmChoice, ...]:
    """Return the choices made on a device in this process.

    A choice holds for this process only. To have it again, pass its `algo` and `math_type` to the op.

    Args:
        device: the CUDA device: "cuda" (the current one) or "cuda:<index>". Default: "cuda".

    Raises:
        ArgumentError: the device "cpu".
        EngineError: no engine runs on `device`.
        MissingDependencyError: a CUDA device without CuPy.

    Example:
        On a GPU::

            op = ops.CudnnLSTM(1, 8, 4, algo="auto")
            op.prepare(20, 3, is_training=True, device="cuda")
            (choice,) = ops.algorithm_choices()
            again = ops.CudnnLSTM(1, 8, 4, algo=choice.algo, math_type=choice.math_type)

        The NumPy engine has nothing to choose:

        >>> from pycudnnrnn import ops
        >>> ops.algorithm_choices(device="cpu")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        pycudnnrnn.errors.ArgumentError: Invalid device: 'cpu', expecting a CUDA device...
    """
    name = _arrays.check_device(device)
    choices = getattr(engine_for(name), "choices", None)
    if not isinstance(choices, Choices):
        raise ArgumentError("device", "a CUDA device: the NumPy engine has one algorithm", shorten(name))
    return tuple(choices.known.values())
