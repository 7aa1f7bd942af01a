"""The pictures are what their script draws, and the tour's page is its notebook."""

import re

import pytest

from docs import pictures
from tests.helpers.oracles import need

need("nbformat")
import nbformat  # noqa: E402

from docs import tour  # noqa: E402

MATPLOTLIB = re.compile(r"<dc:title>(Matplotlib v[\d.]+)")


@pytest.mark.parametrize("name", pictures.LAYOUTS)
def test_a_picture_is_what_its_script_draws(name, tmp_path):
    """To the byte with the matplotlib that drew it; with another, its words and numbers."""
    pictures.draw(tmp_path)
    drawn, committed = ((folder / name).read_text() for folder in (tmp_path, pictures.PICTURES))
    words = [re.findall(r"<text[^>]*>([^<]*)<", picture) for picture in (drawn, committed)]
    assert words[0] == words[1], "python -m docs.pictures draws it"
    if MATPLOTLIB.search(drawn)[1] == MATPLOTLIB.search(committed)[1]:
        assert drawn == committed


def test_the_first_pages_picture_is_what_its_script_draws():
    assert (pictures.PICTURES / pictures.OVERVIEW).read_text(encoding="utf-8") == pictures.overview()


def test_the_page_of_the_tour_is_its_notebook():
    for path, data in tour.page(nbformat.read(tour.NOTEBOOK, as_version=4)).items():
        assert path.read_bytes() == data, f"python -m docs.tour writes {path.name}"
