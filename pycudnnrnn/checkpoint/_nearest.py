"""The names that a missing one may have been meant for."""

from __future__ import annotations

import difflib
import heapq
import itertools
from collections.abc import Collection
from typing import Final

COMPARED_AT_MOST: Final = 30
"""Names that are compared letter by letter, which takes a millisecond each."""

LENGTH_MAX: Final = 300
"""Most letters of such a name: the time goes by the square of them."""


def nearest(name: str, names: Collection[str], count: int) -> list[str]:
    """Return the names that are most like one that is not among them; the first ones where none is.

    Compared are those that begin and end as it does, for longest.
    """

    def shared(other: str) -> int:
        ways = zip(name, other, strict=False), zip(name[::-1], other[::-1], strict=False)
        return sum(sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], way)) for way in ways)

    likely = heapq.nlargest(COMPARED_AT_MOST, (other for other in names if len(other) <= LENGTH_MAX), key=shared)
    near = difflib.get_close_matches(name, likely, n=count) if len(name) <= LENGTH_MAX else []
    return near or heapq.nsmallest(count, names)
