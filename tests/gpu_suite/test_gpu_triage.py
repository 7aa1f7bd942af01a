"""The triage: what it says of a check that ends well, finds something to mend, breaks, or never ends."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from tests.gpu import asked, checks, children, framework_checks, machine_checks, numbers, triage
from tests.gpu.machine import machine
from tests.gpu.processes import Program
from tests.gpu.results_file import ResultsFile, load

ENDLESS = "echo begun; exec sleep 1000"


@pytest.fixture
def on_shim(monkeypatch):
    monkeypatch.setenv("PYCUDNNRNN_GPU_ON_SHIM", "1")
    monkeypatch.setattr("tests.gpu.machine.ON_SHIM", True)
    monkeypatch.setattr(children, "ON_SHIM", True)


@pytest.fixture
def scripts(monkeypatch, tmp_path):
    """Put scripts in the checks' place, by name; one without an end has said what it says when its limit comes."""

    def put(**scripts):
        def start(name, limit_s):
            path = tmp_path / name
            program = Program(["bash", "-c", scripts[name].replace("begun", f"begun > {path}")], limit_s)
            while ENDLESS in scripts[name] and not path.exists():
                time.sleep(0.01)
            return program

        monkeypatch.setattr(triage, "start", start)
        monkeypatch.setattr(triage, "CHECKS", {name: triage.Check(None) for name in scripts})
        return list(scripts)

    return put


def outcomes(path):
    return {name.partition("::")[2]: outcome for name, outcome in load(path)["cases"].items()}


def test_what_each_check_says_is_kept_and_what_is_to_be_mended_is_summed_up(tmp_path, scripts, capsys):
    names = scripts(
        first="""echo '{"ratio": 0.1}'""",
        clip="""echo '{"bound": 0.3, "mend": "round bounds"}'; echo of a library; echo '{"bound": 0.25}'""",
        graph="printf 'Traceback\n  of it\nError: it fell\n  - a detail\n' >&2; kill -SEGV $$",
    )
    file = ResultsFile(tmp_path / "triage.jsonl")
    file.start("triage", {"on_shim": True})
    wanted = {"clip": ["round bounds"], "graph": ["exit code -11: Error: it fell"]}
    assert triage.triage(file, names) == wanted
    assert outcomes(file.path) == {"first": "passed", "clip": "failed", "graph": "failed"}
    said = load(file.path)["questions"]
    assert said["triage clip"] == [{"bound": 0.3, "mend": "round bounds"}, {"bound": 0.25}]
    assert said["triage graph"] == [{"stderr": "Traceback\n  of it\nError: it fell\n  - a detail\n"}]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["check"]: line["mend"] for line in lines if "seconds" in line} == {"first": [], **wanted}


def test_a_check_that_never_ends_keeps_what_it_said_and_the_others_run(tmp_path, scripts, monkeypatch):
    names = scripts(persist=f"""echo '{{"algo": 1}}'; printf '{{"half'; {ENDLESS}""", first="""echo '{"ratio": 0.1}'""")
    triage.CHECKS["persist"] = triage.Check(None, limit_s=0)
    file = ResultsFile(tmp_path / "triage.jsonl")
    file.start("triage", {"on_shim": True})
    assert triage.triage(file, names) == {"persist": ["no end within 0 s"]}
    assert load(file.path)["questions"] == {
        "triage persist": [{"algo": 1}, {"stderr": ""}],
        "triage first": [{"ratio": 0.1}],
    }


def test_who_stops_the_triage_ends_its_checks_and_keeps_what_they_said(tmp_path, scripts, monkeypatch):
    names = scripts(jax=f"""echo '{{"backend": "gpu"}}'; {ENDLESS}""")
    programs = []

    def stop(_):
        raise KeyboardInterrupt

    start = triage.start
    monkeypatch.setattr(triage, "start", lambda *given: programs.append(start(*given)) or programs[-1])
    monkeypatch.setattr(triage, "time", SimpleNamespace(monotonic=time.monotonic, sleep=stop))
    file = ResultsFile(tmp_path / "triage.jsonl")
    file.start("triage", {"on_shim": True})
    with pytest.raises(KeyboardInterrupt):
        triage.triage(file, names)
    assert programs[0].over()
    assert load(file.path)["questions"] == {"triage jax": [{"backend": "gpu"}, {"stderr": ""}]}


def test_one_cause_that_turns_many_checks_red_is_told_once_with_all_of_them():
    red = {
        "where": ["chmod o-w /a"],
        "first": ["exit code 1: no libcudnn"],
        "jax": ["exit code 1: no libcudnn", "slow"],
    }
    assert triage.by_text(red) == {
        "chmod o-w /a": ["where"], "exit code 1: no libcudnn": ["first", "jax"], "slow": ["jax"],
    }  # fmt: skip


