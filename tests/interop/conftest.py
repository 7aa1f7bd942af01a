"""What the tests of JAX share: float64, and a look at the engine's calls."""

import pytest

from pycudnnrnn.engines.numpy_engine import plan as numpy_plan
from pycudnnrnn.engines.numpy_engine.reserve import NumpyReserve

OWNERS = {"forward": numpy_plan, "backward_data": NumpyReserve, "backward_weights": NumpyReserve}


@pytest.fixture
def float64():
    """In JAX's threads, too, which call back to the host."""
    import jax

    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.fixture
def engine_calls(monkeypatch):
    """The engine's calls as they come: names, and the arrays that they get and give."""
    calls = []

    def watch(name, owner):
        method = getattr(owner, name)

        def watched(*arguments, **keywords):
            found = method(*arguments, **keywords)
            calls.append((name, arguments, keywords))
            return found

        monkeypatch.setattr(owner, name, watched)

    for name, owner in OWNERS.items():
        watch(name, owner)
    return calls
