"""Matrix products for compiled kernels: `x @ w` with w packed in panels, each tile of results held in registers.

A kernel's recurrent product has few rows and the same matrix at each step. A general BLAS packs that matrix again in
each call; here it is packed before the time loop. A tile of few rows multiplies by several panels (SUMS).

The large products of gradients are made of the same tiles and split among the engine's threads. OpenBLAS would split
them too, but its threads then spin, waiting for more work, on processors that the engine's threads need.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

OPTIONS: Final[dict[str, Any]] = {"fastmath": {"contract"}, "error_model": "numpy"}
"""With Python's error model, numba would check each division, and could not vectorise a loop that contains one."""

BLOCK: Final = 128
"""Rows of x that are multiplied at a time, so that they stay in cache while all panels are read."""

_FEATURES: Final = binding.get_host_cpu_features()
VECTOR_NBYTES: Final = 64 if _FEATURES.get("avx512f") else 32 if _FEATURES.get("avx2") else 16
VECTORS: Final = {64: 2, 32: 3, 16: 2}[VECTOR_NBYTES]
PANEL_NBYTES: Final = VECTORS * VECTOR_NBYTES
"""Bytes of a row of a panel. With TALL rows of x a tile fills the registers: 32 with AVX-512, 16 without."""
TALL: Final = 8 if VECTOR_NBYTES == 64 else 4
SUMS: Final = 8
"""Independent sums that keep a core busy. A tile of few rows has several panels, to have as many."""
_NUMBERS: Final = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}


def inner(function: Any) -> Any:
    """Make a function a part of kernels, which is compiled with them."""
    return register_jitable(**OPTIONS)(function)


