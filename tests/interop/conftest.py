"""What the tests of JAX share."""

import pytest


@pytest.fixture
def float64():
    """In JAX's threads, too, which call back to the host."""
    import jax

    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)
