"""JSON with one thing in it changed, and the header of a checkpoint with a hash that fits the change."""

import contextlib
import hashlib
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


def parts(data):
    """Return a checkpoint's header and what comes after it."""
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end]), data[end:]


def rehashed(header, payload):
    """Make a checkpoint, with a hash that fits where it has one: computed again, from the format."""
    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
        header["__metadata__"]["sha256"] = _hash_of(header, payload)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + payload


def _hash_of(header, payload):
    dtypes = {"F16": "float16", "F32": "float32", "F64": "float64", "I64": "int64"}
    metadata = {key: value for key, value in header["__metadata__"].items() if key != "sha256"}
    hashed = [text for key in sorted(metadata) for text in (key, metadata[key])]
    for name in sorted(header.keys() - {"__metadata__"}):
        first, last = header[name]["data_offsets"]
        hashed += [name, dtypes[header[name]["dtype"]], str(tuple(header[name]["shape"])), payload[first:last]]
    hashing = hashlib.sha256()
    for part in hashed:
        raw = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
        hashing.update(len(raw).to_bytes(8, "little") + raw)
    return hashing.hexdigest()
