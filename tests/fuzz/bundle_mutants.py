"""Mutated checkpoints of TensorFlow's, read one after the other: `python -m tests.fuzz.bundle_mutants`.

Prints one line of JSON: how often each reason to refuse was reached, the worst time and the worst memory. Exits with 1
and a traceback when anything but `CheckpointError` came out, or when a file was accepted with other values in it.

A mutant is the bytes of an index and of its shards. Most have checksums that fit, as somebody would make them who wants
to get past them.
"""

import argparse
import collections
import json
import random
import resource
import tempfile
import time
import tracemalloc
import warnings
from pathlib import Path

from pycudnnrnn import checkpoint
from pycudnnrnn.checkpoint._bundle import crc32c, table
from pycudnnrnn.checkpoint._bundle.wire import Cursor, varint
from pycudnnrnn.errors import CheckpointError

FIXTURES = Path(__file__).parents[1] / "tensorflow" / "files"
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
    index = Cursor(files.index, len(data) - table.FOOTER_NBYTES)
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
    return Files(files.index[: -table.FOOTER_NBYTES] + end[:40].ljust(40, b"\0") + table.MAGIC, files.shards)


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
    more = {b"more/%06d" % i: b"" for i in range(table.KEYS_MAX + rng.randrange(2))}
    return files.with_entries(files.entries | more)


MUTATIONS = [
    flip_bits, flip_a_bit_of_a_shard, truncate, truncate_a_shard, edit_entry, edit_entry, edit_kind, edit_place,
    edit_empty, edit_header, drop_entry, rename, alias, swap_values, put_bytes, edit_block, edit_footer, edit_truth,
]  # fmt: skip
HEAVY = [add_entries]
"""A thousandth of the files each: they cost more than all others together."""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    warnings.simplefilter("ignore")
    rng = random.Random(options.seed)
    reasons, by_mutation = collections.Counter(), collections.defaultdict(collections.Counter)
    worst, peak = (0.0, ""), (0.0, "")
    files = fixture("mixed")
    shared_memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared_memory if shared_memory.is_dir() else None) as made:
        prefix = Path(made) / "mutant"
        files.write(prefix)
        right = checkpoint.read_tensorflow(prefix)
        for number in range(options.count):
            mutation = rng.choice(HEAVY) if number % 1000 == 999 else MUTATIONS[number % len(MUTATIONS)]
            mutant = mutation(rng, files)
            mutant.write(prefix)
            names = None if rng.randrange(2) else sorted(right)
            traced = number % 41 == 0
            if traced:
                tracemalloc.start()
            started = time.process_time()
            try:
                found = checkpoint.read_tensorflow(prefix, names)
                reason = "accepted"
            except CheckpointError as error:
                found, reason = {}, error.reason
            worst = max(worst, (time.process_time() - started, mutation.__name__))
            if traced:
                most = tracemalloc.get_traced_memory()[1] - 2 * (len(mutant.index) + sum(map(len, mutant.shards)))
                peak = max(peak, (most, mutation.__name__))
                tracemalloc.stop()
            assert sum(array.nbytes for array in found.values()) <= sum(map(len, mutant.shards)), mutation.__name__
            if mutation in {flip_bits, flip_a_bit_of_a_shard, truncate, truncate_a_shard}:
                assert all(found[name].tobytes() == right[name].tobytes() for name in found), mutation.__name__
            reasons[reason] += 1
            by_mutation[mutation.__name__][reason] += 1
    print(json.dumps({
        "count": options.count, "reasons": reasons, "by_mutation": by_mutation, "worst_seconds": worst,
        "peak_over_twice_the_file": peak,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
