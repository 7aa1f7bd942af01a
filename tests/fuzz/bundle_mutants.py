"""Mutants of TensorFlow's checkpoints: changes of entries, blocks and tensors under checksums that fit.

Somebody who wants to get past the checksums would make them fit. Each mutation takes (rng, files) and returns files.
"""

from typing import NamedTuple

from pycudnnrnn.checkpoint.bundle import table
from pycudnnrnn.checkpoint.bundle.table import Cursor, varint

SIZES = [0, 1, 2, 3, 63, 64, 127, 128, 2**16, 2**31 - 1, 2**31, 2**32, 2**48, 2**62, 2**63, 2**64 - 1]


class Files(NamedTuple):
    """A checkpoint as bytes."""

    index: bytes
    shard: bytes

    @property
    def entries(self):
        return dict(table.read(self.index))

    def with_entries(self, entries):
        return self._replace(index=table.written(entries))


def fields(message):
    """Return a message's fields as [tag, value]: a number, or bytes."""
    cursor, parts = Cursor(message), []
    while cursor.left:
        tag = cursor.varint()
        kinds = {0: cursor.varint, 2: lambda: cursor.take(cursor.varint()), 5: lambda: cursor.take(4)}
        parts.append([tag, kinds[tag & 7]()])
    return parts


def message(parts):
    whole = b""
    for tag, value in parts:
        number = value if isinstance(value, int) else len(value)
        whole += varint(tag) + (varint(number) if tag & 7 != 5 else b"") + (b"" if isinstance(value, int) else value)
    return whole


def changed(rng, parts):
    """Change one field of a message, or of a message in it, or drop or repeat one."""
    at = rng.randrange(len(parts))
    tag, value = parts[at]
    if rng.random() < 0.2:
        return parts[:at] + [[tag, value]] * rng.choice([0, 2]) + parts[at + 1 :]
    if isinstance(value, int):
        parts[at][1] = rng.choice([rng.choice(SIZES), max(value + rng.randint(-2, 2), 0), value ^ 1])
    elif tag & 7 == 5:
        parts[at][1] = rng.randbytes(4)
    else:
        inner = fields(value)
        parts[at][1] = message(changed(rng, inner)) if inner else b"\x08\x01"
    return parts


def edit_entry(rng, files):
    entries = files.entries
    key = rng.choice(sorted(entries))
    return files.with_entries(entries | {key: message(changed(rng, fields(entries[key])))})


def rename(rng, files):
    entries = files.entries
    key = rng.choice(sorted(entries)[1:])
    new = rng.choice([key + b"x", b"\xff" + key, b"\0" + key, key[:-1] + b"\xc3", b"../" + key])
    return files.with_entries(entries | {new: entries.pop(key)})


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
    offset, nbytes = rng.choice([(0, places[0][0] - table.TRAILER_NBYTES), *places])
    kind = rng.randrange(3)
    if kind == 0:
        data[offset + rng.randrange(nbytes)] = rng.randrange(256)
    elif kind == 1:
        data[offset + nbytes] = rng.randrange(1, 3)
    else:
        data[offset + nbytes - 4 : offset + nbytes] = rng.choice(SIZES[:11]).to_bytes(4, "little")
    checksum = table.checksum(bytes(data[offset : offset + nbytes + 1]))
    data[offset + nbytes + 1 : offset + nbytes + 5] = checksum.to_bytes(4, "little")
    return files._replace(index=bytes(data))


def edit_footer(rng, files):
    end = b"".join(varint(rng.choice(SIZES)) for _ in range(4))
    return files._replace(index=files.index[: -table.FOOTER_NBYTES] + end[:40].ljust(40, b"\0") + table.TABLE_END)


MUTATIONS = [edit_entry, rename, put_bytes, edit_block, edit_footer]
