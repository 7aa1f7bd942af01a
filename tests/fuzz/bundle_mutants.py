"""Mutated checkpoints of TensorFlow's, read one after the other: `python -m tests.fuzz.bundle_mutants`.

A mutant is the bytes of an index and of its shards. Most have checksums that fit, as somebody would make them who wants
to get past them.
"""

from pathlib import Path

from pycudnnrnn import checkpoint
from pycudnnrnn.checkpoint._bundle import crc32c, table
from pycudnnrnn.checkpoint._bundle.wire import Cursor, varint
from tests.fuzz.mutants import Victim, main

FIXTURES = Path(__file__).parents[1] / "checkpoint/tensorflow/files"
SIZES = [0, 1, 2, 3, 63, 64, 127, 128, 2**16, 2**31 - 1, 2**31, 2**32, 2**48, 2**62, 2**63, 2**64 - 1]
KINDS = [*range(36), 2**31, 2**64 - 1]


class Files:
    """A checkpoint as bytes: an index, and its shards."""

    def __init__(self, index, shards):
        self.index, self.shards = index, shards

    @property
    def entries(self):
        return dict(table.read(self.index))

    def with_entries(self, entries):
        return Files(table.written(entries), self.shards)

    def write(self, prefix):
        prefix.with_name(f"{prefix.name}.index").write_bytes(self.index)
        for i, shard in enumerate(self.shards):
            prefix.with_name(f"{prefix.name}.data-{i:05d}-of-{len(self.shards):05d}").write_bytes(shard)


def fixture(name):
    shards = sorted(FIXTURES.glob(f"{name}.data-*"))
    return Files((FIXTURES / f"{name}.index").read_bytes(), [shard.read_bytes() for shard in shards])


def fields(message):
    """Return a message's fields as [tag, value]: a number, or bytes."""
    cursor, found = Cursor(message), []
    while cursor.left:
        tag = cursor.varint()
        kinds = {0: cursor.varint, 2: lambda: cursor.take(cursor.varint()), 5: lambda: cursor.take(4)}
        found.append([tag, kinds[tag & 7]()])
    return found


def message(parts):
    whole = b""
    for tag, value in parts:
        number = value if isinstance(value, int) else len(value)
        whole += varint(tag) + (varint(number) if tag & 7 != 5 else b"") + (b"" if isinstance(value, int) else value)
    return whole


def changed(rng, found):
    """Change one field of a message, or of a message in it."""
    part = rng.choice(found)
    if isinstance(part[1], int):
        part[1] = rng.choice([rng.choice(SIZES), max(part[1] + rng.randint(-2, 2), 0), part[1] ^ 1])
    elif part[0] & 7 == 5:
        part[1] = rng.randbytes(4)
    else:
        inner = fields(part[1])
        part[1] = message(changed(rng, inner) if inner and rng.random() < 0.9 else inner[:-1])
    return found


# --- mutations: each takes (rng, files) and returns files -------------------------------------------------------------


def flip_bits(rng, files):
    data = bytearray(files.index)
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return Files(bytes(data), files.shards)


def flip_a_bit_of_a_shard(rng, files):
    shards = [bytearray(shard) for shard in files.shards]
    shard = rng.choice(shards)
    shard[rng.randrange(len(shard))] ^= 1 << rng.randrange(8)
    return Files(files.index, list(map(bytes, shards)))


def truncate(rng, files):
    return Files(files.index[: rng.randrange(len(files.index))], files.shards)


def truncate_a_shard(rng, files):
    i = rng.randrange(len(files.shards))
    cut = [s[: rng.randrange(len(s))] if i == j else s for j, s in enumerate(files.shards)]
    return Files(files.index, cut)


def edit_entry(rng, files):
    entries = files.entries
    key = rng.choice(sorted(entries))
    return files.with_entries(entries | {key: message(changed(rng, fields(entries[key])))})


def edit_kind(rng, files):
    return _with_number(rng, files, 1, rng.choice(KINDS))


def edit_place(rng, files):
    return _with_number(rng, files, rng.choice([3, 4, 5]), rng.choice(SIZES))


def _with_number(rng, files, number, value):
    entries = files.entries
    key = rng.choice(sorted(entries)[1:])
    parts = [part for part in fields(entries[key]) if part[0] >> 3 != number]
    return files.with_entries(entries | {key: message([*parts, [number << 3, value]])})


def edit_empty(rng, files):
    """Sizes beside a 0: of no element, and too many for the product."""
    entries = files.entries
    sizes = message([[18, message([[8, size]])] for size in rng.sample([0, *SIZES], rng.randint(1, 4))])
    parts = [part for part in fields(entries[b"e"]) if part[0] >> 3 != 2]
    return files.with_entries(entries | {b"e": message([*parts, [18, sizes]])})


def edit_header(rng, files):
    parts = [
        [8, rng.choice([0, 1, 2, 3, 4097, 2**63])],
        [16, rng.randrange(2)],
        [26, message([[16, rng.randrange(3)]])],
    ]
    return files.with_entries(files.entries | {b"": message(rng.sample(parts, rng.randint(1, 3)))})


def drop_entry(rng, files):
    entries = files.entries
    del entries[rng.choice(sorted(entries))]
    return files.with_entries(entries)


