"""Mutated checkpoints, structure-aware, restored one after the other: `python -m tests.fuzz.checkpoint_mutants`."""

import hashlib
import json
import os

import numpy as np

from pycudnnrnn import CudnnGRU, CudnnLSTM, Saver
from tests.fuzz.mutants import Victim, main

KEYWORDS = [
    b"dtype", b"shape", b"data_offsets", b"__metadata__", b"F32", b"F64", b"BF16", b"I64", b"{", b"}", b"[", b"]", b",",
    b":", b'"', b"null", b"true", b"NaN", b"Infinity", b"-0", b"-1", b"1e9", b"1.0", b"18446744073709551615",
    b"99999999999999999999", b"0", b" ", b"\\u0000", b"\\ud800", b"\xff", b"../", b"sha256", b"format", b"items",
]  # fmt: skip
DTYPES = ["F16", "BF16", "F32", "F64", "I32", "I64", "U8", "BOOL", "F8_E4M3", "C64", "f32", ""]
SIZES = [0, 1, 2, 3, 2**16, 2**31, 2**32, 2**63, 2**64, 10**13, 10**30]


class Sparse(bytes):
    """Bytes to be followed by 32 MiB that take no room: more than a header and dropout states may have."""


class Sources:
    """Two checkpoints of different things, as bytes."""

    def __init__(self, folder):
        self.first = make(CudnnGRU(1, 2, seed=3, name="a"), 3)
        self.second = make(CudnnLSTM(1, 2, "skip_input", seed=4, name="b"), 2)
        self.bytes = [saver.save(folder / f"{i}.safetensors").read_bytes() for i, (saver, _) in enumerate(self.both)]

    @property
    def both(self):
        return self.first, self.second


def make(layer, input_size):
    layer.build((None, None, input_size))
    step = np.array([5, -7])
    layer.params[:] = np.random.default_rng(0).normal(size=layer.params.size)
    return Saver({"m": layer, "step": step}), (layer.params, step)


def parts(data):
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end]), data[end:]


def joined(header, payload):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + payload


def rehashed(header, payload):
    """Make the hash fit again, as somebody would who wants to get past it. Written anew, not imported: the format."""
    names = {"F16": "float16", "F32": "float32", "F64": "float64", "I64": "int64"}
    metadata = {k: v for k, v in header["__metadata__"].items() if k != "sha256"}
    found = hashlib.sha256()

    def add(*parts):
        for part in parts:
            raw = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
            found.update(len(raw).to_bytes(8, "little") + raw)

    for key in sorted(metadata):
        add(key, metadata[key])
    for name in sorted(set(header) - {"__metadata__"}):
        entry = header[name]
        first, last = entry["data_offsets"]
        add(name, names[entry["dtype"]], str(tuple(entry["shape"])), payload[first:last])
    header["__metadata__"]["sha256"] = found.hexdigest()
    return joined(header, payload)


# --- mutations: each takes (rng, bytes of the file, bytes of the other file) and returns bytes ------------------------


