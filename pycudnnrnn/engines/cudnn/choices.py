"""Algorithms that were measured and chosen, as values."""

from __future__ import annotations

import dataclasses

from pycudnnrnn import _arrays, _locks
from pycudnnrnn._checks import shorten, with_hints
from pycudnnrnn.engines import engine_for
from pycudnnrnn.errors import ArgumentError
from pycudnnrnn.spec import Algorithm, MathType, RNNSpec


@dataclasses.dataclass(frozen=True)
class AlgorithmTrial:
    """One algorithm that `algo="auto"` measured, or left out.

    - `algo` and `math_type`: the candidate.
    - `time_us`: the median time of a forward in microseconds, in training with both backward passes; None if it
      failed or was left out.
    - `reason`: why there is no time; otherwise empty.
    """

    algo: Algorithm
    math_type: MathType
    time_us: float | None
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class CallKind:
    """The calls that a choice is for: one exact shape on one model of GPU and one version of cuDNN.

    `spec` is the one asked for, so its `algo` is "auto". Its seed is 0. Its dropout is 0 in calls without dropout.
    """

    gpu: str
    cudnn: int
    spec: RNNSpec
    T: int
    B: int
    ragged: bool
    time_major: bool
    training: bool


@dataclasses.dataclass(frozen=True)
class AlgorithmChoice:
    """A choice of `algo="auto"`, with its measurements.

    - `kind`: the calls that it is for: `gpu`, `cudnn` (version), `spec`, `T`, `B`, `ragged`, `time_major` and
      `training`.
    - `algo` and `math_type`: the choice.
    - `trials`: one `AlgorithmTrial` for each candidate.
    """

    kind: CallKind
    algo: Algorithm
    math_type: MathType
    trials: tuple[AlgorithmTrial, ...]


class Choices:
    """The choices of one device in this process."""

    def __init__(self, gpu: str, cudnn: int) -> None:
        self.gpu, self.cudnn = gpu, cudnn
        self.known: dict[CallKind, AlgorithmChoice] = {}
        self.lock = _locks.rlock()
        """Held while candidates are measured, so that no measurement is done twice or at the same time as another."""


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
