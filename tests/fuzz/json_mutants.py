"""JSON with one thing in it changed."""

import contextlib
import json

JUNK = [
    None, True, -1, 0, 1, 2, 2**31, 2**63, 2**64, 10**30, 0.5, 1e308, "", "x", "lstm", "none", "float16", [], {}, [1],
    ["a"], "\ud800",
]  # fmt: skip


def with_a_change(rng, value):
    """Return JSON with one thing in it changed. Text that is JSON itself is walked into."""
    if not rng.randrange(12):
        return rng.choice(JUNK)
    if isinstance(value, str) and value[:1] in "{[":
        with contextlib.suppress(ValueError):
            return json.dumps(with_a_change(rng, json.loads(value)))
    if isinstance(value, (dict, list)) and value:
        pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
        at = rng.randrange(len(pairs))
        key, old = pairs[at]
        new = [[], [(key, old), (key + "_1" if isinstance(key, str) else key, old)], [(str(key)[1:], old)]]
        pairs[at : at + 1] = rng.choice(new) if rng.randrange(6) == 0 else [(key, with_a_change(rng, old))]
        return dict(pairs) if isinstance(value, dict) else [item for _, item in pairs]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return rng.choice([value + 1, value - 1, -value, value * 2, rng.choice(JUNK)])
    return rng.choice(JUNK)
