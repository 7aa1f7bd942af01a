"""The problems, by named group, each with where its sizes come from. Every row of a group is in every report of it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

CELLS: Final = {"relu": "rnn_relu", "tanh": "rnn_tanh", "gru": "gru", "lstm": "lstm"}
"""Short names, and those of `RNNMode`."""

PASSES: Final = {
    "infer": "forward in evaluation",
    "dgrad": "only backward-data, again and again on one reserve",
    "wgrad": "only backward-weights",
    "step": "forward in training, backward-data and backward-weights",
}

DTYPES: Final = {
    "float16": "float16",
    "bfloat16": "bfloat16",
    "tf32": "float32, with TF32 allowed",
    "float32": "float32, without TF32",
    "float64": "float64",
}

GPU_DTYPES: Final = ("float16", "bfloat16", "tf32", "float32")
TRAINING: Final = ("infer", "step")
APART: Final = ("infer", "dgrad", "wgrad")


@dataclasses.dataclass(frozen=True)
class Problem:
    """One RNN and one batch: T steps, B sequences, I inputs, H units, L layers, D directions, P units of projection.

    `lengths` is "full", or "sorted" or "unsorted" for lengths uniform in [T/4, T]; `layout` is how a ragged batch is
    handed over. `carried`: each call starts from the states that the last one left. `algo` is "" where the competitor
    chooses. `input_sets` is how many inputs are used in turn, so that x is not in cache.
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
    algo: str = ""
    input_sets: int = 1
    passes: tuple[str, ...] = TRAINING
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
        marks += [self.algo] if self.algo else []
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


def _deepbench() -> tuple[Problem, ...]:
    batches = (16, 32, 64, 128)
    lengths = {2816: 1500, 2048: 750, 1536: 375, 2560: 187}
    training = [("relu", H, B, 50) for H in (1760, 2048, 2560) for B in batches]
    training += [("lstm", H, B, 25) for H in (512, 1024, 2048, 4096) for B in batches]
    training += [("lstm", 1536, B, 50) for B in (8, 16, 32)] + [("lstm", 256, B, 150) for B in (16, 32, 64)]
    training += [("gru", H, 32, T) for H in lengths for T in lengths.values()]
    training += [("gru", 512, 32, 1), ("gru", 1024, 32, 1500), ("gru", 1024, 64, 1500)]
    server = [("lstm", H, T) for H, T in ((512, 25), (1024, 25), (2048, 25), (1536, 50), (256, 150))]
    server += [("gru", H, T) for H in lengths for T in lengths.values()] + [("gru", 512, 1), ("gru", 1024, 1500)]
    marks: dict[str, Any] = {"input": "skip", "input_sets": 4}
    trained = tuple(_square(*sizes, passes=APART, tag="training", **marks) for sizes in training)
    served = tuple(
        _square(cell, H, B, T, passes=("infer",), tag="server", **marks) for cell, H, T in server for B in (1, 2, 4)
    )
    return trained + served


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
    rows: list[Problem] = []
    for cell, B, T, H in itertools.product(("lstm", "gru"), (16, 32, 44, 64), (200, 1125), (136, 160, 192)):
        rows.append(Problem(cell, 1, 1, B, T, 40, H, tag="H1"))
    middle = list(itertools.product((256, 512, 768, 1024), (16, 32, 64, 128), (50, 200, 1024)))
    rows += [_square("lstm", *sizes, dtypes=("bfloat16", "tf32"), tag="H2") for sizes in middle]
    rows += [_square("gru", *sizes, dtypes=("float16",), tag="H3") for sizes in middle]
    for L, D, H in itertools.product((2, 4), (1, 2), (256, 512, 1024)):
        rows.append(_square("lstm", H, 32, 200, L, D, tag="H4"))
    rows += [_square("lstm", 512, B, 200, tag="H5") for B in (4, 12, 20, 100, 160, 256)]
    rows += [Problem("lstm", 1, 1, 32, 200, I, H, tag="H6") for I, H in ((80, 512), (512, 500), (512, 650), (512, 800))]
    rows += [_square("lstm", H, B, 100, tag="H7") for H in (1152, 1536, 2048) for B in (16, 64)]
    rows += [row.replace(algo="persist_dynamic", tag=f"H8 of {row.tag}") for row in rows]
    rows.append(_square("lstm", 512, 64, 200, 2, layout="packed", tag="H9"))
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


def _models() -> tuple[Problem, ...]:
    return (
        Problem("lstm", 2, 1, 32, 400, 240, 1024, tag="RNN-T encoder, before the time reduction"),
        Problem("lstm", 3, 1, 32, 200, 2048, 1024, tag="RNN-T encoder, after it"),
        _square("lstm", 512, 32, 100, 2, tag="RNN-T prediction net"),
        _square("lstm", 1024, 128, 50, 1, 2, tag="GNMT encoder, first layer"),
        Problem("lstm", 7, 1, 128, 50, 2048, 1024, tag="GNMT encoder, the others"),
        _square("gru", 1024, 32, 375, 5, 2, tag="DeepSpeech 2"),
        _square("lstm", 384, 64, 1600, 5, tag="base calling"),
        Problem("lstm", 2, 2, 32, 50, 300, 256, tag="tagger"),
    )