class Played:
    """A program that is over when it has been looked at three times; `running` has all that are not."""

    running: ClassVar[set[str]] = set()

    def __init__(self, name):
        self.name, self.looks, self.texts, self.code, self.seconds = name, 0, ["", ""], 0, 0.0
        self.running.add(name)

    def over(self):
        self.looks += 1
        if self.looks == 3:
            self.running.remove(self.name)
        return self.looks >= 3


def test_four_run_side_by_side_and_what_takes_times_alone_and_last(monkeypatch):
    beside = []
    monkeypatch.setattr(triage, "start", lambda name, limit_s: (Played(name), beside.append(set(Played.running)))[0])
    monkeypatch.setattr(triage, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: None))
    assert triage.triage(ResultsFile(None), triage.CHECKS) == {}
    alone = [name for name, check in triage.CHECKS.items() if check.alone]
    assert alone == ["torch_step", "dropout", "lost"]
    assert [running for running in beside if running & set(alone)] == [{name} for name in alone]
    assert beside[-3:] == [{name} for name in alone]
    assert max(map(len, beside)) == 4
    assert set().union(*beside) == set(triage.CHECKS)


def test_what_no_time_is_left_for_is_not_asked_and_is_told_so(tmp_path, monkeypatch):
    limits, now = {}, [1000.0]

    def start(name, limit_s):
        limits[name] = limit_s
        now[0] += 40
        return Played(name)

    monkeypatch.setattr(triage, "start", start)
    monkeypatch.setattr(triage, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None))
    file = ResultsFile(tmp_path / "triage.jsonl")
    file.start("triage", {"on_shim": True})
    names = ["first", "types", "clip", "graph", "torch_step", "lost"]
    found = triage.triage(file, names, seconds=100)
    assert limits == {"first": 75, "types": 35, "torch_step": 20}, "a quarter is left to those that run alone"
    assert found == {name: ["not asked: no time was left"] for name in ("clip", "graph", "lost")}
    assert load(file.path)["questions"]["triage clip"] == "not asked: no time was left"


def test_a_check_says_lines_from_a_process_of_its_own(on_shim):
    program = triage.start("clip", 600)
    while not program.over():
        time.sleep(0.01)
    assert [line["bound"] for line in children.lines_of(program.texts[0])] == [0.3, 0.25]
    assert program.code == 0, program.texts


@pytest.fixture
def mends(on_shim, capsys):
    """Give a function that runs a check here, and what it wants mended."""

    def ask(name):
        capsys.readouterr()
        triage.run_here(triage.CHECKS[name].function)
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
        assert lines
        return "\n".join(line["mend"] for line in lines if "mend" in line)

    return ask


def test_a_device_with_wrong_numbers_is_found_by_each_check_of_numbers(mends, monkeypatch):
    assert not any(map(mends, ("first", "types", "clip")))
    right = numbers.run
    monkeypatch.setattr(numbers, "run", lambda *a, **k: {n: -array for n, array in right(*a, **k).items()})
    assert mends("first") == "wrong numbers"
    assert mends("types").splitlines()[0] == "float16: wrong numbers"
    assert "cell_clip=0.3 in float64" in mends("clip")


def test_a_jax_function_with_wrong_gradients_is_found(mends, monkeypatch):
    monkeypatch.setattr(children, "child", lambda *_, **__: ([{"begun": True}], 0, ""))
    assert mends("jax") == ""
    right = framework_checks.by_jax
    monkeypatch.setattr(framework_checks, "by_jax", lambda problem: (f := right(problem)) | {"dx": -f["dx"]})
    assert set(mends("jax").splitlines()) == {f"JAX, {dtype}: wrong numbers" for dtype in ("float32", "bfloat16")}


@pytest.mark.parametrize(("code", "ended"), [(-6, "ended with exit code -6"), (None, "did not end")])
def test_a_process_that_dies_with_work_in_flight_is_a_finding_that_says_what_to_do(mends, monkeypatch, code, ended):
    monkeypatch.setattr(children, "child", lambda *_, **__: ([{"begun": True}], code, "terminate called"))
    found = mends("jax")
    assert ended in found
    assert "interop.jax needs an exit hook" in found
    assert "terminate called" in found


def test_each_callback_of_xlas_tells_its_thread_and_what_was_kept_there():
    calls = framework_checks.callbacks_of_jax(3)
    assert len(calls) == 3
    for call in calls:
        on_it = [other["calls_kept"] for other in calls if other["ident"] == call["ident"]]
        assert on_it == list(range(1, len(on_it) + 1)), "on the CPU a thread keeps what it had"


