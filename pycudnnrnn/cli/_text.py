"""Text as it may be printed: names, paths and error texts are anybody's. Needs no library."""

from __future__ import annotations


def printable(text: str) -> str:
    """Write out what is not a printable character: escape sequences, line ends, marks that turn the reading around.

    All that commands print goes through here: in tables, lines, hints, errors and progress.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    """Write it out line by line: the line ends are our own here, and not a name's."""
    return "\n".join(map(printable, text.split("\n")))


def one_line(text: str) -> str:
    """Join lines, each stripped, and write out the rest."""
    return printable(" ".join(line.strip() for line in text.splitlines()))
