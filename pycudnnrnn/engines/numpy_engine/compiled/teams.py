"""Teams of threads that share each step of a kernel. The first is the caller; the others may come late, or never.

A kernel's work is a sequence of turns, each cut into as many parts as the team may have threads. A thread takes its
own part of a turn, then those that nobody has taken, and waits until all are done: only for parts that a running thread
has taken. So the caller alone gets through, and who comes late begins at the turn that the others are at.

Products are cut by columns, the rest of a step by sequences, so that gates go from core to core. A cut by units would
keep them where they are, and is slower: each core then writes runs shorter than a page, and fetches the other's lines
ahead. Measured on two cores (Sapphire Rapids): to change 64 KB each takes 1.2 us in rows of 4 KB, in runs of 512 bytes
7 to 9 us.

A team is an array of integers, one a cache line: how many parts are done, and for each part how many turns have been
taken. Beside the first of them are the address of the team's room, which is for a kernel's arguments, and that of the
first helper of all teams that begin together, or 0.

A helper is a thread that runs the kernels which others lend it, without Python. To wake a thread for a kernel, and the
caller when it has ended, takes about 150 us: both wait for the system, and for the interpreter too. So a helper stays
awake for a while, and looks for more. A caller waits only for what a helper has begun, and runs the rest itself. It is
an array of integers too: its state, and what is lent to it.
"""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pycudnnrnn._arrays import aligned
from pycudnnrnn.engines.numpy_engine.compiled.products import inner, product

Array = npt.NDArray[Any]

SPINS: Final = 2000
"""How often a waiting thread looks again before it lets other threads run: about 2 us."""

ROOM: Final = 400
"""How many numbers and addresses a team's room has."""

LINE: Final = 8
FREE, LENT, TAKEN, DONE, GONE = range(5)
"""States of a helper. The caller makes it LENT, and FREE again once it is DONE. The rest is done by its thread."""

ALL: Final = -1
"""The place with which Python calls a kernel for all threads of the teams that begin together. The last call is for the
team of the first helper and the caller. Those before it only write arguments to the other teams' rooms."""

_CODE, _ROOM, _PLACE, NEXT, SECOND = range(1, 6)
"""What a helper has after its state: the addresses of code and of a room, and a place, which are lent to it; that of
the next helper or 0; the second in which it began."""

_YIELD: Final = "SwitchToThread" if os.name == "nt" else "sched_yield"
_INTEGER: Final = ir.IntType(64)
_CODE_KIND: Final = ir.FunctionType(ir.VoidType(), [_INTEGER, _INTEGER])


def new(count: int, size: int, helper: int = 0) -> list[Array]:
    """Return so many teams of so many threads. Their rooms follow one another."""
    rows = count * (size + 1)
    memory = aligned((rows * LINE + count * ROOM,), np.dtype(np.int64), zeros=True)
    teams: Array = memory[: rows * LINE].reshape(count, size + 1, LINE)
    teams[:, 0, 1] = memory.ctypes.data + 8 * (rows * LINE + ROOM * np.arange(count))
    teams[0, 0, 2] = helper
    return list(teams)


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


_add, _raise, put = _changed("add"), _changed("max"), _changed("xchg")


@intrinsic  # type: ignore[untyped-decorator]
def swap(_: Any, _address: Any, _before: Any, _after: Any) -> Any:
    """Change an integer in one go if it is `before`; return whether it was."""

    def emit(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        address, *values = arguments
        return builder.extract_value(builder.cmpxchg(_pointer(builder, address), *values, "acq_rel", "acquire"), 1)

    return types.boolean(types.intp, types.int64, types.int64), emit


@intrinsic  # type: ignore[untyped-decorator]
def read(_: Any, _address: Any) -> Any:
    """Read an integer that other threads change, and see all that they wrote before."""

    def emit(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.load_atomic(_pointer(builder, arguments[0]), "acquire", 8)

    return types.int64(types.intp), emit


@intrinsic  # type: ignore[untyped-decorator]
def let_others_run(_: Any) -> Any:
    def emit(_: Any, builder: Any, signature: Any, arguments: Any) -> None:  # noqa: ARG001
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, _YIELD), [])

    return types.void(), emit


