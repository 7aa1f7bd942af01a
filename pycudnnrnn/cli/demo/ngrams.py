"""Smoothed n-gram models over characters: what a recurrent model has to beat."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def ngram_losses(train: Array, held_out: Array, num_symbols: int) -> dict[str, float]:
    """Return what unigram, bigram and trigram models fitted on `train` lose on `held_out`.

    Each order is interpolated with the one below by Witten and Bell's rule, which has no parameter to tune: a context
    seen n times with k different successors trusts its own counts n / (n + k). The unigrams are smoothed by the
    uniform distribution in the same way.

    Shapes:
        train, held_out: [characters], symbols from 0 to num_symbols - 1.

    Units:
        nats per character.

    Source: Witten and Bell 1991, in the interpolated form of Chen and Goodman 1998.
    """
    context = train[-2:]
    seen = np.concatenate([context, held_out])
    probability: Array = np.full(len(held_out), 1 / num_symbols)
    losses = {}
    for order, name in enumerate(("unigram", "bigram", "trigram")):
        keys = _windows(train, order + 1, num_symbols)
        counts = np.bincount(keys, minlength=num_symbols ** (order + 1)).reshape(-1, num_symbols)
        total, kinds = counts.sum(axis=1), (counts > 0).sum(axis=1)
        key = _windows(seen, order + 1, num_symbols)[2 - order :]
        here, symbol = key // num_symbols, key % num_symbols
        weight = kinds[here]
        mixed = (counts[here, symbol] + weight * probability) / np.maximum(total[here] + weight, 1)
        probability = np.where(total[here] > 0, mixed, probability)
        losses[name] = float(-np.log(probability).mean())
    return losses


def _windows(symbols: Array, width: int, num_symbols: int) -> Array:
    """Number each run of `width` symbols: the last symbol is the lowest digit."""
    windows = np.lib.stride_tricks.sliding_window_view(symbols, width)
    result: Array = windows @ (num_symbols ** np.arange(width - 1, -1, -1, dtype=np.int64))
    return result