_GRID = itertools.product(("lstm", "gru"), (64, 128, 256, 512, 1024), (1, 8, 32, 128))
_LONG = itertools.product(("lstm", "gru"), (64, 256, 1024), (1, 8), (4096, 16384, 65535))
_BIDIR = itertools.product(("lstm", "gru"), (128, 256, 512, 1024))
_RAGGED = itertools.product(("sorted", "unsorted"), ("padded", "packed"))
_JAX = ((64, 4, 20), (128, 1, 1), (128, 32, 25), (256, 64, 100), (512, 64, 100), (1024, 128, 25))
_CPU = (
    (50, 32, 256, 256, 1), (100, 64, 512, 512, 2), (200, 1, 128, 128, 1), (25, 16, 1024, 1024, 1), (1, 1, 512, 512, 1),
)  # fmt: skip


def _groups() -> Iterable[Group]:
    deepbench = _deepbench()
    yield Group(
        "deepbench", "comparable with the published tables: skip input, the three calls apart",
        "baidu-research/DeepBench @da81ba7, code/nvidia/rnn_problems.h", deepbench,
    )  # fmt: skip
    linear = tuple(p.replace(input="linear", passes=TRAINING if p.tag == "training" else ("infer",)) for p in deepbench)
    yield Group("deepbench-lin", "the same sizes as users run them: with input matrices, I = H", "as deepbench", linear)
    ten = tuple(_square(*sizes, passes=APART, input="skip", input_sets=4) for sizes in DB10)
    yield Group("db10", "one row of each regime of deepbench, for every run on a GPU", "as deepbench", ten)
    linear = tuple(p.replace(input="linear", passes=TRAINING) for p in ten)
    yield Group("db10-lin", "the same as users run them; peers have no skip input", "as deepbench", linear)
    yield Group(
        "stream", "bound by launches: one step or a few, states carried from call to call",
        "the nets of Myrtle VOLLO and STAC-ML's scale; I = H", _stream(),
    )  # fmt: skip
    yield Group(
        "holes", "where torch's fixed rules cannot choose well among cuDNN's algorithms",
        "pytorch aten/src/ATen/native/cudnn/RNN.cpp @00fc08a, get_algo; H6 at B32 T200, H9 as `ragged`", _holes(),
    )  # fmt: skip
    yield Group(
        "flashrnn", "the one published anchor on Hopper",
        "arXiv 2412.07752, kernel_speed_benchmark.py; NX-AI/flashrnn @d73fb52", _flashrnn(),
    )  # fmt: skip
    yield Group(
        "frameworks", "continuity with the benchmarks of the frameworks",
        "pytorch benchmarks/fastrnns @01addc4; tensorflow cudnn_rnn_ops_benchmark.py @0660d40; arXiv 1604.01946; "
        "the RNN sample of cuDNN 8", _frameworks(),
    )  # fmt: skip
    yield Group(
        "models", "real use", "MLPerf RNN-T, DeepLearningExamples GNMT, DeepSpeech 2, and common sizes", _models()
    )
    long = tuple(_square(cell, H, B, T) for cell, H, B, T in _LONG)
    yield Group("long", "persistence, the size of the reserve, and cuDNN's limit of 65535 steps", "own choice", long)
    bidir = tuple(_square(cell, H, 32, 200, 1, 2) for cell, H in _BIDIR)
    yield Group("bidir", "whether the directions overlap", "own choice", (*bidir, _square("lstm", 512, 32, 200, 4, 2)))
    ragged = tuple(_square("lstm", 512, 64, 200, 2, lengths=order, layout=layout) for order, layout in _RAGGED)
    yield Group("ragged", "what padding costs", "own choice; lengths uniform in [T/4, T]", ragged)
    yield Group("proj", "an LSTM with projection: only the standard algorithm", "own choice",
                (_square("lstm", 1024, 64, 100, 2, P=512),))  # fmt: skip
    grid = tuple(_square(cell, H, B, 100, dtypes=("float16", "float32")) for cell, H, B in _GRID)
    yield Group("grid", "which algorithm is fastest where: cell, H and B at T100", "own choice", grid)
    cpu = tuple(
        Problem(cell, L, 1, B, T, I, H, dtypes=("float32", "float64"))
        for T, B, I, H, L in _CPU
        for cell in ("lstm", "gru")
    )
    yield Group("cpu", "the NumPy engine beside other CPU libraries", "own choice", cpu)
    beside = tuple(_square("lstm", H, B, T, dtypes=("float32",)) for H, B, T in _JAX)
    beside += (
        _square("lstm", 512, 64, 100, 4, dtypes=("float32",)),
        _square("lstm", 512, 64, 100, 1, 2, dtypes=("float32",)),
        _square("lstm", 512, 64, 200, 2, lengths="unsorted", dtypes=("float32",)),
    )
    yield Group("jax", "in JAX: ours beside jax.experimental.rnn, which is an LSTM in float32", "own choice", beside)
    smoke = tuple(
        Problem(cell, 1, 1, 2, 3, 5, 8, passes=tuple(PASSES), dtypes=(*GPU_DTYPES, "float64")) for cell in CELLS
    )
    yield Group("smoke", "a gate of correctness before any timing", "own choice", smoke)


GROUPS: Final[dict[str, Group]] = {group.name: group for group in _groups()}
