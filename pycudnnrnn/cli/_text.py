"""Escape text before it is printed: names, paths and error texts come from users and files."""

from __future__ import annotations


def printable(text: str) -> str:
    """Escape characters that are not printable: escape sequences, line ends, marks that reverse the text.

    Everything that commands print passes through here: tables, lines, hints, errors and progress.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    """Escape each line by itself, and keep the line ends."""
    return "\n".join(map(printable, text.split("\n")))


def one_line(text: str) -> str:
    """Join the stripped lines, and escape the result."""
    return printable(" ".join(line.strip() for line in text.splitlines()))
