"""Our CUDA competitors and the C++ program run from end to end on the shim: call discipline, and nothing of a GPU."""

import collections
import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sysconfig
from pathlib import Path

import pytest

from benchmarks import data, goals, gpu, suite
from benchmarks.adapters import NotRun, ours_cuda, raw_cudnn
from benchmarks.hosts import Local, Remote
from benchmarks.model import flops
from benchmarks.problems import GROUPS
from benchmarks.results_files import load
from benchmarks.runner import Part, Results, Settings, check, rows_of, run
from pycudnnrnn.engines import engine_for, use_engine
from pycudnnrnn.engines.cudnn.owned import RELEASE_FAILURES
from tests.stand_in import shim
from tests.stand_in.bench_gpu import host_cuda
from tests.stand_in.host_device import host_allocator

CUDA = Path("/usr/local/cuda")
CUDNN = Path(sysconfig.get_path("platlib"), "nvidia", "cudnn")


@pytest.fixture
def played(shim_path, monkeypatch):
    """CUDA calls go to the shim, and device memory is host memory."""
    playing = shim.Shim(shim_path)
    engine, device = playing.engine_and_device()

    monkeypatch.setattr(ours_cuda, "Cuda", host_cuda(device))
    with use_engine(engine), host_allocator(device):
        yield playing
    assert not playing.complaints
    assert all(memory.intact() for memory in device.allocations)
    assert not RELEASE_FAILURES


