"""Find the names that are most like a missing one."""

from __future__ import annotations

import difflib
import heapq
import itertools
from collections.abc import Collection
from typing import Final

COMPARED_AT_MOST: Final = 30
"""Most names that are compared letter by letter. Each comparison takes about a millisecond."""

LENGTH_MAX: Final = 300
"""Most letters of a compared name: the time grows with their square."""


def nearest(name: str, names: Collection[str], count: int) -> list[str]:
    """Return the names that are most like a missing one, or the first names if none is similar.

    Only the names that share the longest beginning and end with it are compared.
    """

    def shared(other: str) -> int:
        ways = zip(name, other, strict=False), zip(name[::-1], other[::-1], strict=False)
        return sum(sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], way)) for way in ways)

    likely = heapq.nlargest(COMPARED_AT_MOST, (other for other in names if len(other) <= LENGTH_MAX), key=shared)
    near = difflib.get_close_matches(name, likely, n=count) if len(name) <= LENGTH_MAX else []
    return near or heapq.nsmallest(count, names)
