"""Teams of threads that share each step of a kernel. The first is the caller; the others may come late, or never.

A kernel's work is a sequence of turns, each cut into as many parts as the team may have threads. A thread takes its
own part of a turn, then those that nobody has taken, and waits until all are done: only for parts that a running thread
has taken. So the caller alone gets through, and who comes late begins at the turn that the others are at.

Products are cut by columns, the rest of a step by sequences, so that gates go from core to core. A cut by units would
keep them where they are, and is slower: each core then writes runs shorter than a page, and fetches the other's lines
ahead. Measured on two cores (Sapphire Rapids): to change 64 KB each takes 1.2 us in rows of 4 KB, in runs of 512 bytes
7 to 9 us.

A team is an array of integers, one a cache line: how many parts are done, and for each part how many turns have been
taken.
"""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pycudnnrnn.engines.numpy_engine.compiled.products import inner, product

SPINS: Final = 2000
"""How often a waiting thread looks again before it lets other threads run: about 2 us."""

_LINE: Final = 8
_YIELD: Final = "SwitchToThread" if os.name == "nt" else "sched_yield"
_INTEGER: Final = ir.IntType(64)


def team(size: int) -> np.ndarray[Any, Any]:
    """Return a team of so many threads, for a single call of a kernel by each."""
    return np.zeros((size + 1, _LINE), np.int64)


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _INTEGER.as_pointer())


def _changed(operation: str) -> Any:
    """Return a function for kernels that changes an integer in one go and returns what it was before."""

    @intrinsic  # type: ignore[untyped-decorator]
    def change(_: Any, _address: Any, _value: Any) -> Any:
        def emit(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            return builder.atomic_rmw(operation, _pointer(builder, arguments[0]), arguments[1], "acq_rel")

        return types.int64(types.intp, types.int64), emit

    return change


_add, _raise = _changed("add"), _changed("max")


@intrinsic  # type: ignore[untyped-decorator]
def _read(_: Any, _address: Any) -> Any:
    """Read an integer that other threads change, and see all that they wrote before."""

    def emit(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.load_atomic(_pointer(builder, arguments[0]), "acquire", 8)

    return types.int64(types.intp), emit


@intrinsic  # type: ignore[untyped-decorator]
def _let_others_run(_: Any) -> Any:
    def emit(_: Any, builder: Any, signature: Any, arguments: Any) -> None:  # noqa: ARG001
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, _YIELD), [])

    return types.void(), emit


@inner
def parts(team: Any, turn: Any, place: Any, count: Any) -> Any:
    """Yield the first and the end of each part of `count` things that this thread takes in a turn.

    It takes the part of its place if possible, then others.
    """
    size = team.shape[0] - 1
    for n in range(size):
        part = (place + n) % size
        address = team.ctypes.data + (part + 1) * team.strides[0]
        if size == 1 or (_read(address) <= turn and _raise(address, turn + 1) <= turn):
            yield count * part // size, count * (part + 1) // size
            if size > 1:
                _add(team.ctypes.data, 1)


@inner
def met(team: Any, turn: Any) -> Any:
    """Wait until all parts of a turn are done; return the next turn."""
    size, spins = team.shape[0] - 1, 0
    while size > 1 and _read(team.ctypes.data) < size * (turn + 1):
        spins += 1
        if spins > SPINS:
            _let_others_run()
    return turn + 1


@inner
def product_by(team: Any, turn: Any, place: Any, out: Any, x: Any, w: Any, adds: Any) -> Any:
    """Write x @ w to `out`, or add it, in a turn of which each part is some columns; return the next turn.

    `out`, x and w are those of `products.product`.
    """
    for start, stop in parts(team, turn, place, w[0][0]):
        product(out, x, w, adds, start, stop)
    return met(team, turn)