@pytest.mark.parametrize("what", ["packed", "batch_first", "autocast", "no seed", "one seed", "nothing"])
def test_a_torch_module_that_differs_from_torchs_own_is_found(mends, monkeypatch, what):
    import torch

    from pycudnnrnn.interop import torch as ours

    right = {kind: kind.__call__ for kind in (ours.LSTM, ours.GRU)}

    def wrong(module, data, *rest):
        packed, half = not isinstance(data, torch.Tensor), torch.is_autocast_enabled("cpu")
        y, states = right[type(module)](module, data, *rest)
        if (what, True) in {("packed", packed), ("batch_first", module.batch_first), ("autocast", half)}:
            y = y._replace(data=y.data * 1.1) if packed else y * 1.1
        return y, states

    for kind in right:
        monkeypatch.setattr(kind, "__call__", wrong)
    seeding = torch.manual_seed
    if what in {"no seed", "one seed"}:
        monkeypatch.setattr(torch, "manual_seed", lambda _: seeding(7) if what == "one seed" else None)
    found = mends("torch_more").splitlines()
    named = {
        "nothing": [],
        "packed": ["the torch module, packed"],
        "batch_first": ["the torch module, batch_first"],
        "autocast": [f"the torch module under autocast to torch.{dtype}" for dtype in ("bfloat16", "float16")],
    }.get(what, ["dropout does not follow torch's seed"])
    assert found == named


@pytest.mark.parametrize(
    ("came", "mend"),
    [
        (([{"dtype": "float16", "ratio": 0.1}], 0, ""), ""),
        (([{"dtype": "float16", "refused": "CudnnError: CUDNN_STATUS_NOT_SUPPORTED"}], 0, ""), ""),
        (([{"dtype": "float16", "ready_s": 1.5}], None, ""), "standard: no end within 20 s"),
        (([{"dtype": "float16", "ratio": 2.0}], 0, ""), "standard: wrong numbers in float16"),
        (([], -11, "Segmentation fault"), "standard: exit code -11: Segmentation fault"),
        (([{"dtype": "float16", "refused": "no libnvrtc.so.13"}], 0, ""), "standard: NVRTC, see load_nvrtc"),
    ],
    ids=["right", "refused", "hangs", "wrong", "crashes", "nvrtc"],
)
def test_an_algorithm_that_hangs_crashes_or_is_wrong_is_found_in_its_process(mends, monkeypatch, came, mend):
    monkeypatch.setattr(children, "child", lambda _, algo, **__: came if algo == "standard" else ([], 0, ""))
    assert mends("persist").startswith(mend)
    assert bool(mend) == bool(mends("persist"))


def test_the_process_of_an_algorithm_says_how_long_it_took_and_how_right_it_is(on_shim):
    lines, code, err = children.child(children.trained, "standard")
    assert code == 0, err
    assert [line["dtype"] for line in lines] == ["float16", "float16", "float32", "float32"]
    assert all(line["ready_s"] >= 0 for line in lines)
    assert all(line["ratio"] <= 1 for line in lines[1::2])


@pytest.mark.parametrize("name", ["benchmarks", "collect", "memcheck"])
def test_a_tool_that_does_not_start_is_told(mends, monkeypatch, name):
    monkeypatch.setattr(machine_checks.sanitize, "program", lambda: "compute-sanitizer")
    monkeypatch.setattr(machine_checks, "started", lambda *_: ("", "no such module", 1))
    wanted = {"benchmarks": "exit code 1: no such module", "collect": "no such module", "memcheck": "did not get to"}
    assert wanted[name] in mends(name)


def test_a_benchmark_whose_only_rows_failed_is_told(mends, monkeypatch):
    def started(command, *_):
        row = {"competitor": "raw", "status": "failed", "reason": "nvcc: not found"}
        Path(command[-1], "a.jsonl").write_text(json.dumps({"date": "now"}) + "\n" + json.dumps(row) + "\n")
        return "", "", 0

    monkeypatch.setattr(machine_checks, "started", started)
    assert mends("benchmarks") == "raw: nvcc: not found"


def test_the_sanitizers_log_is_kept_and_a_case_alone_is_run(mends, monkeypatch, capsys):
    asked_for = []
    log = "========= COMPUTE-SANITIZER\ncase: x\ncases: all\n========= ERROR SUMMARY: 0 errors\n"
    monkeypatch.setattr(machine_checks.sanitize, "program", lambda: "compute-sanitizer")
    monkeypatch.setattr(machine_checks, "started", lambda command, *_: (asked_for.append(command) or log, "", 0))
    assert mends("racecheck") == ""
    from tests.gpu.cases import CASES

    assert asked_for[0][:3] == ["compute-sanitizer", "--tool", "racecheck"]
    assert asked_for[0][-1] in CASES
    machine_checks.sanitizer("racecheck")
    assert json.loads(capsys.readouterr().out)["log"] == log


def test_memory_that_is_left_as_it_was_is_found(mends, monkeypatch):
    monkeypatch.setattr(asked, "padding", lambda _: {"y": True, "dx": False})
    assert mends("padding") == "fill dx, or y, with zeros before a ragged call"


def test_times_are_taken_of_the_host_and_of_the_device(on_shim):
    with machine() as cuda:
        found = checks.times_of(cuda, lambda: np.ones(3).sum())
    assert 0 <= found["host"] <= found["done"]
