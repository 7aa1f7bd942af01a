"""A few rows of a product that have every pair of values in them."""

import itertools


def pairwise(*axes):
    """Return rows of the product of the axes, so that any two values of two axes are together in one of them.

    Args:
        *axes: the values of each axis.
    """

    def pairs(row):
        return set(itertools.combinations(enumerate(row), 2))

    rows, chosen = list(itertools.product(*axes)), []
    missing = set().union(*map(pairs, rows))
    while missing:
        best = max(rows, key=lambda row: len(pairs(row) & missing))
        chosen.append(best)
        missing -= pairs(best)
    return chosen
