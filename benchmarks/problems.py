"""The problems, by named group, each with where its sizes come from."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

CELLS: Final = {"relu": "rnn_relu", "tanh": "rnn_tanh", "gru": "gru", "lstm": "lstm"}
"""Short names, and those of `RNNMode`."""

PASSES: Final = ("infer", "step")
"""A forward in evaluation; a forward in training with backward-data and backward-weights."""

GPU_DTYPES: Final = ("float16", "bfloat16", "tf32", "float32")
"""The arithmetic on a GPU; tf32 is float32 with TF32 allowed, which float32 is without."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """One RNN and one batch: T steps, B sequences, I inputs, H units, L layers, D directions, P units of projection.

    `lengths` is "full", or "sorted" or "unsorted" for lengths uniform in [T/4, T]; `layout` is how a ragged batch is
    handed over. `carried`: each call starts from the states that the last one left. `input_sets` is how many inputs
    are used in turn, so that x is not in cache.
    """

    cell: str
    L: int
    D: int
    B: int
    T: int
    I: int
    H: int
    P: int | None = None
    input: str = "linear"
    lengths: str = "full"
    layout: str = "padded"
    carried: bool = False
    input_sets: int = 1
    passes: tuple[str, ...] = PASSES
    dtypes: tuple[str, ...] = GPU_DTYPES
    tag: str = ""

    @property
    def name(self) -> str:
        """The sizes, and what is out of the ordinary; unique in a group."""
        sizes = f"{self.cell} L{self.L} D{self.D} B{self.B} T{self.T} I{self.I} H{self.H}"
        marks = [f"P{self.P}"] if self.P else []
        marks += [self.input] if self.input != "linear" else []
        marks += [self.lengths] if self.lengths != "full" else []
        marks += [self.layout] if self.layout != "padded" else []
        return " ".join([sizes, *marks])

    @property
    def gates(self) -> int:
        return {"lstm": 4, "gru": 3}.get(self.cell, 1)

    def replace(self, **changes: Any) -> Problem:
        return dataclasses.replace(self, **changes)


class Row(NamedTuple):
    """One figure of a report: a problem, what is run of it, and in which arithmetic."""

    group: str
    problem: Problem
    which: str
    dtype: str


@dataclasses.dataclass(frozen=True)
class Group:
    """Problems that belong together, why they are measured, and where they are from."""

    name: str
    why: str
    source: str
    problems: tuple[Problem, ...]

    def rows(self) -> Iterator[Row]:
        """Every row: problem by problem, in each type and each pass."""
        for problem in self.problems:
            for dtype, which in itertools.product(problem.dtypes, problem.passes):
                yield Row(self.name, problem, which, dtype)


def _square(cell: str, H: int, B: int, T: int, L: int = 1, D: int = 1, **marks: Any) -> Problem:
    return Problem(cell, L, D, B, T, H, H, **marks)


DB10: Final = (
    ("relu", 1760, 16, 50), ("relu", 2560, 128, 50), ("lstm", 512, 16, 25), ("lstm", 1024, 128, 25),
    ("lstm", 2048, 64, 25), ("lstm", 4096, 128, 25), ("lstm", 256, 16, 150), ("gru", 2816, 32, 187),
    ("gru", 1024, 32, 1500), ("gru", 512, 32, 1),
)  # fmt: skip
"""One DeepBench row of each regime: cell, H, B, T."""


def _stream() -> tuple[Problem, ...]:
    shapes = [("lstm", H, B, 1, 1) for B in (1, 8) for H in (64, 128, 256, 512, 1024)]
    shapes += [("lstm", H, 1, T, 1) for T in (4, 16) for H in (128, 256, 512)]
    shapes += [("lstm", H, 1, 1, L) for L, H in ((2, 128), (3, 256), (3, 480), (6, 320))]
    shapes += [("gru", H, 1, 1, 1) for H in (128, 256, 512)]
    return tuple(_square(*shape, carried=True, passes=("infer",)) for shape in shapes)


def _holes() -> tuple[Problem, ...]:
    """Where torch's fixed rules do not choose among the algorithms; the tag is the hole's number."""
    rows = [
        Problem(cell, 1, 1, B, T, 40, H, dtypes=("float16",), tag="H1")
        for cell, B, T, H in (("lstm", 16, 200, 136), ("gru", 64, 200, 192), ("lstm", 44, 1125, 160))
    ]
    middle = ((256, 16, 50), (512, 64, 200), (768, 32, 1024), (1024, 128, 200))
    rows += [_square("lstm", *sizes, dtypes=("bfloat16",), tag="H2") for sizes in middle]
    rows += [_square("gru", *sizes, dtypes=("float16",), tag="H3") for sizes in middle]
    rows += [_square("lstm", 512, 32, 200, L, D, dtypes=("float16",), tag="H4") for L, D in ((2, 1), (4, 1), (2, 2))]
    rows += [_square("lstm", 512, B, 200, dtypes=("float16",), tag="H5") for B in (4, 20, 100, 256)]
    rows += [Problem("lstm", 1, 1, 32, 200, I, H, dtypes=("float16",), tag="H6") for I, H in ((80, 512), (512, 650))]
    rows += [_square("lstm", H, B, 100, dtypes=("float16",), tag="H7") for H, B in ((1152, 64), (2048, 16))]
    return tuple(rows)


def _flashrnn() -> tuple[Problem, ...]:
    shapes = [(B, 1024) for B in (2, 8, 16, 32, 64, 128, 256)] + [(16, T) for T in (256, 512, 2048)]
    return tuple(_square("lstm", 768, B, T, dtypes=("float16", "bfloat16", "float32")) for B, T in shapes)


def _frameworks() -> tuple[Problem, ...]:
    return (
        _square("lstm", 512, 64, 100, tag="PyTorch fastrnns"),
        _square("lstm", 1024, 64, 40, 4, tag="TF contrib, large"),
        _square("lstm", 512, 64, 30, 4, tag="TF contrib, medium"),
        _square("lstm", 128, 64, 20, 4, tag="TF contrib, small"),
        _square("lstm", 512, 64, 100, 4, tag="Appleyard"),
        *(_square(cell, 512, 64, 20, 2, tag="cuDNN sample") for cell in CELLS),
    )


def _kinds() -> tuple[Problem, ...]:
    ragged = itertools.product(("sorted", "unsorted"), ("padded", "packed"))
    return (
        *(_square("lstm", 512, 64, 200, 2, lengths=order, layout=layout, tag="ragged") for order, layout in ragged),
        *(_square(cell, 512, 32, 200, 1, 2, tag="both directions") for cell in ("lstm", "gru")),
        _square("lstm", 1024, 64, 100, 2, P=512, tag="projection"),
        Problem("lstm", 7, 1, 128, 50, 2048, 1024, tag="GNMT encoder"),
    )


_GRID = itertools.product(("lstm", "gru"), (64, 128, 256, 512, 1024), (1, 8, 32, 128))
_CPU = (
    (50, 32, 256, 256, 1), (100, 64, 512, 512, 2), (200, 1, 128, 128, 1), (25, 16, 1024, 1024, 1), (1, 1, 512, 512, 1),
)  # fmt: skip


_SMOKE = tuple(Problem(cell, 1, 1, 2, 3, 5, 8, dtypes=(*GPU_DTYPES, "float64")) for cell in CELLS)
_TEN = tuple(_square(*sizes, input="skip", input_sets=4) for sizes in DB10)
_DEEPBENCH = "baidu-research/DeepBench @da81ba7, code/nvidia/rnn_problems.h"

GROUPS: Final[dict[str, Group]] = {group.name: group for group in (
    Group("db10", "one row of each regime of DeepBench, with skip input", _DEEPBENCH, _TEN),
    Group("db10-lin", "the same as users run them; peers have no skip input", _DEEPBENCH,
          tuple(p.replace(input="linear") for p in _TEN)),
    Group("stream", "bound by launches: one step or a few, states carried from call to call",
          "the nets of Myrtle VOLLO and STAC-ML's scale; I = H", _stream()),
    Group("holes", "where torch's fixed rules cannot choose well among cuDNN's algorithms",
          "pytorch aten/src/ATen/native/cudnn/RNN.cpp @00fc08a, get_algo", _holes()),
    Group("flashrnn", "the one published anchor on Hopper",
          "arXiv 2412.07752, kernel_speed_benchmark.py; NX-AI/flashrnn @d73fb52", _flashrnn()),
    Group("frameworks", "continuity with the benchmarks of the frameworks",
          "pytorch benchmarks/fastrnns @01addc4; tensorflow cudnn_rnn_ops_benchmark.py @0660d40; arXiv 1604.01946; "
          "the RNN sample of cuDNN 8", _frameworks()),
    Group("kinds", "ragged batches, both directions, projection, a deep stack", "own choice; GNMT", _kinds()),
    Group("grid", "which algorithm is fastest where: cell, H and B at T100", "own choice",
          tuple(_square(cell, H, B, 100, dtypes=("float16", "float32")) for cell, H, B in _GRID)),
    Group("cpu", "the NumPy engine beside other CPU libraries", "own choice",
          tuple(Problem(cell, L, 1, B, T, I, H, dtypes=("float32", "float64"))
                for T, B, I, H, L in _CPU for cell in ("lstm", "gru"))),
    Group("step", "one step of one sequence, as a keyboard or a microphone gives them", "own choice",
          tuple(_square(cell, H, 1, 1, passes=("infer",), dtypes=("float32",))
                for cell in ("lstm", "gru") for H in (32, 64, 128, 256, 512))),
    Group("smoke", "a gate of correctness before any timing", "own choice", _SMOKE),
)}  # fmt: skip


def rows_of(groups: Iterable[str], keep: Callable[[Row], bool] = lambda _: True) -> list[Row]:
    """List the rows of groups, in their order."""
    return [row for group in groups for row in GROUPS[group].rows() if keep(row)]
