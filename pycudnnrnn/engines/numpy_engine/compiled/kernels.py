"""The time loops of the cells, for numba to compile: one pass over a step's gates, no interpreter between steps.

A kernel runs all steps of some sequences in one direction of one layer, alone or with other threads that call it with
the same arrays (`teams`): products are shared by columns, the rest of a step by sequences. Its `place` says which of
them calls it; below 0, it is lent to all. Its first arguments have a row for each sequence. `gates` and `x_ahead` have
room for the steps whose input product is computed at a time. The others have a row for each packed row. `steps` has the
first and the end of these sequences' packed rows in each step. Arrays that a call does not have are empty. Matrices are
packed (`products`). Without W, x is added to each gate.
"""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path
from typing import Any, Final

import numba
import numpy as np
from numba import types

from pycudnnrnn.engines.numpy_engine.compiled import products, teams, vectors
from pycudnnrnn.engines.numpy_engine.compiled.products import by_columns, by_panels, by_rows, inner, pack, product
from pycudnnrnn.engines.numpy_engine.compiled.teams import caller, lend, met, parts, product_by, put, read, run, swap

_SOURCE: Final = b"".join(
    Path(file).read_bytes() for file in (__file__, products.__file__, teams.__file__, vectors.__file__)
)
STAMP: Final = int.from_bytes(hashlib.sha256(_SOURCE + bytes([products.VECTOR_NBYTES])).digest()[:6], "big")
"""A hash of the source and of the host's vector size, which is a constant of the kernels.

It is a parameter of every kernel, so that numba's cache on disk has one entry for each. numba itself looks only at a
kernel's own code and types, at the size and time of its file, which is the same in all wheels, and at the name of the
processor, which may be "generic".
"""

AHEAD: Final = 64
"""Rows whose input product is computed at a time."""

TRANSPOSED_TILES: Final = 8
"""Tiles of columns that are multiplied at a time, so that they stay in cache while all panels are read."""

LOOKS: Final = 2_500_000
"""How often a helper looks for more before it ends: for about 1 ms."""

AXES: Final = {"bias": 1, "n_bias": 1, "bounds": 1, "helper": 1, "R": 3, "W": 3, "proj": 3, "packed": 3, "tiles": 4}
READ: Final = ("bias", "n_bias", "bounds", "R", "W", "proj", "dy", "matrix", "x", "rows")
STRIDED: Final = ("matrix", "rows", "into", "y", "dy")
FLAGS: Final = ("relu", "adds")
"""Kernel parameters by name: the number of axes if it is not two, read-only ones, ones with any strides, and flags."""


def kernel(function: Any) -> Any:
    """Make a function a kernel. It is compiled at first use, and cached on disk if a folder for that can be written."""
    options: dict[str, Any] = {**products.OPTIONS, "nogil": True}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder for the cache
        return numba.njit(**options)(function)


def ready(function: Any, dtype: np.dtype[Any]) -> Any:
    """Return a kernel that is compiled for a type."""
    real, kinds = types.float32 if dtype == np.float32 else types.float64, []
    for name in inspect.signature(function.py_func).parameters:
        if name in FLAGS:
            kinds.append(types.boolean)
        elif name == "stamp":
            kinds.append(types.Omitted(STAMP))
        elif name == "place":
            kinds.append(types.int64)
        elif name in ("steps", "team", "helper"):
            kinds.append(types.Array(types.int64, AXES.get(name, 2), "C"))
        else:  # the caller's memory may be at any address
            order = "A" if name in STRIDED else "C"
            kinds.append(types.Array(real, AXES.get(name, 2), order, readonly=name in READ, aligned=False))
    function.disable_compile(False)
    function.compile(tuple(kinds))
    function.disable_compile()
    return function


