"""What `algo="auto"` has chosen: to look at, to keep in a file, and to take from one instead of measuring."""

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
    """Return what has been chosen on a device in this process, or what a file holds, which needs no GPU.

    Raises:
        ArgumentError: a file of something else, or a device that has nothing to choose.
        OSError: no file that can be read.
        EngineError: no engine runs on `device`.
    """
    return _book(device).all() if path is None else choices.read(path)


def save_algorithm_choices(path: str | os.PathLike[str], *, device: str = "cuda") -> None:
    """Write what has been chosen on a device in this process to a JSON file.

    What the file holds already stays, but for choices of the same calls. Other processes may write it at the same time.

    Raises:
        ArgumentError: a file of something else, which stays as it is.
        OSError: the file cannot be written.
    """
    _book(device).save(path)


def load_algorithm_choices(path: str | os.PathLike[str], *, device: str = "cuda") -> tuple[AlgorithmChoice, ...]:
    """Take choices from a file, those for this GPU and cuDNN, and return them; such calls are not measured again.

    Plans that were prepared before stay as they are.

    Raises:
        ArgumentError: a file of something else.
        OSError: no file that can be read.
    """
    return _book(device).adopt(choices.read(path))


def _book(device: str) -> ChoiceBook:
    name = _arrays.check_device(device)
    book = getattr(engine_for(name), "choices", None)
    if not isinstance(book, ChoiceBook):
        raise ArgumentError("device", "a CUDA device: the NumPy engine has one algorithm", shorten(name))
    return book
