"""The pages say what is so: generated ones are up to date, every error has its row, and links lead somewhere."""

import inspect
import re

import pytest

from docs import generate, gpu
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


def test_every_relative_link_and_every_file_that_a_page_names_leads_to_a_file():
    tops, named = {path.name for path in ROOT.iterdir() if path.is_dir()}, set()
    for page in PAGES:
        text = page.read_text()
        for target in re.findall(r"\]\(([^)\s]+?)(?:#[\w-]+)?\)", re.sub(r"`[^`\n]+`", "", text)):
            if not target.startswith(("http", "#")):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"
        named |= {name for name in re.findall(r"`([\w./-]+/[\w./-]+)`", text) if name.partition("/")[0] in tops}
    assert len(named) > 20
    assert {name for name in named if not (ROOT / name).exists()} <= {"build/docs", "build/docs/index.html"}


def test_a_result_of_a_gpu_shows_what_ran_where_and_what_differed(tmp_path, monkeypatch):
    """One command puts what a run of the suite and of the benchmarks left in its place, and writes the pages."""
    machine = {
        "commit": "0123456789abcdef", "on_shim": False, "gpu": "NVIDIA X", "compute_capability": "9.0", "driver": 13000,
        "cuda_runtime": 13000, "cudnn": 92800, "cupy": "14.2.0", "numpy": "2.4.0", "python": "3.12.1",
    }  # fmt: skip
    file = ResultsFile(tmp_path / "run" / "numbers-0123.jsonl")
    (tmp_path / "run" / "nvidia-x").mkdir(parents=True)
    (tmp_path / "run" / "nvidia-x" / "a.jsonl").write_text('{"environment":{"gpu":["NVIDIA X"]}}')
    file.start("python -m tests.gpu.suite", machine)
    for name, outcome in (("test_questions.py::test_set_mode", "passed"), ("test_layers.py::test_a", "failed")):
        file.add(begin=f"tests/gpu/{name}")
        file.add(end=f"tests/gpu/{name}", outcome=outcome, why="def test_a():\n\nE  assert 1 == 2", seconds=1.0)
    file.add(question="SET mode", answer={"equal to ADD on zeros": True})
    file.add(question="error lstm float32 unidirectional equal", answer={"y": 0.25, "dx": 0.5})
    file.add(question="layout", answer={"compared": 300, "first_differences": {"standard float16": {}}})
    assert "Nothing has been verified on a GPU yet" in gpu.gpu_verification([]).partition("##")[0]
    monkeypatch.setattr(gpu, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(gpu, "BENCHMARKS", tmp_path / "benchmarks")
    monkeypatch.setattr(generate, "DOCS", tmp_path)
    monkeypatch.setattr(generate, "VERIFICATION", tmp_path / "gpu-verification.md")
    timed = []
    monkeypatch.setattr(generate.page, "write", lambda: timed.extend(tmp_path.glob("benchmarks/*/*.jsonl")))
    monkeypatch.setattr("sys.argv", ["generate", "--results", str(tmp_path / "run")])
    generate.main()
    assert [path.name for path in timed] == ["a.jsonl"]
    page = (tmp_path / "gpu-verification.md").read_text()
    assert "1 of 2 cases passed on NVIDIA X." in page
    assert "| `0123456789ab` | NVIDIA X | 13000 | 13000 | 9.28.0 | 14.2.0 | 2.4.0 | 3.12.1 | 1 | 1 | 0 |" in page
    assert "| `test_layers.py::test_a` | failed | `E  assert 1 == 2` |" in page
    assert "| float32 | 0.50 |" in page
    assert "Of 300 RNNs that were drawn, these kinds have another layout: `standard float16`." in page
    assert '| SET mode | `{"equal to ADD on zeros": true}` |' in page
    assert "| NVIDIA X | 9.0 | 13000 | 9.28.0 |" in (tmp_path / "compatibility.md").read_text()