@inner
def input_ahead(
    team: Any, turn: Any, place: Any, gates: Any, x_ahead: Any, x: Any, W: Any, steps: Any, k: Any,
) -> Any:  # fmt: skip
    """Write W x of step k and later ones to `gates`, in the order of the steps. Without W, write x for each gate.

    These have at least AHEAD rows if there are so many. For a single step's few rows the product would be slow. For
    many more rows, the results would no longer be in cache when their steps run. Return the next turn, and the step
    after them.
    """
    count, end, first = 0, k, steps[k, 0]
    while end < steps.shape[0] and count < AHEAD and (count == 0 or steps[end, 1] - steps[end, 0] <= AHEAD):
        count, end = count + steps[end, 1] - steps[end, 0], end + 1
    rows = x[first : first + count]
    if W.shape[0] == 0 or steps[end - 1, 1] != first + count:
        rows = x_ahead[:count]
        for start, stop in parts(team, turn, place, end - k):
            at = 0
            for j in range(k, k + stop):
                low, high = steps[j]
                if j >= k + start and W.shape[0] > 0:
                    rows[at : at + high - low] = x[low:high]
                elif j >= k + start:
                    for u in range(0, gates.shape[1], x.shape[1]):
                        gates[at : at + high - low, u : u + x.shape[1]] = x[low:high]
                at += high - low
        turn = met(team, turn)
    return product_by(team, turn, place, by_rows(gates[:count]), by_rows(rows), by_panels(W), False), end


@kernel
def lstm(
    h: Any, c: Any, spare_t: Any, spare_m: Any, gates: Any, x_ahead: Any, R: Any, x: Any, W: Any, bias: Any,
    bounds: Any, proj: Any, y: Any, gates_tape: Any, h_before: Any, c_before: Any, tanh_c: Any, inside: Any,
    hidden: Any, steps: Any, team: Any, place: Any, stamp: Any = STAMP,  # noqa: ARG001
) -> Any:  # fmt: skip
    if place < 0:
        return lend(team, caller(team[0, 1]))
    units, turn, ahead, at = c.shape[1], 0, 0, 0
    keeps, clips, projects = h_before.shape[0] > 0, bounds.size > 0, proj.shape[0] > 0
    for k in range(steps.shape[0]):
        first, n = steps[k, 0], steps[k, 1] - steps[k, 0]
        if k == ahead:
            (turn, ahead), at = input_ahead(team, turn, place, gates, x_ahead, x, W, steps, k), 0
        h_now = m = h[:n]
        turn = product_by(team, turn, place, by_rows(gates[at : at + n]), by_rows(h_now), by_panels(R), True)
        if projects:
            m = hidden[first : first + n] if keeps else spare_m[:n]
        for start, stop in parts(team, turn, place, n):
            for b in range(start, stop):
                row, c_row = gates[at + b], c[b]
                if keeps:
                    vectors.copy(h_before[first + b], h_now[b])
                    vectors.copy(c_before[first + b], c_row)
                vectors.sigmoid_of(row[: 2 * units], bias[: 2 * units])
                vectors.tanh_of(row[2 * units : 3 * units], bias[2 * units : 3 * units])
                vectors.sigmoid_of(row[3 * units :], bias[3 * units :])
                vectors.lstm_c(c_row, row[:units], row[units : 2 * units], row[2 * units : 3 * units])
                if clips:
                    if keeps:
                        vectors.within(inside[first + b], c_row, bounds[0], bounds[1])
                    vectors.clip(c_row, bounds[0], bounds[1])
                vectors.lstm_h(m[b], tanh_c[first + b] if keeps else spare_t[b], c_row, row[3 * units :])
                if keeps:
                    vectors.copy(gates_tape[first + b], row)
                if not projects:
                    vectors.copy(y[first + b], h_now[b])
        turn, at = met(team, turn), at + n
        if projects:
            turn = product_by(team, turn, place, by_rows(h_now), by_rows(m), by_panels(proj), False)
            for start, stop in parts(team, turn, place, n):
                for b in range(start, stop):
                    vectors.copy(y[first + b], h_now[b])
            turn = met(team, turn)


