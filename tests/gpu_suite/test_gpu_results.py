"""What a run of the GPU suite leaves: each outcome at once, whatever becomes of its process; and how files are read."""

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
