"""The pages say what is so: generated ones are up to date, every error has its row, and links lead somewhere."""

import inspect
import json
import re
import subprocess
import warnings

import pytest

from docs import generate
from pycudnnrnn import errors
from tests.docs.blocks import PAGES, ROOT

NATIVE = ("pycudnnrnn/_libcudnn.py", "pycudnnrnn/_libcudnn_abi.py", "pycudnnrnn/engines/cudnn/")
"""What a GPU result is about: when it has changed, the result is of something else."""


def test_the_readme_fits_two_screens():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100


@pytest.mark.parametrize("path", generate.committed_pages(), ids=lambda path: path.name)
def test_a_generated_page_is_what_would_be_generated(path):
    assert path.read_text() == generate.committed_pages()[path], "make docs writes it anew"


def test_every_public_error_has_its_section():
    public = {n for n, v in vars(errors).items() if inspect.isclass(v) and issubclass(v, errors.PycudnnrnnError)}
    page = (ROOT / "docs/errors.md").read_text()
    _, *parts = re.split(r"^### `(\w+)`$", page, flags=re.MULTILINE)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    assert len(sections) == len(parts) / 2
    assert sections.keys() == public
    for name, text in sections.items():
        also = re.search(r"^Also an? (.+)\.$", text, re.MULTILINE)
        kinds = re.findall(r"`(\w+)`", also[1]) if also else []
        bases = {base.__name__ for base in getattr(errors, name).__bases__}
        assert set(kinds) == bases - {"PycudnnrnnError", "Exception"}, name
        assert re.search(r"^\*\*Cause\*\*: \w", text, re.MULTILINE), name
        assert re.search(r"^\*\*Remedy\*\*: \S", text, re.MULTILINE), name


def test_every_relative_link_leads_to_a_file():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+?)(?:#[\w-]+)?\)", re.sub(r"`[^`\n]+`", "", page.read_text())):
            if not target.startswith(("http", "#")):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_every_file_of_the_repository_that_a_page_names_is_there():
    tops = {path.name for path in ROOT.iterdir() if path.is_dir()}
    named = set()
    for page in PAGES:
        for text in re.findall(r"`([\w./-]+)`", page.read_text()):
            if text.partition("/")[0] in tops and "/" in text:
                named.add(text)
    assert len(named) > 20
    made = {name for name in named if not (ROOT / name).exists()}
    assert made <= {"build/docs"}, "what `make` makes, and nothing else"


def result(**changes):
    questions = {"SET mode": {"equal to ADD on zeros": True}, "padding float16": {"zero": True}}
    return {
        "schema": 1, "date": "2030-01-02T03:04:05+00:00", "commit": "0123456789abcdef", "on_shim": False,
        "gpu": "NVIDIA X", "compute_capability": "9.0", "driver": 13000, "cuda_runtime": 13000, "cudnn": 92800,
        "cupy": "14.2.0", "numpy": "2.4.6", "python": "3.11.7", "collected": 3, "passed": 1, "failed": 1,
        "skipped": 1, "error": 0, "failures": ["tests/gpu/test_layers.py::test_a"], "questions": questions,
        "tests": {"test_questions.py::test_set_mode_of_the_weight_gradient": {"passed": 1}}, "reliability": {},
    } | changes  # fmt: skip


def test_without_a_result_the_page_lists_every_test_as_not_run():
    page = generate.gpu_verification([])
    tests = subprocess.run(
        ["grep", "-rhoE", "^def test_[a-z0-9_]+", ROOT / "tests/gpu"], capture_output=True, text=True, check=True
    ).stdout.split()[1::2]
    assert len(tests) > 20
    assert "Nothing has been verified on a GPU yet" in page
    for test in tests:
        assert f"::{test}` | not run |" in page, test
    assert "| `SET mode` |" in page.partition("## Questions not answered")[2]


REPLAYS = "test_a_hundred_replays_of_a_training_step_are_the_eager_one"


def test_a_result_shows_up_with_its_counts_and_answers(tmp_path):
    tests = {name: {"failed": 1} for name in (*result()["tests"], "test_graphs.py::" + REPLAYS)}
    older = result(date="2029-01-01T00:00:00+00:00", gpu="NVIDIA W", tests=tests)
    (tmp_path / "old.json").write_text(json.dumps(older))
    (tmp_path / "new.json").write_text(json.dumps(result()))
    results = generate.gpu_results(tmp_path)
    page = generate.gpu_verification(results)
    assert "Nothing has been verified" not in page
    assert page.index("| `new.json` |") < page.index("| `old.json` |")
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


def test_a_result_of_the_stand_in_is_refused(tmp_path):
    (tmp_path / "shim.json").write_text(json.dumps(result(on_shim=True)))
    with pytest.raises(ValueError, match="says nothing of a GPU"):
        generate.gpu_results(tmp_path)


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def why_stale(commit):
    """Why a result of this commit says nothing of the code as it is; empty where it does."""
    code = git("diff", "--quiet", commit, "HEAD", "--", *NATIVE).returncode
    return {0: "", 1: "the native code has changed since"}.get(code, "its commit is not known here")


@pytest.mark.filterwarnings("default")
def test_results_older_than_the_native_code_are_warned_about():
    for found in generate.gpu_results():
        if why := why_stale(found["commit"]):
            warnings.warn(f"{found['file']} is stale: {why}; make gpu-check on a GPU makes another", stacklevel=1)


def test_a_result_goes_stale_with_the_native_code():
    before = git("log", "-1", "--format=%H~1", "--", NATIVE[0]).stdout.strip()
    if git("cat-file", "-e", before or "none").returncode:
        pytest.skip("no history here: a shallow clone, or no clone")
    assert why_stale("HEAD") == ""
    assert why_stale(before) == "the native code has changed since"
    assert why_stale("0" * 40) == "its commit is not known here"
