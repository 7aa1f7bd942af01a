"""The pages say what is so: generated ones are up to date, every error has its row, and links lead somewhere."""

import ast
import inspect
import re

import pytest

from docs import generate
from pycudnnrnn import errors
from tests.docs.blocks import PAGES, ROOT
from tests.gpu.results_file import ResultsFile


@pytest.mark.parametrize("path", generate.committed_pages(), ids=lambda path: path.name)
def test_a_generated_page_is_what_would_be_generated(path):
    assert path.read_text() == generate.committed_pages()[path], "make docs writes it anew"


def test_every_public_error_has_its_row():
    """It names the other base classes, the cause and what to do."""
    public = {n for n, v in vars(errors).items() if inspect.isclass(v) and issubclass(v, errors.PycudnnrnnError)}
    page = (ROOT / "docs/errors.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|(.*)\|(.*)\|$", page, re.MULTILINE)
    assert sorted(name for name, *_ in rows) == sorted(public)
    for name, also, cause, remedy in rows:
        bases = {base.__name__ for base in getattr(errors, name).__bases__}
        assert set(re.findall(r"`(\w+)`", also)) == bases - {"PycudnnrnnError", "Exception"}, name
        assert cause.strip(), name
        assert remedy.strip(), name


def test_every_error_that_a_user_can_meet_is_a_public_one():
    """What is raised from a private module has a name that a user can catch, and a row on the page.

    Three only add to the public class that users catch: an error of TensorFlow's or torch's, or the difference between
    a missing and a broken libcudnn, which `check` reports differently.
    """
    public = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    adds = {"NodeError": "StateError", "TorchArgumentError": "ArgumentError", "NotFoundError": "EngineError"}
    for path in sorted(ROOT.glob("pycudnnrnn/**/*.py")):
        if path == ROOT / "pycudnnrnn/errors.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            bases = {ast.unparse(base).rpartition(".")[2] for base in getattr(node, "bases", ())}
            known = {adds.get(getattr(node, "name", ""))}
            assert bases & public <= known, f"{path.relative_to(ROOT)}: {node.name} belongs into errors.py"


def test_every_relative_link_and_every_file_that_a_page_names_leads_to_a_file():
    tops, named = {path.name for path in ROOT.iterdir() if path.is_dir()}, set()
    for page in PAGES:
        text = page.read_text()
        for target in re.findall(r"\]\(([^)\s]+?)(?:#[\w-]+)?\)", re.sub(r"`[^`\n]+`", "", text)):
            if not target.startswith(("http", "#")):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"
        named |= {name for name in re.findall(r"`([\w./-]+/[\w./-]+)`", text) if name.partition("/")[0] in tops}
    assert len(named) > 20
    assert {name for name in named if not (ROOT / name).exists()} <= {"build/docs"}, "what `make` makes"


def write_result(path, cases, *, questions=(), date="2030-01-02T03:04:05+00:00", **changes):
    """Write a results file: cases with their outcomes, and questions with their answers."""
    file = ResultsFile(path)
    machine = {
        "commit": "0123456789abcdef", "on_shim": False, "gpu": "NVIDIA X", "compute_capability": "9.0",
        "driver": 13000, "cuda_runtime": 13000, "cudnn": 92800, "cupy": "14.2.0", "numpy": "2.4.6",
        "python": "3.11.7",
    }  # fmt: skip
    file.start("python -m tests.gpu.suite", machine | {"date": date} | changes)
    for case, outcome in cases.items():
        file.add(begin=f"tests/gpu/{case}")
        file.add(end=f"tests/gpu/{case}", outcome=outcome, why="", measured=[], seconds=1.0)
    for question, answer in questions:
        file.add(question=question, answer=answer)


def test_without_a_result_the_page_is_short():
    page = generate.gpu_verification([])
    assert "Nothing has been verified on a GPU yet" in page.partition("##")[0]
    assert "`make gpu-check`" in page.partition("##")[0]
    assert "not run |" not in page


REPLAYS = "test_a_hundred_replays_of_a_training_step_are_the_eager_one"


SET = "test_questions.py::test_set_mode_of_the_weight_gradient"


def test_a_result_shows_up_with_its_counts_and_answers(tmp_path):
    old = {SET: "failed", f"test_graphs.py::{REPLAYS}[a]": "failed"}
    write_result(tmp_path / "old.jsonl", old, date="2029-01-01T00:00:00+00:00", gpu="NVIDIA W", commit="89abcdef")
    new = {SET: "passed", "test_layers.py::test_a": "failed", "test_layers.py::test_b": "skipped"}
    answers = [("SET mode", {"equal to ADD on zeros": True}), ("padding float16", {"zero": True})]
    write_result(tmp_path / "new.jsonl", new, questions=answers)
    results = generate.gpu_results(tmp_path)
    page = generate.gpu_verification(results)
    assert "Nothing has been verified" not in page
    assert "1 of 4 cases passed on NVIDIA X, NVIDIA W." in page
    assert page.index("| `new.jsonl` |") < page.index("| `old.jsonl` |")
    assert "9.28.0 | 13000 | 14.2.0 | 3.11.7 | 1 | 1 | 1 |" in page
    assert "test_set_mode_of_the_weight_gradient` | 1 passed |" in page
    assert f"{REPLAYS}` | 1 failed |" in page, "of the older one, where the newest has none"
    answered, _, still_open = page.partition("## Questions not answered")
    assert '| SET mode | `{"equal to ADD on zeros": true}` |' in answered
    assert "`SET mode`" not in still_open
    assert "`padding <dtype>`" not in still_open
    assert "`NULL dhy and dcy`" in still_open
    compatible = generate.compatibility(results)
    assert "| NVIDIA X | 9.0 | 13000 | 9.28.0 |" in compatible
    assert re.search(r"^\| 9\.28\.0 \|.*\| NVIDIA X, NVIDIA W \|$", compatible, re.MULTILINE)
    assert re.search(r"^\| 8\.9\.7 \|.*\| no \|$", compatible, re.MULTILINE)


@pytest.mark.parametrize("machine", [{"on_shim": True, "gpu": "NVIDIA X"}, {"on_shim": False}])
def test_a_result_without_a_gpu_is_refused(tmp_path, machine):
    ResultsFile(tmp_path / "none.jsonl").start("x", {"commit": "0"} | machine)
    with pytest.raises(ValueError, match="was written without a GPU"):
        generate.gpu_results(tmp_path)
