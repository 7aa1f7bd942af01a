"""The choices of `algo="auto"`: read them, save them to a file, and load them in place of measuring."""

from __future__ import annotations

import os

from pycudnnrnn import _arrays
from pycudnnrnn._checks import shorten
from pycudnnrnn.engines import engine_for
from pycudnnrnn.engines.cudnn import choices
from pycudnnrnn.engines.cudnn.choices import AlgorithmChoice, ChoiceBook
from pycudnnrnn.errors import ArgumentError


def algorithm_choices(
    path: str | os.PathLike[str] | None = None, *, device: str = "cuda"
) -> tuple[AlgorithmChoice, ...]:
    """Return the choices made on a device in this process, or those in a file.

    Args:
        path: a file of `save_algorithm_choices`; reading it needs no GPU. None: the choices of this process.
            Default: None.
        device: without a path, the CUDA device: "cuda" (the current one) or "cuda:<index>". Default: "cuda".

    Raises:
        ArgumentError: a file that is not one of choices, or the device "cpu".
        OSError: a file that cannot be read.
        EngineError: no engine runs on `device`.

    Example:
        On a GPU::

            op = ops.CudnnLSTM(1, 8, 4, algo="auto")
            op.prepare(20, 3, is_training=True, device="cuda")
            (choice,) = ops.algorithm_choices()
            print(choice.algo, choice.trials)

        The NumPy engine has nothing to choose:

        >>> from pycudnnrnn import ops
        >>> ops.algorithm_choices(device="cpu")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        pycudnnrnn.errors.ArgumentError: Invalid device: 'cpu', expecting a CUDA device...
    """
    return _book(device).all() if path is None else choices.read(path)


def save_algorithm_choices(path: str | os.PathLike[str], *, device: str = "cuda") -> None:
    """Write the choices made on a device in this process to a JSON file.

    Existing choices in the file are kept, except those for the same calls, which are replaced. Several processes can
    write the same file.

    Args:
        path: the file, new or of an earlier `save_algorithm_choices`.
        device: the CUDA device: "cuda" (the current one) or "cuda:<index>". Default: "cuda".

    Raises:
        ArgumentError: an existing file that is not one of choices. It is not changed.
        OSError: a file that cannot be written.
        EngineError: no engine runs on `device`.

    Example:
        On a GPU::

            ops.save_algorithm_choices("choices.json")

        The NumPy engine has nothing to save:

        >>> from pycudnnrnn import ops
        >>> ops.save_algorithm_choices("choices.json", device="cpu")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        pycudnnrnn.errors.ArgumentError: Invalid device: 'cpu', expecting a CUDA device...
    """
    _book(device).save(path)


def load_algorithm_choices(path: str | os.PathLike[str], *, device: str = "cuda") -> tuple[AlgorithmChoice, ...]:
    """Load the choices for this GPU and cuDNN version from a file. Their calls are not measured again.

    Plans that exist already do not change.

    Args:
        path: a file of `save_algorithm_choices`.
        device: the CUDA device: "cuda" (the current one) or "cuda:<index>". Default: "cuda".

    Returns:
        The choices that were loaded.

    Raises:
        ArgumentError: a file that is not one of choices.
        OSError: a file that cannot be read.
        EngineError: no engine runs on `device`.

    Example:
        On a GPU::

            choices = ops.load_algorithm_choices("choices.json")

        The NumPy engine has nothing to load:

        >>> from pycudnnrnn import ops
        >>> ops.load_algorithm_choices("choices.json", device="cpu")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        pycudnnrnn.errors.ArgumentError: Invalid device: 'cpu', expecting a CUDA device...
    """
    return _book(device).adopt(choices.read(path))


def _book(device: str) -> ChoiceBook:
    name = _arrays.check_device(device)
    book = getattr(engine_for(name), "choices", None)
    if not isinstance(book, ChoiceBook):
        raise ArgumentError("device", "a CUDA device: the NumPy engine has one algorithm", shorten(name))
    return book