def _panels_of(rows: int) -> int:
    """Return the number of panels that a tile of `rows` rows multiplies by."""
    return max(1, SUMS // (rows * VECTORS))


def _emit_tile(module: Any, rows: int, real: Any) -> Any:
    """Return the LLVM function that multiplies `rows` rows of x by a few panels. It is emitted once for a module.

    It writes the first `left` of their columns: all of them, or fewer at the end of a matrix, where the panels that
    would follow `last` are `last` again. While it multiplies by one line after the other, it fetches memory from
    `ahead` on, `fetched` bytes for each, into the second cache.
    """
    number, itemsize = _NUMBERS[real], real.bitwidth // 8
    integer, flag = ir.IntType(64), ir.IntType(1)
    name = f"pycudnnrnn_tile_{rows}_{real}"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [*[integer] * 11, flag]), name)
    function.linkage = "internal"
    function.attributes.add("noinline")  # one copy is quicker to compile, and long enough to be called
    builder: Any = ir.IRBuilder(function.append_basic_block())
    x, x_row, x_next, w, last, ahead, fetched, depth, out, out_row, left, adds = function.args

    lanes, fused = VECTOR_NBYTES // itemsize, ("contract",)
    vector = ir.VectorType(number, lanes)
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    places = range(VECTORS * _panels_of(rows))
    cells = [(row, place) for row in range(rows) for place in places]

    def moved(address: Any, index: Any, nbytes: Any) -> Any:
        return builder.add(address, builder.mul(index, nbytes))

    def at(address: Any, kind: Any) -> Any:
        return builder.inttoptr(address, kind.as_pointer())

    x_rows = [moved(x, integer(row), x_row) for row in range(rows)]
    out_rows = [moved(out, integer(row), out_row) for row in range(rows)]
    panels = [w]
    for _ in range(1, _panels_of(rows)):
        following = moved(panels[-1], depth, integer(PANEL_NBYTES))
        panels.append(builder.select(builder.icmp_unsigned(">", following, last), last, following))
    sums = {cell: cgutils.alloca_once(builder, vector) for cell in cells}
    for total in sums.values():
        builder.store(ir.Constant(vector, None), total)
    byte, bits = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, bits, bits, bits])
    fetch = cgutils.get_or_insert_function(module, kind, "llvm.prefetch.p0")
    with cgutils.for_range(builder, depth) as loop:
        lines = [moved(panel, loop.index, integer(PANEL_NBYTES)) for panel in panels]
        address = builder.inttoptr(moved(ahead, loop.index, fetched), byte)
        builder.call(fetch, [address, bits(0), bits(2), bits(1)])
        others = [
            builder.load(
                at(builder.add(lines[n // VECTORS], integer(n % VECTORS * VECTOR_NBYTES)), vector), align=itemsize
            )
            for n in places
        ]
        for row, address in enumerate(x_rows):
            value = builder.load(at(moved(address, loop.index, x_next), number), align=1)
            one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.IntType(32)(0))
            values = builder.shuffle_vector(one, one, everywhere)
            for place, other in enumerate(others):
                total, product = builder.load(sums[row, place]), builder.fmul(values, other, flags=fused)
                builder.store(builder.fadd(total, product, flags=fused), sums[row, place])
    with builder.if_else(builder.icmp_signed(">=", left, integer(len(places) * lanes))) as (whole, cut):
        for branch, cuts in ((whole, False), (cut, True)):
            with branch:
                for row, place in cells:
                    to = at(builder.add(out_rows[row], integer(place * VECTOR_NBYTES)), vector)
                    count = builder.sub(left, integer(place * lanes)) if cuts else None
                    _emit_put(builder, builder.load(sums[row, place]), to, adds, count)
    builder.ret_void()
    return function


def _emit_put(builder: Any, total: Any, to: Any, adds: Any, count: Any) -> None:
    """Emit code that stores a vector or adds it; with `count`, only that many of its first numbers."""
    vector = total.type
    if count is None:
        before = builder.load(to, align=1)
        builder.store(builder.select(adds, builder.fadd(before, total), total), to, align=1)
        return
    integers = ir.VectorType(count.type, vector.count)
    numbers = ir.Constant(integers, list(range(vector.count)))
    one = builder.insert_element(ir.Constant(integers, ir.Undefined), count, ir.IntType(32)(0))
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    mask, align = builder.icmp_signed("<", numbers, builder.shuffle_vector(one, one, everywhere)), ir.IntType(32)(1)

    def call(which: str, result: Any, *arguments: Any) -> Any:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        name = f"llvm.masked.{which}.v{vector.count}{vector.element.intrinsic_name}.p0"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)

    before = call("load", vector, to, align, mask, ir.Constant(vector, None))
    call("store", ir.VoidType(), builder.select(adds, builder.fadd(before, total), total), to, align, mask)


@intrinsic  # type: ignore[untyped-decorator]
def _tile(
    _: Any, like: Any, rows: Any, x: Any, x_row: Any, x_next: Any, w: Any, last: Any, ahead: Any, fetched: Any,
    depth: Any, out: Any, out_row: Any, left: Any, _adds: Any,
) -> Any:  # fmt: skip
    """Call the tile of `rows` rows, at most TALL."""

    def emit(_: Any, builder: Any, signature: Any, arguments: Any) -> None:
        _, count, *others = arguments
        end = builder.append_basic_block()
        switch = builder.switch(count, end)
        for height in range(1, TALL + 1):
            block = builder.append_basic_block()
            switch.add_case(ir.Constant(count.type, height), block)
            with builder.goto_block(block):
                builder.call(_emit_tile(builder.module, height, signature.args[0]), others)
                builder.branch(end)
        builder.position_at_end(end)

    integers = (types.intp for _ in (rows, x, x_row, x_next, w, last, ahead, fetched, depth, out, out_row, left))
    return types.void(like, *integers, types.boolean), emit


def _mover(rows: int) -> Any:
    """Return a function for kernels that copies `rows` rows of TALL numbers, TALL rows transposed, by vectors."""

    @intrinsic  # type: ignore[untyped-decorator]
    def move(_: Any, like: Any, source: Any, source_row: Any, to: Any, to_row: Any) -> Any:
        def emit(_: Any, builder: Any, signature: Any, arguments: Any) -> None:
            kind = ir.VectorType(_NUMBERS[signature.args[0]], TALL).as_pointer()
            _, source, source_row, to, to_row = arguments

            def at(address: Any, row: Any, n: int) -> Any:
                return builder.inttoptr(builder.add(address, builder.mul(row, row.type(n))), kind)

            vectors = [builder.load(at(source, source_row, n), align=1) for n in range(rows)]
            half = TALL // 2
            merges = [
                ir.Constant(ir.VectorType(ir.IntType(32), TALL), [start + n // 2 + n % 2 * TALL for n in range(TALL)])
                for start in (0, half)
            ]
            for _ in range((rows - 1).bit_length()):  # each turn moves a bit between row and column numbers
                pairs = zip(vectors[:half], vectors[half:], strict=True)
                vectors = [builder.shuffle_vector(*pair, merge) for pair in pairs for merge in merges]
            for n, row in enumerate(vectors):
                builder.store(row, at(to, to_row, n), align=1)

        return types.void(like, source, source_row, to, to_row), emit

    return move


_move, _transpose = _mover(1), _mover(TALL)


@inner
def by_rows(x: Any) -> Any:
    """Return a matrix as `product` takes it. The type does not depend on strides, so `product` is compiled once.

    The parts: a zero of its type, the shape, the address, and the bytes to the next TALL rows, row and column.
    """
    row, column = x.strides
    return x.dtype.type(0), x.shape, x.ctypes.data, TALL * row, row, column


@inner
def by_columns(tiles: Any) -> Any:
    """Return panels of TALL packed columns as `product` takes them, transposed: the columns are the rows of x."""
    (count, depth, _), (tile, row, column) = tiles.shape, tiles.strides
    return tiles.dtype.type(0), (count * TALL, depth), tiles.ctypes.data, tile, column, row


@inner
def by_panels(w: Any) -> Any:
    """Return a packed matrix as `product` takes it."""
    return w.shape, w.ctypes.data


@inner
def product(out: Any, x: Any, w: Any, adds: Any, start: Any, stop: Any) -> None:
    """Write x @ w to `out`, or add it, for panels [start, stop) of w.

    `out` is from `by_rows`, x from `by_rows` or `by_columns`, w from `by_panels`.

    Shapes:
        out: [n, columns]; x: [n, depth]; w: [panels, depth, width].
    """
    like, (n, columns), to, _, to_row, itemsize = out
    (_, _, at, at_tile, at_row, at_next), ((count, depth, width), panels) = x, w
    last = panels + (count - 1) * depth * PANEL_NBYTES
    for top in range(0, n, BLOCK):
        size = min(n - top, BLOCK)
        tall = TALL if at_tile != TALL * at_row else -(-size // -(-size // TALL))  # rows of a tile, evenly if possible
        once = max(1, SUMS // (size * VECTORS))
        nbytes = once * depth * PANEL_NBYTES
        fetched = once * PANEL_NBYTES * tall // size  # each tile fetches its share of the next panels
        for p in range(start, stop, once):
            panel, first, row = panels + p * depth * PANEL_NBYTES, p * width, top
            ahead = panel + nbytes
            left = min(columns - first, min(once, stop - p) * width)
            while row < top + size:
                here, into = at + row // TALL * at_tile + row % TALL * at_row, to + row * to_row + first * itemsize
                rows = min(tall, top + size - row)
                _tile(like, rows, here, at_row, at_next, panel, last, ahead, fetched, depth, into, to_row, left, adds)
                row, ahead = row + rows, ahead + fetched * depth


@inner
def pack(out: Any, w: Any) -> None:
    """Pack w in panels, whose width is a multiple of TALL. Columns past the last are zero.

    The loops follow the order of memory: whole rows if w's rows are contiguous, otherwise a few columns at a time.

    Shapes:
        out: [panels, depth, width]; w: [depth, columns], with any strides.
    """
    count, depth, width = out.shape
    columns, (panel, row, item), (w_row, w_column) = w.shape[1], out.strides, w.strides
    like, whole = out.dtype.type(0), min(count, columns // width) if w_column == item else 0
    for k in range(depth if whole else 0):
        for p in range(whole):
            source, to = w.ctypes.data + k * w_row + p * width * item, out.ctypes.data + p * panel + k * row
            for u in range(0, width, TALL):
                _move(like, source + u * item, 0, to + u * item, 0)
    for p in range(whole, count):
        for start in range(0, width, TALL):
            first, transposed = p * width + start, 0
            if w_row == item and first + TALL <= columns:
                transposed = depth - depth % TALL
                source, to = w.ctypes.data + first * w_column, out.ctypes.data + p * panel + start * item
                for k in range(0, transposed, TALL):
                    _transpose(like, source + k * item, w_column, to + k * row, row)
            for k in range(transposed, depth):
                for u in range(TALL):
                    out[p, k, start + u] = w[k, first + u] if first + u < columns else 0
