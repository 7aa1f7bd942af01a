"""Messages: the length of an error's text, and the line that a warning points at."""

from __future__ import annotations

import sys
import warnings
from typing import Final

TEXT_MAX: Final = 2000
"""Most characters of an error message. The values that it quotes may be a megabyte."""


def cut(text: str) -> str:
    """Leave out the middle of a long text: a message names the argument first and the remedy last."""
    half = (TEXT_MAX - 3) // 2
    return text if len(text) <= TEXT_MAX else f"{text[:half]}...{text[-half:]}"


class Assumption(UserWarning):
    """What arrays do not contain, and a converter takes for granted."""


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn, and point at the line outside of this package that called it."""
    frame, level = sys._getframe(1), 2  # noqa: SLF001  documented
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == __name__.partition(".")[0]:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)
