"""How long the texts of errors are."""

from __future__ import annotations

from typing import Final

TEXT_MAX: Final = 2000
"""Most characters of an error's text: what it quotes is the caller's, or a file's, and may be a megabyte."""


def cut(text: str) -> str:
    """Leave out the middle of a text that is too long: an error names the argument first, and the way out last."""
    kept = (TEXT_MAX - 3) // 2
    return text if len(text) <= TEXT_MAX else f"{text[:kept]}...{text[-kept:]}"