def flip_bits(rng, data, _):
    data = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def flip_a_bit_of_the_payload(rng, data, _):
    _, payload = parts(data)
    data = bytearray(data)
    data[rng.randrange(len(data) - len(payload), len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def truncate(rng, data, _):
    return data[: rng.randrange(len(data))]


def truncate_at_the_start(rng, data, _):
    return data[: rng.randrange(12)]


def splice(rng, data, other):
    return data[: rng.randrange(len(data))] + other[rng.randrange(len(other)) :]


def swap_headers(_, data, other):
    return joined(parts(other)[0], parts(data)[1])


def edit_length(rng, data, _):
    length = int.from_bytes(data[:8], "little")
    new = rng.choice([rng.choice(SIZES), length + rng.randint(-3, 3), rng.randrange(2**20), 2**20, 2**20 + 1, 10**8])
    return (max(new, 0) % 2**64).to_bytes(8, "little") + data[8:]


def put_keyword(rng, data, _):
    header, payload = parts(data)
    text = json.dumps(header).encode()
    place = rng.randrange(len(text))
    return joined(text[:place] + rng.choice(KEYWORDS) + text[place + rng.randrange(3) :], payload)


def replace_number(rng, data, _):
    header, payload = parts(data)
    name = rng.choice(sorted(set(header) - {"__metadata__"}))
    text = json.dumps(header).encode()
    first, last = header[name]["data_offsets"]
    old = json.dumps([first, last]).encode()
    new = rng.choice(
        [f"[-0, {last}]", f"[{first}.0, {last}]", f"[{first}, {last}, 0]", f"[{first}]", f'["{first}", 1]']
    )
    return joined(text.replace(old, new.encode(), 1), payload)


def pad_header(rng, data, _):
    header, payload = parts(data)
    text = json.dumps(header).encode()
    spaces = b" " * rng.randint(1, 8)
    return joined(rng.choice([text + spaces, spaces + text, text + b"\0"]), payload)


def duplicate(rng, data, _):
    header, payload = parts(data)
    name = rng.choice(sorted(header))
    text = json.dumps(header).encode()
    return joined(text[:-1] + b", " + json.dumps({name: header[name]}).encode()[1:-1] + b"}", payload)


def rename(rng, data, _):
    header, payload = parts(data)
    name = rng.choice(sorted(set(header) - {"__metadata__"}))
    names = ["../" + name, name + "x", name.upper(), "", "m/" + name, name + "\0"]
    names += [name + "\x1b]0;title\x07", name + "\u202e\n", name + "\ud800", name * 5000]
    header[rng.choice(names)] = header.pop(name)
    return joined(header, payload)


def add_entry(rng, data, _):
    header, payload = parts(data)
    header[f"extra/{rng.randrange(9)}"] = {"dtype": "F32", "shape": [0], "data_offsets": [len(payload)] * 2}
    return joined(header, payload)


def add_entries(rng, data, _):
    header, payload = parts(data)
    for i in range(4097):
        header[str(i)] = 0
    return joined(header, payload)


def edit_dtype(rng, data, _):
    header, payload = parts(data)
    header[rng.choice(sorted(set(header) - {"__metadata__"}))]["dtype"] = rng.choice(DTYPES)
    return joined(header, payload)


def edit_shape(rng, data, _):
    header, payload = parts(data)
    entry = header[rng.choice(sorted(set(header) - {"__metadata__"}))]
    shape = entry["shape"]
    entry["shape"] = rng.choice([[*shape[::-1], 1], [*shape, 1], [rng.choice(SIZES)] * len(shape), shape[:-1], [-1]])
    return joined(header, payload)


def edit_sizes(rng, data, _):
    """Sizes that no file has: numbers of thousands of digits, and axes whose product would have as many."""
    header, payload = parts(data)
    entry = header[rng.choice(sorted(set(header) - {"__metadata__"}))]
    digits = [int("9" * rng.choice([19, 20, 309, 4291]))] * rng.choice([1, 2, 40])
    axes = [rng.choice([1, 2**62, 2**63 - 1])] * rng.choice([64, 65, 1000])
    which = rng.randrange(3)
    if which == 2:
        entry["data_offsets"] = digits[:1] * 2
    else:
        entry["shape"] = [digits, axes][which]
    return joined(header, payload)


def edit_offsets(rng, data, _):
    header, payload = parts(data)
    names = sorted(set(header) - {"__metadata__"})
    entry, another = (header[rng.choice(names)] for _ in range(2))
    kind = rng.randrange(4)
    if kind == 0:
        entry["data_offsets"] = list(another["data_offsets"])
    elif kind == 1:
        entry["data_offsets"][rng.randrange(2)] = rng.choice(SIZES)
    elif kind == 2:
        for name in names:
            header[name]["data_offsets"] = [n + 4 for n in header[name]["data_offsets"]]
    else:
        payload += bytes(rng.randint(1, 9))
    return joined(header, payload)


def edit_metadata(rng, data, _):
    header, payload = parts(data)
    metadata = header["__metadata__"]
    key = rng.choice(sorted(metadata))
    kind = rng.randrange(4)
    if kind == 0:
        del metadata[key]
    elif kind == 1:
        metadata[key] = rng.choice(["", "{}", "[]", "null", "x", metadata[key] + " ", metadata[key][:-1]])
    elif kind == 2:
        metadata[key] = rng.choice([1, None, [], {}])
    else:
        header["__metadata__"] = rng.choice([None, [], 1, {}, "x"])
    return joined(header, payload)


def edit_items(rng, data, _):
    header, payload = parts(data)
    items = json.loads(header["__metadata__"]["items"])
    state = items["m"]
    kind = rng.randrange(5)
    if kind == 0:
        rows = [[], ["numpy", -1, 0, 0], ["numpy", 1, 1.5, 0], ["../e", 1, 1, 0], ["e", 1, 1, 2**30], ["e", 1, 1, 8]]
        one = ["e", 1, 1, 0]
        state["dropout"] = rng.choice([None, {}, [one] * 17, [one] * 2, *([row] for row in rows)])
    elif kind == 1:
        state[rng.choice(["spec", "name", "more"])] = rng.choice([None, 1, "", "{}"])
    elif kind == 2:
        del state[rng.choice(sorted(state))]
    elif kind == 3:
        items[rng.choice(["n", "m"])] = rng.choice([{}, None, []])
    else:
        items = rng.choice([[], None, {}, {"step": {}}])
    header["__metadata__"]["items"] = json.dumps(items)
    return rehashed(header, payload)


def edit_spec(rng, data, _):
    header, payload = parts(data)
    items = json.loads(header["__metadata__"]["items"])
    spec = json.loads(items["m"]["spec"])
    key = rng.choice(sorted(spec))
    spec[key] = rng.choice([0, 1, 2, 10**12, -1, None, "lstm", "gru", "rnn_tanh", "none", "bidirectional", [], 0.5])
    items["m"]["spec"] = json.dumps(spec)
    header["__metadata__"]["items"] = json.dumps(items)
    return rehashed(header, payload)


def edit_values(rng, data, _):
    """Other values under a hash that fits: NaN and infinity are refused when asked for."""
    header, payload = parts(data)
    names = [name for name in sorted(set(header) - {"__metadata__"}) if header[name]["dtype"] == "F32"]
    first, last = header[rng.choice(names)]["data_offsets"]
    place = first + 4 * rng.randrange((last - first) // 4) if last > first else 0
    bad = np.float32(rng.choice([np.nan, np.inf, -np.inf])).tobytes()
    return rehashed(header, payload[:place] + bad + payload[place + 4 :])


def grow(rng, data, _):
    return Sparse(data + b"\0" * rng.randrange(1, 9))


MUTATIONS = [
    flip_bits, flip_a_bit_of_the_payload, truncate, truncate_at_the_start, splice, swap_headers, edit_length,
    put_keyword, replace_number, pad_header, duplicate, rename, add_entry, edit_dtype, edit_shape, edit_sizes,
    edit_offsets, edit_metadata, edit_items, edit_spec, edit_values,
]  # fmt: skip
HEAVY = [add_entries, grow]
"""A hundredth of the files each: they cost more than all others together."""


class Ours(Victim):
    """One of two files of different things, restored into its own."""

    def __init__(self, folder):
        self.path, self.sources = folder / "mutant.safetensors", Sources(folder)

    def put(self, rng, mutation):
        which = rng.randrange(2)
        self.saver, self.arrays = self.sources.both[which]
        mutant = mutation(rng, self.sources.bytes[which], self.sources.bytes[1 - which])
        self.path.write_bytes(mutant)
        if isinstance(mutant, Sparse):
            os.truncate(self.path, 32 << 20)
        self.before = [array.copy() for array in self.arrays]

    def read(self):
        self.saver.restore(self.path, require_finite=True)

    def check(self, mutation):
        for array, value in zip(self.arrays, self.before, strict=True):
            assert np.array_equal(array, value), mutation

    def fair_nbytes(self):
        return 2 * sum(array.nbytes for array in self.arrays)


if __name__ == "__main__":
    main(Ours, MUTATIONS, HEAVY, 100)
