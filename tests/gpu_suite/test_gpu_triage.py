"""The triage: what it says of a check that ends well, finds something to mend, breaks, or never ends."""

import json
import time

import pytest

from tests.gpu import asked, children, framework_checks, numbers, triage
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


def test_memory_that_is_left_as_it_was_is_found(mends, monkeypatch):
    monkeypatch.setattr(asked, "padding", lambda _: {"y": True, "dx": False})
    assert mends("padding") == "fill dx, or y, with zeros before a ragged call"
