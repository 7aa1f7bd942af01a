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


def test_a_result_of_a_gpu_shows_up_and_one_without_a_gpu_is_refused(tmp_path):
    assert "Nothing has been verified on a GPU yet" in generate.gpu_verification([]).partition("##")[0]
    machine = dict.fromkeys(["cuda_runtime", "cudnn", "numpy"], 92800) | {
        "commit": "0123456789abcdef", "on_shim": False, "gpu": "NVIDIA X", "compute_capability": "9.0", "driver": 13000,
        "cupy": "14.2.0", "python": "3.11.7", "date": "2030-01-02T03:04:05+00:00",
    }  # fmt: skip
    file = ResultsFile(tmp_path / "new.jsonl")
    file.start("python -m tests.gpu.suite", machine)
    for name, outcome in (("test_questions.py::test_set_mode", "passed"), ("test_layers.py::test_a", "failed")):
        file.add(begin=f"tests/gpu/{name}")
        file.add(end=f"tests/gpu/{name}", outcome=outcome, why="", seconds=1.0)
    file.add(question="SET mode", answer={"equal to ADD on zeros": True})
    results = generate.gpu_results(tmp_path)
    page = generate.gpu_verification(results)
    assert "1 of 2 cases passed on NVIDIA X." in page
    assert '| SET mode | `{"equal to ADD on zeros": true}` |' in page.partition("## Questions not answered")[0]
    assert "| NVIDIA X | 9.0 | 13000 | 9.28.0 |" in generate.compatibility(results)
    ResultsFile(tmp_path / "none.jsonl").start("x", machine | {"on_shim": True})
    with pytest.raises(ValueError, match="was written without a GPU"):
        generate.gpu_results(tmp_path)
