"""Our CUDA competitors and the C++ program run from end to end on the shim: call discipline, and nothing of a GPU."""

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import sysconfig
import types
from pathlib import Path

import pytest

from benchmarks import data, gpu
from benchmarks.adapters import NotRun, ours_cuda, raw_cudnn
from benchmarks.problems import GROUPS, PASSES, rows_of
from benchmarks.results_files import load
from benchmarks.runner import Asked, Part, Results, Settings, check, run
from pycudnnrnn.engines import use_engine
from pycudnnrnn.engines.cudnn.owned import RELEASE_FAILURES
from tests.benchmarks.rows import ODD, local, odd
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


OURS = ("eager", "plan", "rule", "graph")


def test_ours_runs_the_smoke_group_from_end_to_end_and_every_row_is_reported(played, tmp_path):
    rows = rows_of(["smoke"], lambda row: row.dtype in ("float32", "bfloat16"))
    results = Results(tmp_path / "out.jsonl", {"versions": {}})
    hosts = [Asked(name, None, local(name)) for name in OURS]
    run([Part(rows, hosts)], results, Settings(rounds=1, sample_s=0))
    written = load(tmp_path / "out.jsonl")
    assert written.environment["versions"]["cudnn"] == "9.28.0"
    assert len(written.rows) == len(rows) * len(OURS)
    assert [row["reason"] for row in written.rows if row["status"] != "ok"] == []
    assert {row["algo"] for row in written.select(competitor="rule")} == {"persist_static_small_h"}
    assert all(row["error"] <= row["error_allowed"] for row in written.rows)
    assert all(row["reserve_nbytes"] > 0 for row in written.select(competitor="plan", which="step"))


@pytest.mark.parametrize("name", ["eager", "plan"])
def test_ours_takes_the_groups_that_are_out_of_the_ordinary(name, played):
    base = rows_of(["smoke"], lambda row: (row.problem.cell, row.dtype) == ("lstm", "float32"))
    for row in odd(base) + [base[0]._replace(which=which) for which in PASSES]:
        check(row, local(name))
        local(name).prepare(row)  # calls more than once: states are carried


def test_the_gpu_report_refuses_without_a_gpu_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["gpu", "--out", str(tmp_path / "out.jsonl")])
    with pytest.raises(SystemExit, match=r"benchmarks\.gpu needs an NVIDIA GPU"):
        gpu.main()
    assert not list(tmp_path.iterdir())


def test_the_plan_has_every_group_and_peer_that_a_comparison_needs_and_no_row_twice():
    order = gpu.plan()
    taken = [(row, name) for row, names in order for name in names]
    assert len(taken) == len(set(taken))
    assert {row.group for row, _ in order} == {
        "db10", "db10-lin", "stream", "flashrnn", *gpu.HOLES, "frameworks", "kinds"
    }  # fmt: skip
    assert len({row.group for row, _ in order[:8]}) == 7, "a row of each group first"
    assert {name for _, name in taken} == {*gpu.OURS, *gpu.PEERS, *gpu.ALGORITHMS, *gpu.COMPILED}
    compiled = ["persist_dynamic" in names for _, names in order]
    assert compiled == sorted(compiled)
    stream = [set(names) for row, names in order if row.group == "stream" and row.dtype == "float16"]
    assert [bool({"eager", "torch-graph", "raw-graph", "jax"} & names) for names in stream[:4]] == [1, 0, 0, 1]
    assert order[2][0].problem.name == "lstm T=1024 B=16 U=768", "FlashRNN's"
    assert gpu.plan(["raw"]) == [(row, ["raw"]) for row, names in order if "raw" in names]


# --- the C++ program


@pytest.fixture(scope="module")
def raw_main(shim_path, tmp_path_factory):
    """The program's `main`, over the shim and a CUDA runtime of host memory."""
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
    return ctypes.CDLL(str(library), mode=os.RTLD_NOW | os.RTLD_DEEPBIND)._Z8raw_mainiPPc


@pytest.fixture
def raw(raw_main, capfd):
    """The program as a function."""

    def call(*words):
        arguments = (ctypes.c_char_p * (len(words) + 1))(b"raw_cudnn", *(str(word).encode() for word in words))
        capfd.readouterr()
        code = raw_main(len(arguments), arguments)
        return code, json.loads(capfd.readouterr().out)

    return call


@pytest.mark.long
@pytest.mark.parametrize("sizes", [{}, *ODD], ids=str)
@pytest.mark.parametrize(("which", "dtype"), [("infer", "float16"), *((which, "float32") for which in [*PASSES][1:])])
@pytest.mark.parametrize("option", ["plain", "graph"])
def test_the_cpp_program_computes_what_the_numpy_engine_computes(
    sizes, which, dtype, option, raw, played, tmp_path, monkeypatch
):
    problem = GROUPS["smoke"].problems[-1].replace(**sizes)
    if which != "infer" and problem.carried:
        return
    if option == "graph" and (problem.lengths != "full" or which not in {"infer", "step"}):
        with pytest.raises(NotRun, match="in a graph"):
            raw_cudnn.prepare(problem, which, dtype, data.draw(problem), option)
        return
    figures = {}

    def ask(line):
        code, found = raw(*line.split()[1:], "--seconds", "0.001")
        assert code == 0, found
        figures.update(found["figures"])
        return found["sizes"]

    monkeypatch.setattr(raw_cudnn.tempfile, "TemporaryDirectory", lambda **_: contextlib.nullcontext(tmp_path))
    monkeypatch.setattr(raw_cudnn, "_server", lambda _option: types.SimpleNamespace(ask=ask))
    drawn = data.draw(problem)
    prepared = raw_cudnn.prepare(problem, which, dtype, drawn, option)
    error = data.worst_error(prepared.results(), data.reference(problem, which))
    assert error <= data.TOLERANCES[dtype]
    apart = which.startswith("backward")
    assert set(figures) == {"times_us", "latency_us", "together"} | (set() if apart else {"pipelined_us", "host_us"})
    if apart:
        forwards, calls = (played.counts[f"cudnnRNN{name}"] for name in ("Forward", {
            "backward-data": "BackwardData_v8", "backward-weights": "BackwardWeights_v8"}[which]))  # fmt: skip
        assert forwards == calls > 5, "each call has a forward of its own"
    assert len(figures["times_us"]) >= 3
    assert not played.complaints
    for name, arguments, _ in played.calls:
        if name == "cudnnRNNBackwardData_v8":  # y, dy, dx, dhy, dhx, dcy, dcx, weights, workspace, reserve
            pointers = [p for p in (arguments[i] for i in (4, 5, 7, 10, 11, 14, 15, 17, 19, 21)) if p]
            assert len(set(pointers)) == len(pointers), "no two arrays are one"


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