@pytest.fixture(autouse=True)
def _sigterm():
    """`gpu.main` changes what SIGTERM does to this process."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


OURS = ("eager", "plan", "rule", "graph")
ON_SHIM = ("infer", "step", "wgrad")
"""dgrad is timed as DeepBench times it, on a reserve that the last one rewrote: cuDNN takes that, the shim refuses."""


def test_ours_runs_the_smoke_group_from_end_to_end_and_every_row_is_reported(played, tmp_path):
    rows = rows_of(["smoke"], lambda row: row.which in ON_SHIM and row.dtype in ("float32", "bfloat16"))
    results = Results(tmp_path / "out.jsonl", {"versions": {}})
    hosts = [(name, None, Local(name)) for name in OURS]
    run([Part(rows, hosts)], results, Settings(rounds=1, sample_s=0))
    written = load(tmp_path / "out.jsonl")
    reported = {(row["problem"], row["pass"], row["dtype"]) for row in written.rows}
    assert reported == {(row.problem.name, row.which, row.dtype) for row in GROUPS["smoke"].rows()}
    assert written.environment["versions"]["cudnn"] == "9.28.0"
    outcomes = {}
    for row in written.rows:
        outcomes.setdefault((row["competitor"], row["status"]), []).append(row)
    assert not [row["reason"] for row in written.rows if row["status"] == "failed"]
    assert len(outcomes["plan", "ok"]) == len(outcomes["rule", "ok"]) == len(rows)
    assert len(outcomes["eager", "ok"]) == len(rows) * 2 / 3, "its backwards are not timed apart"
    assert {row["algo"] for row in outcomes["rule", "ok"]} == {"persist_static_small_h"}
    assert all(row["error"] <= row["error_allowed"] for row in outcomes["plan", "ok"])
    assert all(row["reserve_nbytes"] > 0 for row in outcomes["plan", "ok"] if row["pass"] != "infer")


@pytest.mark.parametrize("name", ["eager", "plan"])
def test_ours_takes_the_groups_that_are_out_of_the_ordinary(name, played):
    small = {"proj": {"P": 4, "H": 7}, "bidir": {"D": 2, "L": 2, "H": 6}, "ragged": {"T": 9, "B": 5, "H": 6},
             "stream": {"H": 6}, "db10": {"H": 6, "I": 6, "B": 3, "T": 4}}  # fmt: skip
    checked = 0
    for group, sizes in small.items():
        rows = rows_of([group], lambda row: row.dtype == "float32" and row.which in ON_SHIM)
        for row in dict.fromkeys(r._replace(problem=r.problem.replace(**{"I": 5} | sizes)) for r in rows):
            with contextlib.suppress(NotRun):
                check(row, Local(name))
                Local(name).prepare(row)  # calls more than once: states are carried, and inputs taken in turn
                checked += 1
    assert checked == {"eager": 21, "plan": 24}[name]


def test_a_carried_state_is_the_one_that_the_last_call_left(played):
    row = rows_of(["stream"], lambda row: row.problem.T == 4 and row.problem.H == 128 and row.dtype == "float32")[0]
    problem = row.problem.replace(H=6, I=5)
    drawn = data.draw(problem)
    prepared = ours_cuda.prepare(problem, "infer", "float32", drawn, "plan")
    made = []
    calls = [c for c in played.calls if c[0] == "cudnnRNNForward"]
    for _ in range(3):
        prepared.call()
        made.append([c for c in played.calls if c[0] == "cudnnRNNForward"][-1][1])
    assert not calls
    hx, hy = 9, 10  # of cudnnRNNForward's arguments
    assert made[1][hx] == made[0][hy]
    assert made[2][hx] == made[1][hy]


def test_a_step_of_training_puts_three_times_as_much_on_a_stream(played):
    for name in ("eager", "plan"):
        row = rows_of(["smoke"], lambda row: row.dtype == "float32" and row.which == "infer")[0]
        drawn = data.draw(row.problem)
        infer, step = (ours_cuda.prepare(row.problem, which, "float32", drawn, name) for which in ("infer", "step"))
        assert (infer.launches, step.launches) == (2 * row.problem.T, 6 * row.problem.T)


def test_the_gpu_report_refuses_without_a_gpu_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["gpu", "--out", str(tmp_path / "out.jsonl")])
    with pytest.raises(SystemExit, match="bench-gpu needs an NVIDIA GPU"):
        gpu.main()
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_the_gpu_report_runs_on_the_shim_and_stops_at_its_budget(played, tmp_path, monkeypatch, capsys):
    assert engine_for("cuda") is not None
    out = tmp_path / "out.jsonl"
    monkeypatch.setattr("sys.argv", ["gpu", "--out", str(out), "--seconds", "0.000001"])
    gpu.main()
    written = load(out)
    named = {row.group for row, _ in gpu.plan()}
    reported = {(row["group"], row["problem"], row["pass"], row["dtype"]) for row in written.rows}
    assert reported == {(r.group, r.problem.name, r.which, r.dtype) for g in named for r in GROUPS[g].rows()}
    assert {row["status"] for row in written.rows} == {"not_run"}
    capsys.readouterr()


def test_the_grid_has_every_algorithm_on_every_row_and_what_is_compiled_last():
    order = gpu.grid()
    by_row = {}
    for row, names in order:
        by_row.setdefault(row, []).extend(names)
    assert set(by_row) == set(GROUPS["grid"].rows())
    assert len(by_row) == 40 * 2 * 2
    wanted = ["rule", "standard", "persist_static", "small_h", "persist_dynamic"]
    assert all(names == wanted for names in by_row.values())
    passes = [(row.which, "persist_dynamic" in names) for row, names in order]
    assert list(dict.fromkeys(passes)) == [("infer", False), ("step", False), ("infer", True), ("step", True)]
    assert passes == sorted(passes, key=lambda key: (key[1], key[0] == "step"))
    regimes = {(row.problem.cell, row.problem.H, row.problem.B) for row, _ in order[:40]}
    assert len(regimes) == 40, "each cell, H and B has a row before any has two"


ROWS = {
    "stream": 23 + 46, "db10-lin": 40, "flashrnn": 6, "db10": 30, "deepbench": 53 + 53, "holes": 41, "frameworks": 36,
    "jax": 18, "ragged": 8, "bidir": 18, "proj": 2, "models": 16,
}  # fmt: skip
"""How many rows of each group a report of a GPU is to have."""


def test_the_gpu_plan_has_every_row_and_none_twice_for_a_competitor():
    order = gpu.plan()
    taken = [(row, name) for row, names in order for name in names]
    assert len(taken) == len(set(taken))
    groups = collections.Counter(row.group for row in {row for row, _ in order})
    assert groups == ROWS
    assert all(names for _, names in order)


def test_the_first_rows_of_the_gpu_plan_are_of_every_group_and_those_that_goals_are_read_off():
    order = gpu.plan()
    first = [row for row, _ in order[:12]]
    assert {row.group for row in first} == set(ROWS)
    assert gpu.plan() == order, "the order is always the same"
    by_group = {row.group: row for row in first}
    assert by_group["stream"].problem.name in goals.NETS
    for group, row in by_group.items():
        assert row.which == "infer"
        others = [row.problem for row, _ in order if row.group == group]
        assert group == "stream" or flops(row.problem) == max(map(flops, others))
    sizes = {group: (r.problem.cell, r.problem.H, r.problem.B, r.problem.T) for group, r in by_group.items()}
    assert sizes["flashrnn"] == ("lstm", 768, 16, 1024), "P1"
    assert sizes["db10"] == sizes["db10-lin"] == ("lstm", 4096, 128, 25), "P5, D2, D10"
    assert sizes["deepbench"] == ("gru", 2816, 32, 1500), "P6"
    seconds = {row.group: (row.which, row.problem == by_group[row.group].problem) for row, _ in order[14:27]}
    assert seconds["db10-lin"] == ("step", False)
    assert seconds["flashrnn"] == ("step", True), "P2, and the group has one problem"


def test_every_regime_has_a_row_before_any_has_two():
    for group, problems in (("db10-lin", 10), ("frameworks", 9), ("stream", 23), ("models", 8)):
        rows = [row for row, names in gpu.plan() if row.group == group and "auto" in names]
        assert len({row.problem for row in rows[:problems]}) == problems
        assert {row.which for row in rows[:problems]} == {row.which for row in rows}
        assert {row.dtype for row in rows[:problems]} == {row.dtype for row in rows}


def test_graphs_of_others_and_the_plain_call_run_on_every_third_row_and_what_is_compiled_last():
    sometimes, seen = {"eager", "torch-graph", "raw-graph"}, collections.Counter()
    for row, names in gpu.plan():
        part = row.group, row.group == "stream" and row.dtype == "float16"
        if row.group in ("stream", "db10-lin", "flashrnn", "frameworks", "jax"):
            assert bool(sometimes & set(names)) == (seen[part] % 3 == 0), row
        seen[part] += 1
    compiled = ["persist_dynamic" in names for _, names in gpu.plan()]
    assert compiled == sorted(compiled)
    assert sum(compiled) == ROWS["holes"]
    assert [names for _, names in gpu.plan()][-1] == ["persist_dynamic"]


def test_what_is_torchs_in_our_hands_runs_wherever_torch_does(monkeypatch):
    monkeypatch.setattr(gpu, "TORCH", ("torch", "torch-ours"))
    monkeypatch.setattr(gpu, "PEERS", ("torch", "torch-ours", *gpu.PEERS[1:]))
    assert sum("torch" in names for _, names in gpu.plan()) > 100
    for _, names in gpu.plan():
        assert ("torch" in names) == ("torch-ours" in names)


@pytest.mark.parametrize("when", ["versions", "results", "sample"])
def test_a_report_that_is_ended_early_lists_every_row_that_it_was_asked_for(when, tmp_path, monkeypatch, capsys):
    """By SIGTERM, as `timeout` ends it."""

    class Ended(Local):
        def __init__(self, name, *_):
            super().__init__("numpy")

        def versions(self):
            return self.end("versions")

        def results(self, row):
            return self.end("results") or super().results(row)

        def sample(self, seconds):
            return self.end("sample")

        @staticmethod
        def end(method):
            if method == when:
                signal.raise_signal(signal.SIGTERM)
            return {}

    monkeypatch.setattr(gpu, "engine_for", lambda _: None)
    monkeypatch.setattr(gpu, "Local", Ended)
    monkeypatch.setattr(gpu, "Remote", Ended)
    monkeypatch.setattr("sys.argv", ["gpu", "--out", str(tmp_path / "out.jsonl")])
    gpu.main()
    capsys.readouterr()
    written = load(tmp_path / "out.jsonl")
    assert "finished" in written.environment
    listed = [(r["group"], r["problem"], r["pass"], r["dtype"], r["competitor"]) for r in written.rows]
    asked = [(r.group, r.problem.name, r.which, r.dtype, name) for r, names in gpu.plan() for name in names]
    assert listed[: len(asked)] == asked
    assert len(listed) == len(set(listed))
    assert {row["reason"] for row in written.rows[: len(asked)]} == {"interrupted"}


# --- the C++ program


@pytest.fixture(scope="module")
def raw(shim_path, tmp_path_factory):
    """The program as a function, over the shim and a CUDA runtime of host memory."""
    if not (CUDA / "include" / "cuda_runtime_api.h").exists() or not shutil.which("g++"):
        pytest.skip("no g++ with CUDA's headers")
    folder = tmp_path_factory.mktemp("raw")
    include = [f"-I{CUDA / 'include'}", f"-I{CUDNN / 'include'}"]
    here = Path(__file__).parent
    subprocess.run(
        ["gcc", "-c", "-fPIC", "-O1", "-Wall", "-Werror", here / "host_cudart.c", "-o", folder / "cudart.o", *include],
        check=True,
    )
    library = folder / "libraw.so"
    warnings = ["-Wall", "-Wextra", "-Werror"]
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-O1", "-std=c++17", *warnings, "-Dmain=raw_main", raw_cudnn.SOURCE, *include,
         folder / "cudart.o", shim_path, CUDNN / "lib" / "libcudnn.so.9", f"-Wl,-rpath,{CUDNN / 'lib'}",
         "-Wl,-Bsymbolic", "-o", library],
        check=True,
    )  # fmt: skip
    # Deeply bound: TensorFlow, once some test has imported it, has functions of cuDNN's names for all to see.
    main = ctypes.CDLL(str(library), mode=os.RTLD_NOW | os.RTLD_DEEPBIND)._Z8raw_mainiPPc

    def call(*words):
        arguments = (ctypes.c_char_p * (len(words) + 1))(b"raw_cudnn", *(str(word).encode() for word in words))
        read, write = os.pipe()
        kept = os.dup(1)
        os.dup2(write, 1)
        try:
            code = main(len(arguments), arguments)
        finally:
            os.dup2(kept, 1)
            os.close(write)
            os.close(kept)
        with os.fdopen(read, encoding="utf-8") as answer:
            return code, json.loads(answer.read())

    return call


RAW_ROWS = [
    (group, sizes, which, dtype)
    for group, sizes in {
        "smoke": {}, "proj": {"P": 4, "H": 7}, "bidir": {"D": 2, "L": 2, "H": 6},
        "db10": {"H": 6, "I": 6, "B": 3, "T": 4}, "stream": {"H": 6}, "ragged": {"T": 9, "B": 5, "H": 6},
    }.items()
    for which, dtype in (("infer", "float16"), ("step", "float32"), ("wgrad", "float32"))
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("group", "sizes", "which", "dtype"), RAW_ROWS)
@pytest.mark.parametrize("option", ["plain", "graph"])
def test_the_cpp_program_computes_what_the_numpy_engine_computes(
    group, sizes, which, dtype, option, raw, played, tmp_path, monkeypatch
):
    problem = next((p for p in GROUPS[group].problems if which in p.passes and p.layout == "padded"), None)
    if problem is None or (option == "graph" and problem.lengths != "full"):
        return
    problem = problem.replace(**{"I": 5} | sizes)
    kept = tmp_path / "numbers"

    class Folder:
        def __init__(self, **_):
            kept.mkdir()

        def __enter__(self):
            return str(kept)

        def __exit__(self, *_):
            pass

    class Here:
        figures = None

        def ask(self, line):
            code, found = raw(*line.split()[1:], "--seconds", "0.001")
            assert code == 0, found
            Here.figures = found["figures"]
            return found["sizes"]

    monkeypatch.setattr(raw_cudnn.tempfile, "TemporaryDirectory", Folder)
    monkeypatch.setattr(raw_cudnn, "_server", lambda _option: Here())
    drawn = data.draw(problem)
    prepared = raw_cudnn.prepare(problem, which, dtype, drawn, option)
    error = data.worst_error(prepared.results(), data.reference(problem, which))
    assert error <= data.TOLERANCES[dtype]
    assert set(Here.figures) == {"times_us", "latency_us", "latency_p99_us", "pipelined_us", "host_us"}
    assert len(Here.figures["times_us"]) >= 3
    assert not played.complaints
    for name, arguments, _ in played.calls:
        if name == "cudnnRNNBackwardData_v8":  # y, dy, dx, dhy, dhx, dcy, dcx, weights, workspace, reserve
            pointers = [p for p in (arguments[i] for i in (4, 5, 7, 10, 11, 14, 15, 17, 19, 21)) if p]
            assert len(set(pointers)) == len(pointers), "no two arrays are one"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--cell", "lsmt"], "Invalid --cell: 'lsmt', expecting one of gru, lstm, relu, tanh"),
        (["--units", "0"], "Invalid --units: '0', expecting an integer of at least 1"),
        (["--units", "4x"], "Invalid --units"),
        (["--batch", "2", "--lengths", "1"], "expecting 2 of them"),
        (["--steps", "2", "--lengths", "3"], "more than --steps"),
        (["--skip", "--units", "4"], "--inputs and --units differ"),
        (["--proj", "9", "--units", "4"], "Invalid --proj"),
        (["--carried", "--pass", "step"], "Invalid --carried"),
        (["--seconds", "-1"], "Invalid --seconds"),
        (["--wide"], "--wide is not an option"),
        (["units"], "'units' is not an option"),
        (["--units"], "--units needs a value"),
    ],
)
def test_the_cpp_program_refuses_what_it_cannot_run(words, text, raw):
    code, found = raw(*words)
    assert code == 1
    assert text in found["error"]


def test_a_status_of_cudnns_that_means_refused_is_told_apart_from_a_failure(raw, played):
    played.fail = {("cudnnRNNForward", 1): 3000}
    code, found = raw("--units", 3)
    assert (code, list(found)) == (1, ["refused"])
    played.counts.clear()
    played.fail = {("cudnnRNNForward", 1): 5000}
    code, found = raw("--units", 3)
    assert (code, list(found)) == (1, ["error"])


@pytest.mark.long
def test_the_cpp_program_is_built_against_the_library_that_the_package_uses(tmp_path):
    if not shutil.which("nvcc") and not (CUDA / "include").exists():
        pytest.skip("no CUDA toolkit")
    program = raw_cudnn.build(CUDNN / "lib" / "libcudnn.so.9", tmp_path)
    done = subprocess.run(
        [program, "--describe", "--cell", "gru", "--units", "7"], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert (found["cell"], found["units"], found["cudnn_loaded"]) == ("gru", 7, 92800)
    assert Path(found["linked"]) == CUDNN / "lib" / "libcudnn.so.9"


@pytest.mark.parametrize("grid", [False, True])
def test_what_may_hang_runs_in_a_process_of_its_own(grid, played, tmp_path, monkeypatch, capsys):
    """A kernel that waits for itself would end the report with it; and JAX takes a GPU's memory for itself."""
    taken = {}

    def measure(parts, *_):
        taken.update({name: host for part in parts for name, _, host in part.hosts})
        return Results(None, {})

    monkeypatch.setattr(gpu, "measure", measure)
    monkeypatch.setattr("sys.argv", ["gpu", "--out", str(tmp_path), *(["--grid"] if grid else [])])
    gpu.main()
    capsys.readouterr()
    apart = {name for name, host in taken.items() if isinstance(host, Remote)}
    persistent = {"rule", "persist_static", "persist_dynamic", "small_h"}
    assert apart == (persistent | {"standard"} if grid else persistent | {"auto", "jax", "jax-ours"})


def test_a_figure_of_a_gpu_by_the_hosts_clock_says_so():
    row = {"competitor": "jax", "status": "ok", "median_us": 5.0, "clock": "host"}
    assert suite.cell(row) == "5.0 (h)"
    assert suite.cell(row | {"clock": "events"}) == "5.0"
    assert suite.cell(row | {"competitor": "numpy"}) == "5.0", "nothing else times a CPU"