@intrinsic  # type: ignore[untyped-decorator]
def _call(_: Any, _code: Any, _room: Any, _place: Any) -> Any:
    def emit(_: Any, builder: Any, signature: Any, arguments: Any) -> None:  # noqa: ARG001
        code, *others = arguments
        builder.call(builder.inttoptr(code, _CODE_KIND.as_pointer()), others)

    return types.void(types.int64, types.int64, types.int64), emit


@intrinsic  # type: ignore[untyped-decorator]
def caller(_: Any, _room: Any) -> Any:
    """Write the arguments of the kernel that calls this to a room: of the function itself in which it stands.

    Return the address of code that takes a room and a place, and runs the kernel with these.
    """

    def emit(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        kernel, bits = builder.function, ir.IntType(32)
        results, values = kernel.args[:2], kernel.args[2:]
        struct = ir.LiteralStructType([value.type for value in values])
        if len(values) > ROOM:
            raise AssertionError(len(values))

        def field(builder: Any, room: Any, n: int) -> Any:
            return builder.gep(builder.inttoptr(room, struct.as_pointer()), [bits(0), bits(n)], inbounds=True)

        for n, value in enumerate(values):
            counts = value.type == ir.IntType(8).as_pointer()  # an array's references, for this call alone
            builder.store(ir.Constant(value.type, None) if counts else value, field(builder, arguments[0], n))
        code = ir.Function(builder.module, _CODE_KIND, f"{kernel.name}.lent")
        code.linkage = "internal"
        lent: Any = ir.IRBuilder(code.append_basic_block())
        room, place = code.args
        outs = [lent.alloca(result.type.pointee) for result in results]
        lent.call(kernel, [*outs, *(lent.load(field(lent, room, n)) for n in range(len(values) - 1)), place])
        lent.ret_void()
        return builder.ptrtoint(code, _INTEGER)

    return types.int64(types.intp), emit


@inner
def parts(team: Any, turn: Any, place: Any, count: Any) -> Any:
    """Yield the first and the end of each part of `count` things that this thread takes in a turn.

    It takes the part of its place if possible, then others.
    """
    size = team.shape[0] - 1
    for n in range(size):
        part = (place + n) % size
        address = team.ctypes.data + (part + 1) * team.strides[0]
        if size == 1 or (read(address) <= turn and _raise(address, turn + 1) <= turn):
            yield count * part // size, count * (part + 1) // size
            if size > 1:
                _add(team.ctypes.data, 1)


@inner
def _until(address: Any, least: Any) -> None:
    """Wait until an integer is at least so large."""
    spins = 0
    while read(address) < least:
        spins += 1
        if spins > SPINS:
            let_others_run()


@inner
def met(team: Any, turn: Any) -> Any:
    """Wait until all parts of a turn are done; return the next turn."""
    size = team.shape[0] - 1
    if size > 1:
        _until(team.ctypes.data, size * (turn + 1))
    return turn + 1


@inner
def product_by(team: Any, turn: Any, place: Any, out: Any, x: Any, w: Any, adds: Any) -> Any:
    """Write x @ w to `out`, or add it, in a turn of which each part is some columns; return the next turn.

    `out`, x and w are those of `products.product`.
    """
    for start, stop in parts(team, turn, place, w[0][0]):
        product(out, x, w, adds, start, stop)
    return met(team, turn)


@inner
def lend(team: Any, code: Any) -> None:
    """Run what is in the rooms of the teams that begin together with all their threads; in the last of their calls."""
    room, first, size, n = team[0, 1], team[0, 2], team.shape[0] - 1, 1
    for row in range(size + 1):
        team[row, 0] = 0  # of the kernel before
    if first == 0:
        return
    helper = first
    while helper != 0:
        put(helper + 8 * _CODE, code)
        put(helper + 8 * _ROOM, room + 8 * ROOM * (n // size))
        put(helper + 8 * _PLACE, n % size)
        swap(helper, FREE, LENT)
        helper, n = read(helper + 8 * NEXT), n + 1
    _call(code, room, 0)
    helper = first
    while helper != 0:
        if swap(helper, LENT, FREE) or read(helper) == GONE:
            run(helper)
        else:
            _until(helper, DONE)
            put(helper, FREE)
        helper = read(helper + 8 * NEXT)


@inner
def run(helper: Any) -> None:
    """Run what is lent to a helper."""
    _call(read(helper + 8 * _CODE), read(helper + 8 * _ROOM), read(helper + 8 * _PLACE))
