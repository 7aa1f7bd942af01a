"""The length of error messages."""

from __future__ import annotations

from typing import Final

TEXT_MAX: Final = 2000
"""Most characters of an error message. The values that it quotes may be a megabyte."""


def cut(text: str) -> str:
    """Leave out the middle of a long text: a message names the argument first and the remedy last."""
    kept = (TEXT_MAX - 3) // 2
    return text if len(text) <= TEXT_MAX else f"{text[:kept]}...{text[-kept:]}"
