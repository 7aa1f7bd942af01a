"""No member that TF's reference documents is without a test, and no test holds another."""

import pytest

from tests.helpers import tf_pages
from tests.tf1 import (  # noqa: F401  what they hold they say while they are imported
    test_tf_base_layer,
    test_tf_cell_page,
    test_tf_layer_page,
    test_tf_op_pages,
)

PAGES = {name: page for name, page in vars(tf_pages).items() if isinstance(page, tf_pages.Page)}


@pytest.mark.parametrize("name", PAGES)
def test_every_documented_member_has_a_test(name):
    assert PAGES[name].held == PAGES[name].members


def test_the_pages_document_111_members():
    assert sum(len(page.members) for page in PAGES.values()) == 111
