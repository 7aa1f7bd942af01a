"""The suite's tools run on the stand-in, and keep no choices, either."""

from tests.cudnn_engine.conftest import _no_kept_choices  # noqa: F401  a fixture
