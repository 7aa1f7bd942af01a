"""The committed results, and the documents that they make."""

import re

from benchmarks import report
from benchmarks.results_files import load, runs


def test_the_documents_are_what_the_committed_results_make():
    found = report.document(runs())
    assert report.DOCUMENT.read_text() == found, "make docs-performance"
    assert report.GOALS_DOCUMENT.read_text() == report.goals_document(runs()), "make docs-performance"
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", found)
    assert {f"performance/{p.name}" for p in report.DOCUMENT.parent.glob("performance/*")} == set(pictures)
    for path in (report.DOCUMENT, report.GOALS_DOCUMENT):
        targets = re.findall(r"\]\(([^)]+)\)|^\[\d+\]: (\S+)$", path.read_text(), re.MULTILINE)
        assert all((path.parent / target).exists() for target in map("".join, targets))


def test_the_page_is_short_and_has_figures_of_one_commit():
    text = report.document(runs())
    assert re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL).count("\n") <= 80
    assert text.splitlines()[4].startswith("**On a CPU, our time divided by torch's is ")
    assert len(set(re.findall(r"^- Commit: (\w+)", text, re.MULTILINE))) == 1


def test_every_committed_results_file_is_one():
    files = [path for path in report.FOLDER.rglob("*") if path.is_file()]
    assert files
    assert all(load(path).rows for path in files)
