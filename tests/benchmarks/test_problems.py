"""The problems are those of their sources, and torch's rules are read as they are written."""

import pytest

from benchmarks import torch_rules
from benchmarks.problems import DB10, GROUPS, PASSES, Problem, flops


def sizes(group, *names):
    return [tuple(getattr(p, name) for name in names) for p in GROUPS[group].problems]


def test_every_group_says_why_and_from_where_and_its_problems_differ():
    for group in GROUPS.values():
        names = [problem.name for problem in group.problems]
        assert len(set(names)) == len(names)
        assert group.why
        assert group.source
        assert {row.which for row in group.rows()} <= set(PASSES)
    assert {"db10", "stream", "flashrnn", "holes", "frameworks", "grid", "cpu"} < GROUPS.keys()


def test_the_groups_have_the_sizes_of_their_sources():
    assert sizes("db10", "cell", "H", "B", "T") == list(DB10) == sizes("db10-lin", "cell", "H", "B", "T")
    assert set(sizes("db10", "input")) == {("skip",)}
    assert {(16, 1024), (2, 1024), (256, 1024), (16, 256), (16, 2048)} < set(sizes("flashrnn", "B", "T"))
    assert sizes("frameworks", "L", "B", "T", "H")[:3] == [(1, 64, 100, 512), (4, 64, 40, 1024), (4, 64, 30, 512)]
    assert {H for (H,) in sizes("grid", "H")} == {64, 128, 256, 512, 1024}
    assert all(p.carried for p in GROUPS["stream"].problems)
    assert set(sizes("kinds", "lengths", "layout")) > {("sorted", "packed"), ("unsorted", "padded")}
    assert {p.tag for p in GROUPS["holes"].problems} == {f"H{n}" for n in range(1, 8)}


def test_holes_are_those_of_torchs_rules():
    for p in GROUPS["holes"].problems:
        chosen = torch_rules.algorithm(p, p.dtypes[0], backward=False)
        if p.tag == "H1":
            assert chosen == "persist_static_small_h"
        if p.tag in {"H2", "H3", "H4", "H6", "H7"}:
            assert chosen == "standard"


def test_arithmetic_counts_layers_directions_projection_and_skip_input():
    assert flops(Problem("lstm", 1, 1, 32, 50, 256, 256)) == pytest.approx(1.68e9, rel=0.01)
    assert flops(Problem("gru", 2, 2, 3, 5, 7, 11)) == 2 * 3 * 5 * (2 * 3 * 11 * (7 + 11) + 2 * 3 * 11 * (22 + 11))
    assert flops(Problem("lstm", 1, 1, 1, 1, 7, 11, P=3)) == 2 * 4 * 11 * (7 + 3) + 2 * 11 * 3
    assert flops(Problem("relu", 1, 1, 1, 1, 5, 5, input="skip")) == 2 * 5 * 5
