"""The problems are those of their sources, and the limit model gives the published arithmetic."""

import itertools

import pytest

from benchmarks import torch_rules
from benchmarks.model import MIB, floor, flops, flops_of, least_nbytes, recurrent_nbytes
from benchmarks.problems import DB10, GROUPS, PASSES, Problem
from benchmarks.published import deepbench_v100


def problems(group, **marks):
    return [p for p in GROUPS[group].problems if all(getattr(p, k) == v for k, v in marks.items())]


def sizes(group, *names, **marks):
    return [tuple(getattr(p, name) for name in names) for p in problems(group, **marks)]


@pytest.mark.parametrize(
    ("group", "count"),
    [
        ("deepbench", 53 + 69), ("deepbench-lin", 53 + 69), ("db10", 10), ("db10-lin", 10), ("stream", 23),
        ("holes", 2 * (24 * 2 + 48 + 48 + 12 + 6 + 4 + 6) + 1), ("flashrnn", 10), ("frameworks", 9), ("models", 8),
        ("long", 36), ("bidir", 9), ("ragged", 4), ("proj", 1), ("grid", 40), ("cpu", 10), ("jax", 9), ("smoke", 4),
    ],
)  # fmt: skip
def test_a_group_has_as_many_problems_as_its_source_all_different(group, count):
    names = [problem.name for problem in GROUPS[group].problems]
    assert len(names) == count
    assert len(set(names)) == count


def test_every_group_is_listed_here_and_says_why_and_from_where():
    assert len(GROUPS) == 17
    for group in GROUPS.values():
        assert group.why
        assert group.source
        assert {row.which for row in group.rows()} <= PASSES.keys()


def test_deepbench_training_is_the_published_table_row_by_row():
    assert sizes("deepbench", "cell", "H", "B", "T", tag="training") == list(deepbench_v100())
    for problem in problems("deepbench"):
        assert (problem.I, problem.L, problem.D, problem.input) == (problem.H, 1, 1, "skip")
    cells = [cell for cell, *_ in deepbench_v100()]
    assert [cells.count(cell) for cell in ("relu", "lstm", "gru")] == [12, 22, 19]


def test_deepbench_inference_has_three_batches_of_every_server_shape():
    served = sizes("deepbench", "cell", "H", "T", "B", tag="server")
    assert len([row for row in served if row[0] == "lstm"]) == 15
    assert len([row for row in served if row[0] == "gru"]) == 54
    assert {(*row[:3], B) for row in served for B in (1, 2, 4)} == set(served)
    assert {("lstm", 1536, 50, 4), ("gru", 512, 1, 2), ("gru", 1024, 1500, 1), ("gru", 2560, 187, 1)} <= set(served)


def test_db10_is_part_of_deepbench_and_repeated_with_input_matrices():
    assert set(DB10) <= deepbench_v100().keys()
    assert sizes("db10", "cell", "H", "B", "T") == list(DB10) == sizes("db10-lin", "cell", "H", "B", "T")
    assert {p.input for p in problems("db10-lin")} == {"linear"}
    assert {p.passes for p in problems("db10")} == {("infer", "dgrad", "wgrad")}


def test_holes_are_those_of_torchs_rules():
    of = {tag: problems("holes", tag=tag) for tag in dict.fromkeys(p.tag for p in problems("holes"))}
    assert {tag: len(of[tag]) for tag in ("H1", "H2", "H3", "H4", "H5", "H6", "H7", "H9")} == {
        "H1": 48, "H2": 48, "H3": 48, "H4": 12, "H5": 6, "H6": 4, "H7": 6, "H9": 1
    }  # fmt: skip
    assert {p.dtypes for p in of["H2"]} == {("bfloat16", "tf32")}
    assert {p.dtypes for p in of["H3"]} == {("float16",)}
    assert {(p.cell, p.I) for p in of["H1"]} == {("lstm", 40), ("gru", 40)}
    assert {(p.I, p.H) for p in of["H6"]} == {(80, 512), (512, 500), (512, 650), (512, 800)}
    dynamic = [p for p in problems("holes") if p.tag.startswith("H8")]
    assert {p.algo for p in dynamic} == {"persist_dynamic"}
    assert [p.replace(algo="", tag=p.tag.removeprefix("H8 of ")) for p in dynamic] == problems("holes")[: len(dynamic)]
    for p in of["H1"]:
        assert torch_rules.algorithm(p, "float32", backward=False) == "persist_static_small_h"
    for tag, dtype in (("H2", "bfloat16"), ("H3", "float16"), ("H4", "float16"), ("H6", "float16"), ("H7", "float16")):
        assert {torch_rules.algorithm(p, dtype, backward=False) for p in of[tag]} == {"standard"}, tag


@pytest.mark.parametrize(
    ("cell", "sizes", "dtype", "backward", "wanted"),
    [
        ("lstm", (16, 1024, 768, 768), "float16", False, "persist_static"),
        ("lstm", (16, 1024, 768, 768), "bfloat16", False, "standard"),
        ("gru", (16, 1024, 768, 768), "float16", False, "standard"),
        ("lstm", (12, 200, 512, 512), "float16", False, "standard"),
        ("lstm", (128, 200, 512, 512), "float16", False, "persist_static"),
        ("lstm", (136, 200, 512, 512), "float16", False, "standard"),
        ("relu", (96, 50, 896, 896), "float16", False, "standard"),
        ("relu", (88, 50, 896, 896), "float16", False, "persist_static"),
        ("lstm", (4, 10, 40, 192), "float32", False, "persist_static_small_h"),
        ("lstm", (4, 10, 40, 192), "float32", True, "standard"),
        ("tanh", (4, 10, 40, 384), "float32", False, "persist_static_small_h"),
        ("tanh", (4, 10, 40, 256), "float32", True, "persist_static_small_h"),
        ("lstm", (4, 10, 40, 64), "float64", False, "standard"),
    ],
)
def test_torchs_rules_are_read_as_they_are_written(cell, sizes, dtype, backward, wanted):
    B, T, I, H = sizes
    assert torch_rules.algorithm(Problem(cell, 1, 1, B, T, I, H), dtype, backward=backward) == wanted