@kernel
def lstm_back(
    dh: Any, dc: Any, spare_m: Any, R: Any, gates: Any, proj: Any, dy: Any, c_before: Any, tanh_c: Any, inside: Any,
    dh_tape: Any, steps: Any, team: Any, place: Any, stamp: Any = STAMP,  # noqa: ARG001
) -> Any:  # fmt: skip
    if place < 0:
        return lend(team, caller(team[0, 1]))
    units, turn, projects, clips = dc.shape[1], 0, proj.shape[0] > 0, inside.shape[0] > 0
    for k in range(steps.shape[0]):
        first, n = steps[k, 0], steps[k, 1] - steps[k, 0]
        dh_now = dm = dh[:n]
        if projects:
            for start, stop in parts(team, turn, place, n):
                for b in range(start, stop):
                    vectors.add(dh_now[b], dy[first + b])
                    vectors.copy(dh_tape[first + b], dh_now[b])
            turn = met(team, turn)
            dm = spare_m[:n]
            turn = product_by(team, turn, place, by_rows(dm), by_rows(dh_now), by_panels(proj), False)
        for start, stop in parts(team, turn, place, n):
            for b in range(start, stop):
                row, dc_row = gates[first + b], dc[b]
                if not projects:
                    vectors.add(dm[b], dy[first + b])
                vectors.lstm_o_back(row[3 * units :], tanh_c[first + b], dm[b], dc_row)
                if clips:
                    vectors.keep_open(dc_row, inside[first + b])
                vectors.lstm_ig_back(row[:units], row[2 * units : 3 * units], dc_row)
                vectors.lstm_f_back(row[units : 2 * units], c_before[first + b], dc_row)
        turn = met(team, turn)
        turn = product_by(team, turn, place, by_rows(dh_now), by_rows(gates[first : first + n]), by_panels(R), False)


@kernel
def gru(
    h: Any, recurrent: Any, gates: Any, x_ahead: Any, R: Any, x: Any, W: Any, bias: Any, n_bias: Any, y: Any,
    gates_tape: Any, h_before: Any, q: Any, steps: Any, team: Any, place: Any, stamp: Any = STAMP,  # noqa: ARG001
) -> Any:  # fmt: skip
    if place < 0:
        return lend(team, caller(team[0, 1]))
    units, turn, ahead, at, keeps = h.shape[1], 0, 0, 0, h_before.shape[0] > 0
    for k in range(steps.shape[0]):
        first, n = steps[k, 0], steps[k, 1] - steps[k, 0]
        if k == ahead:
            (turn, ahead), at = input_ahead(team, turn, place, gates, x_ahead, x, W, steps, k), 0
        turn = product_by(team, turn, place, by_rows(recurrent[:n]), by_rows(h[:n]), by_panels(R), False)
        for start, stop in parts(team, turn, place, n):
            for b in range(start, stop):
                row, Rh, h_row = gates[at + b], recurrent[b], h[b]
                vectors.add(row[: 2 * units], Rh[: 2 * units])
                vectors.sigmoid_of(row[: 2 * units], bias[: 2 * units])
                vectors.gru_n(row[2 * units :], Rh[2 * units :], bias[2 * units :], row[:units], n_bias)
                if keeps:
                    vectors.copy(h_before[first + b], h_row)
                    vectors.copy(q[first + b], Rh[2 * units :])
                    vectors.copy(gates_tape[first + b], row)
                vectors.gru_h(h_row, row[units : 2 * units], row[2 * units :])
                vectors.copy(y[first + b], h_row)
        turn, at = met(team, turn), at + n


@kernel
def gru_back(
    dh: Any, R: Any, gates: Any, dy: Any, h_before: Any, q: Any, steps: Any, team: Any, place: Any,
    stamp: Any = STAMP,  # noqa: ARG001
) -> Any:  # fmt: skip
    if place < 0:
        return lend(team, caller(team[0, 1]))
    units, turn = dh.shape[1], 0
    for k in range(steps.shape[0]):
        first, n = steps[k, 0], steps[k, 1] - steps[k, 0]
        for start, stop in parts(team, turn, place, n):
            for b in range(start, stop):
                row, dh_row = gates[first + b], dh[b]
                vectors.add(dh_row, dy[first + b])
                vectors.gru_z_back(row[units : 2 * units], row[2 * units :], h_before[first + b], dh_row)
                vectors.gru_n_back(row[:units], row[2 * units :], q[first + b])
        turn = met(team, turn)
        turn = product_by(team, turn, place, by_rows(dh[:n]), by_rows(gates[first : first + n]), by_panels(R), True)