def rename(rng, files):
    entries = files.entries
    key = rng.choice(sorted(entries)[1:])
    new = rng.choice([key + b"x", b"\xff" + key, b"\0" + key, key[:-1] + b"\xc3", b"../" + key])
    return files.with_entries(entries | {new: entries.pop(key)})


def alias(rng, files):
    """Many names for the bytes of one tensor: more memory than there are files."""
    entries = files.entries
    whole = entries[rng.choice([b"kernel", b"narrow", b"scalar"])]
    return files.with_entries(entries | {b"alias/%d" % i: whole for i in range(40)})


def swap_values(rng, files):
    entries = files.entries
    a, b = rng.sample(sorted(entries), 2)
    return files.with_entries(entries | {a: entries[b], b: entries[a]})


def put_bytes(rng, files):
    """Bytes in a message that are none."""
    entries = files.entries
    key = rng.choice(sorted(entries))
    old, at = entries[key], rng.randrange(len(entries[key]) + 1)
    new = rng.choice([b"\xff" * 11, b"\x0b", b"\x0c", b"\x80", b"\x12\x7f", rng.randbytes(3), b"\x09" + bytes(8)])
    return files.with_entries(entries | {key: old[:at] + new + old[at + rng.randrange(3) :]})


def edit_block(rng, files):
    """A block's bytes changed under a checksum that fits: its lengths, its restarts, how it is compressed."""
    data = bytearray(files.index)
    index = Cursor(files.index[-table.FOOTER_NBYTES :])
    places = [(index.varint(), index.varint()) for _ in range(2)]
    first = places[0][0] - table.TRAILER_NBYTES
    offset, nbytes = rng.choice([(0, first), *places])
    kind = rng.randrange(3)
    if kind == 0:
        data[offset + rng.randrange(nbytes)] = rng.randrange(256)
    elif kind == 1:
        data[offset + nbytes] = rng.randrange(1, 3)
    else:
        data[offset + nbytes - 4 : offset + nbytes] = rng.choice(SIZES[:11]).to_bytes(4, "little")
    checksum = crc32c.masked(crc32c.checksum(bytes(data[offset : offset + nbytes + 1])))
    data[offset + nbytes + 1 : offset + nbytes + 5] = checksum.to_bytes(4, "little")
    return Files(bytes(data), files.shards)


def edit_footer(rng, files):
    end = varint(rng.choice(SIZES)) + varint(rng.choice(SIZES)) + varint(rng.choice(SIZES)) + varint(rng.choice(SIZES))
    return Files(files.index[: -table.FOOTER_NBYTES] + end[:40].ljust(40, b"\0") + table.TABLE_END, files.shards)


def edit_truth(rng, files):
    """A truth value of 2, under a checksum that fits."""
    entries = files.entries
    parts = dict(fields(entries[b"truth"]))
    place = parts.get(0x20, 0) + rng.randrange(parts[0x28])
    shard = bytearray(files.shards[parts.get(0x18, 0)])
    shard[place] = rng.randrange(2, 256)
    own = bytes(shard[parts.get(0x20, 0) : parts.get(0x20, 0) + parts[0x28]])
    parts[0x35] = crc32c.masked(crc32c.checksum(own)).to_bytes(4, "little")
    shards = [bytes(shard) if i == parts.get(0x18, 0) else s for i, s in enumerate(files.shards)]
    return Files(table.written(entries | {b"truth": message(list(map(list, parts.items())))}), shards)


def add_entries(rng, files):
    length = table.NAMES_NBYTES_MAX // 5000 + rng.randrange(-50, 50)
    more = {b"more/%0*d" % (length - 5, i): b"" for i in range(5000)}
    return files.with_entries(files.entries | more)


MUTATIONS = [
    flip_bits, flip_a_bit_of_a_shard, truncate, truncate_a_shard, edit_entry, edit_entry, edit_kind, edit_place,
    edit_empty, edit_header, drop_entry, rename, alias, swap_values, put_bytes, edit_block, edit_footer, edit_truth,
]  # fmt: skip
HEAVY = [add_entries]
"""A thousandth of the files each: they cost more than all others together."""


class Bundle(Victim):
    """One of TensorFlow's own checkpoints, read whole or by its names."""

    def __init__(self, folder):
        self.prefix, self.files, self.found = folder / "mutant", fixture("mixed"), {}
        self.files.write(self.prefix)
        self.right = checkpoint.read_tensorflow(self.prefix)

    def put(self, rng, mutation):
        self.mutant = mutation(rng, self.files)
        self.mutant.write(self.prefix)
        self.names = None if rng.randrange(2) else sorted(self.right)

    def read(self):
        self.found = {}
        self.found = checkpoint.read_tensorflow(self.prefix, self.names)

    def check(self, mutation):
        assert sum(array.nbytes for array in self.found.values()) <= sum(map(len, self.mutant.shards)), mutation
        if mutation in {flip_bits, flip_a_bit_of_a_shard, truncate, truncate_a_shard}:
            assert all(array.tobytes() == self.right[name].tobytes() for name, array in self.found.items()), mutation

    def fair_nbytes(self):
        return 2 * (len(self.mutant.index) + sum(map(len, self.mutant.shards)))


if __name__ == "__main__":
    main(Bundle, MUTATIONS, HEAVY, 1000)
