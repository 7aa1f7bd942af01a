"""The tests' own oracles: a missing one is no silence, and a NaN is no small difference."""

import numpy as np
import pytest

from tests.helpers.oracles import need, worst
from tests.helpers.torch_oracle import worst_error


def test_a_missing_oracle_fails_in_ci_and_skips_elsewhere(monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="CI has to have no_such_framework"):
        need("no_such_framework")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="needs no_such_framework"):
        need("no_such_framework")


@pytest.mark.parametrize("place", [0, 1])
def test_a_nan_is_no_small_difference(place):
    right, wrong = [np.ones(3), np.ones(3)], [np.ones(3), np.ones(3)]
    wrong[place][1] = np.nan
    assert worst([*right, None], [*right, None]) == 0
    with pytest.raises(AssertionError):
        worst([*wrong, None], [*right, None])
    with pytest.raises(AssertionError):
        worst_error(dict(enumerate(wrong)), dict(enumerate(right)))