@pytest.mark.parametrize("ragged", [{"lengths": "sorted"}, {"layout": "packed"}, {"P": 4}])
def test_torchs_rules_know_what_else_a_row_says(ragged):
    problem = Problem("lstm", 1, 1, 4, 10, 40, 64)
    assert torch_rules.algorithm(problem, "tf32", backward=True) == "persist_static_small_h"
    assert torch_rules.algorithm(problem.replace(**ragged), "tf32", backward=True) == "standard"


def test_the_other_groups_have_the_sizes_of_their_sources():
    assert {(16, 1024), (2, 1024), (256, 1024), (16, 256), (16, 2048)} < set(sizes("flashrnn", "B", "T"))
    assert set(sizes("flashrnn", "cell", "L", "I", "H")) == {("lstm", 1, 768, 768)}
    assert sizes("frameworks", "L", "B", "T", "H")[:5] == [
        (1, 64, 100, 512), (4, 64, 40, 1024), (4, 64, 30, 512), (4, 64, 20, 128), (4, 64, 100, 512)
    ]  # fmt: skip
    assert set(sizes("frameworks", "cell", tag="cuDNN sample")) == {("relu",), ("tanh",), ("lstm",), ("gru",)}
    assert set(sizes("long", "T")) == {(4096,), (16384,), (65535,)}
    assert set(sizes("ragged", "lengths", "layout")) == set(
        itertools.product(("sorted", "unsorted"), ("padded", "packed"))
    )
    assert sizes("proj", "L", "B", "T", "H", "P") == [(2, 64, 100, 1024, 512)]
    assert {H for _, H, _ in sizes("grid", "cell", "H", "B")} == {64, 128, 256, 512, 1024}
    assert all(p.carried for p in problems("stream"))
    assert {(2, 128), (3, 256), (3, 480), (6, 320)} < set(sizes("stream", "L", "H", T=1, B=1))
    assert set(sizes("cpu", "T", "B", "I", "H", "L", cell="gru")) == {
        (50, 32, 256, 256, 1), (100, 64, 512, 512, 2), (200, 1, 128, 128, 1), (25, 16, 1024, 1024, 1),
        (1, 1, 512, 512, 1),
    }  # fmt: skip
    assert sizes("models", "L", "D", "B", "T", "I", "H")[:2] == [
        (2, 1, 32, 400, 240, 1024),
        (3, 1, 32, 200, 2048, 1024),
    ]
    assert {row.dtype for row in GROUPS["smoke"].rows()} == {"float16", "bfloat16", "tf32", "float32", "float64"}


# cell, H, B, T -> GFLOP, R in MiB, and milliseconds: hard, persistent, graph, eager.
FLOORS = {
    ("relu", 1760, 16, 50): (5.0, 5.9, 0.006, 0.060, 0.12, 0.20),
    ("relu", 2560, 128, 50): (83.9, 12.5, 0.11, 0.11, 0.17, 0.20),
    ("lstm", 2048, 64, 25): (53.7, 32.0, 0.068, 0.068, 0.18, 0.18),
    ("lstm", 4096, 128, 25): (429.5, 128.0, 0.54, None, 0.81, 0.81),
    ("lstm", 256, 16, 150): (1.3, 0.5, 0.002, 0.18, 0.38, 0.60),
    ("gru", 2816, 32, 1500): (2283.8, 45.4, 2.89, None, 18.1, 18.1),
    ("gru", 1536, 32, 187): (84.7, 13.5, 0.11, 0.22, 0.67, 0.75),
}


@pytest.mark.parametrize("shape", FLOORS)
def test_the_limit_model_gives_the_floors_that_were_worked_out_by_hand(shape):
    (problem,) = (p for p in problems("deepbench", tag="training") if (p.cell, p.H, p.B, p.T) == shape)
    gflop, R, *times = FLOORS[shape]
    assert flops(problem) / 1e9 == pytest.approx(gflop, abs=0.06)
    assert recurrent_nbytes(problem, 2) / MIB == pytest.approx(R, abs=0.06)
    found = floor(problem, "float16")
    for us, ms in zip((found.hard_us, found.persist_us, found.graph_us, found.eager_us), times, strict=True):
        assert us is None if ms is None else us / 1e3 == pytest.approx(ms, rel=0.05, abs=0.0006)


def test_arithmetic_counts_layers_directions_projection_and_passes():
    plain = Problem("lstm", 1, 1, 32, 50, 256, 256)
    assert flops(plain) == pytest.approx(1.68e9, rel=0.01)
    assert flops_of(plain, "step") == 3 * flops(plain)
    deep = Problem("gru", 2, 2, 3, 5, 7, 11)
    assert flops(deep) == 2 * 3 * 5 * (2 * 3 * 11 * (7 + 11) + 2 * 3 * 11 * (22 + 11))
    projected = Problem("lstm", 1, 1, 1, 1, 7, 11, P=3)
    assert flops(projected) == 2 * 4 * 11 * (7 + 3) + 2 * 11 * 3
    assert least_nbytes(projected, 4) == 4 * (4 * 11 * (7 + 3) + 2 * 4 * 11 + 11 * 3 + 7 + 3)
