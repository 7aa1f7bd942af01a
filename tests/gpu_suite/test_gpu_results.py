"""What a run of the GPU suite leaves: each outcome at once, whatever becomes of its process; and how files are read."""

import json
import textwrap
from pathlib import Path

import pytest

from tests.gpu import suite
from tests.gpu.results_file import ResultsFile, load

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tests_of(monkeypatch, tmp_path):
    """Put a file of tests in the suite's place; give a function that runs it, and what its results file says."""
    monkeypatch.setenv("PYCUDNNRNN_GPU_ON_SHIM", "1")

    def call(source, *, seconds=600, hang_s=600, out=tmp_path / "results.jsonl"):
        folder = tmp_path / "suite"
        folder.mkdir(exist_ok=True)
        for name in ("conftest.py", "pytest.ini"):
            (folder / name).write_text((ROOT / "tests/gpu" / name).read_text())
        (folder / "test_it.py").write_text("import os, signal, time, json\nimport pytest\n" + textwrap.dedent(source))
        monkeypatch.setattr(suite, "FOLDER", str(folder))
        whole = suite.run(out, ["-q"], seconds, hang_s)
        return whole, load(out)

    return call


def by_name(found):
    return {case.partition("::")[2]: outcome for case, outcome in found["cases"].items()}


def test_each_outcome_is_written_with_what_was_measured_and_answered(tests_of):
    whole, found = tests_of("""
        def test_good(measured, answer):
            measured("models made and closed", cycles=3, worst_ms=2)
            answer("how", {"a": 1})
        def test_good_too(measured):
            measured("models made and closed", cycles=4, worst_ms=1)
        def test_bad(measured):
            measured("models made and closed", cycles=1)
            assert 1 == 2
        def test_left_out():
            pytest.skip("not here")
        @pytest.fixture
        def broken():
            raise RuntimeError("no")
        def test_never(broken):
            pass
        @pytest.mark.parametrize("n", [1, 2])
        def test_many(n):
            pass
    """)
    assert whole
    assert by_name(found) == {
        "test_good": "passed", "test_good_too": "passed", "test_bad": "failed", "test_left_out": "skipped",
        "test_never": "error", "test_many[1]": "passed", "test_many[2]": "passed",
    }  # fmt: skip
    assert (found["collected"], found["passed"], found["failed"], found["skipped"], found["error"]) == (7, 4, 1, 1, 1)
    (row,) = found["measured"].values()
    assert (row["tests"], row["measured"]) == (3, {"cycles": 8, "worst_ms": 2})
    assert [name.partition("::")[2] for name in row["failed"]] == ["test_bad"]
    assert found["questions"] == {"how": {"a": 1}}
    assert "assert 1 == 2" in next(why for case, why in found["failures"].items() if case.endswith("test_bad"))
    assert found["on_shim"] is True


def test_a_test_that_takes_its_process_with_it_ends_alone_and_the_rest_runs(tests_of):
    whole, found = tests_of("""
        def test_before(): pass
        def test_crash(): os.kill(os.getpid(), signal.SIGKILL)
        def test_after(): pass
        def test_exit(): os._exit(0)
        def test_last(): pass
    """)
    assert whole
    assert by_name(found) == {
        "test_before": "passed", "test_crash": "ended", "test_after": "passed", "test_exit": "ended",
        "test_last": "passed",
    }  # fmt: skip
    assert found["ended"] == len(found["failures"]) == 2


def test_a_run_gives_up_after_so_many_processes(tests_of, monkeypatch):
    monkeypatch.setattr(suite, "PROCESSES", 2)
    whole, found = tests_of("""
        @pytest.mark.parametrize("n", range(5))
        def test_crash(n): os._exit(0)
    """)
    assert not whole
    assert by_name(found) == {"test_crash[0]": "ended", "test_crash[1]": "ended"}


@pytest.mark.long
def test_a_test_that_hangs_is_ended_with_what_it_started_and_the_rest_runs(tests_of, tmp_path):
    child = tmp_path / "child"
    whole, found = tests_of(
        f"""
        import subprocess
        def test_hang():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            child = subprocess.Popen(["sleep", "1000"])
            open({str(child)!r}, "w").write(str(child.pid))
            while True:
                time.sleep(1)
        def test_after(): pass
    """,
        hang_s=8,
    )
    assert whole
    assert by_name(found) == {"test_hang": "ended", "test_after": "passed"}
    stat = Path(f"/proc/{child.read_text()}/stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


@pytest.mark.long
def test_a_lost_device_ends_the_process_and_not_the_run(tests_of):
    whole, found = tests_of("""
        class Lost:
            on_shim = False
            class device:
                class xp:
                    class cuda:
                        class runtime:
                            def deviceSynchronize():
                                raise RuntimeError("cudaErrorIllegalAddress")
        def test_loses(request):
            request.config.pluginmanager.get_plugin("gpu-suite").cuda = Lost
            assert False
        def test_after(request):
            assert request.config.pluginmanager.get_plugin("gpu-suite").cuda is None
    """)
    assert whole
    assert by_name(found) == {"test_loses": "failed", "test_after": "passed"}


@pytest.mark.long
def test_a_file_of_tests_that_cannot_be_read_is_an_error_and_the_rest_runs(tests_of, tmp_path):
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite/test_torn.py").write_text("import nothing_of_this_name\n")
    whole, found = tests_of("def test_it(): pass\n")
    assert whole
    assert sorted(found["cases"].values()) == ["error", "passed"]


@pytest.mark.long
def test_a_run_that_is_stopped_has_what_it_had_and_goes_on_from_there(tests_of, tmp_path):
    out = tmp_path / "results.jsonl"
    source = """
        def test_first(): pass
        def test_long(): time.sleep(1000 if not os.path.exists({go!r}) else 0)
        def test_last(): pass
    """.format(go=str(tmp_path / "go"))
    whole, found = tests_of(source, hang_s=600, seconds=10, out=out)
    assert not whole
    assert by_name(found)["test_first"] == "passed"
    assert "test_last" not in by_name(found)
    with out.open("a") as file:
        file.write('{"begin": "tests/gpu/te')  # a machine that was taken away
    before = len([line for line in ResultsFile(out).lines() if "run" in line])
    whole, found = tests_of(source, out=out)
    assert whole
    assert len([line for line in ResultsFile(out).lines() if "run" in line]) == before + 1, "none was glued to the half"
    assert by_name(found)["test_last"] == "passed"


def test_a_file_that_says_not_where_it_was_made_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"begin": "x"}) + "\n")
    with pytest.raises(ValueError, match="no line says where it was made"):
        load(tmp_path / "a.jsonl")


def test_without_git_the_commit_is_what_the_environment_says(tmp_path, monkeypatch):
    from benchmarks.environment import environment as benchmark
    from tests.gpu.machine import environment

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PYCUDNNRNN_COMMIT", raising=False)
    assert environment(None)["commit"] == benchmark("x")["commit"] == "unknown"
    monkeypatch.setenv("PYCUDNNRNN_COMMIT", "0123456789abcdef")
    assert environment(None)["commit"] == "0123456789abcdef"
    assert (benchmark("x")["commit"], benchmark("x")["dirty"]) == ("0123456", None)