@kernel
def plain(
    h: Any, gates: Any, x_ahead: Any, R: Any, x: Any, W: Any, bias: Any, y: Any, gates_tape: Any, h_before: Any,
    relu: Any, steps: Any, team: Any, place: Any, stamp: Any = STAMP,  # noqa: ARG001
) -> Any:  # fmt: skip
    if place < 0:
        return lend(team, caller(team[0, 1]))
    turn, ahead, at, keeps = 0, 0, 0, h_before.shape[0] > 0
    for k in range(steps.shape[0]):
        first, n = steps[k, 0], steps[k, 1] - steps[k, 0]
        if k == ahead:
            (turn, ahead), at = input_ahead(team, turn, place, gates, x_ahead, x, W, steps, k), 0
        turn = product_by(team, turn, place, by_rows(gates[at : at + n]), by_rows(h[:n]), by_panels(R), True)
        for start, stop in parts(team, turn, place, n):
            for b in range(start, stop):
                row, h_row = gates[at + b], h[b]
                if relu:
                    vectors.relu_of(row, bias)
                else:
                    vectors.tanh_of(row, bias)
                if keeps:
                    vectors.copy(h_before[first + b], h_row)
                    vectors.copy(gates_tape[first + b], row)
                vectors.copy(h_row, row)
                vectors.copy(y[first + b], row)
        turn, at = met(team, turn), at + n


@kernel
def plain_back(
    dh: Any, R: Any, gates: Any, dy: Any, relu: Any, steps: Any, team: Any, place: Any,
    stamp: Any = STAMP,  # noqa: ARG001
) -> Any:  # fmt: skip
    if place < 0:
        return lend(team, caller(team[0, 1]))
    turn = 0
    for k in range(steps.shape[0]):
        first, n = steps[k, 0], steps[k, 1] - steps[k, 0]
        for start, stop in parts(team, turn, place, n):
            for b in range(start, stop):
                row, dh_row = gates[first + b], dh[b]
                vectors.add(dh_row, dy[first + b])
                if relu:
                    vectors.relu_back(row, dh_row)
                else:
                    vectors.tanh_back(row, dh_row)
        turn = met(team, turn)
        turn = product_by(team, turn, place, by_rows(dh[:n]), by_rows(gates[first : first + n]), by_panels(R), False)


@kernel
def packed(packed: Any, matrix: Any, team: Any, place: Any, stamp: Any = STAMP) -> Any:  # noqa: ARG001
    if place < 0:
        return lend(team, caller(team[0, 1]))
    width = packed.shape[2]
    for start, stop in parts(team, 0, place, packed.shape[0]):
        pack(packed[start:stop], matrix[:, start * width : stop * width])
    met(team, 0)


@kernel
def multiplied(
    into: Any, rows: Any, packed: Any, tiles: Any, adds: Any, team: Any, place: Any,
    stamp: Any = STAMP,  # noqa: ARG001
) -> Any:  # fmt: skip
    """Write rows @ packed to `into`, or add it; if `tiles` is not empty, rows.T @ packed.

    `tiles` has room for each thread's.
    """
    if place < 0:
        return lend(team, caller(team[0, 1]))
    panels, columns = by_panels(packed), tiles.shape[1] * tiles.shape[3]
    for start, stop in parts(team, 0, place, into.shape[0]):
        if columns == 0:
            product(by_rows(into[start:stop]), by_rows(rows[start:stop]), panels, adds, 0, packed.shape[0])
            continue
        for first in range(start, stop, columns):
            end = min(stop, first + columns)
            pack(tiles[place], rows[:, first:end])
            product(by_rows(into[first:end]), by_columns(tiles[place]), panels, adds, 0, packed.shape[0])
    met(team, 0)


@kernel
def helping(helper: Any, stamp: Any = STAMP) -> None:  # noqa: ARG001
    """Run what is lent to a helper, until for a while nothing has been."""
    looks, state = 0, helper.ctypes.data
    while read(state) != teams.GONE:
        if read(state) == teams.LENT and swap(state, teams.LENT, teams.TAKEN):
            run(state)
            put(state, teams.DONE)
            looks = 0
        elif looks < LOOKS:
            looks += 1
        elif not swap(state, teams.FREE, teams.GONE):
            teams.let_others_run()
