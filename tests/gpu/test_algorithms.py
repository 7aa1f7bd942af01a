"""`algo="auto"` on a GPU: what runs, what is chosen, and that numbers stay where the NumPy engine has them.

It tries the persistent kernels, which wait for each other on the device.
"""

import pytest

from pycudnnrnn import ops
from pycudnnrnn.testing.goldens import KINDS
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu.numbers import run, run_numpy, worst

SHAPES = {"launch-bound": (150, 16, 256), "small": (25, 4, 64), "wide": (25, 64, 512), "odd": (20, 5, 168)}


@pytest.fixture
def shape(cuda, request):
    T, B, H = SHAPES[request.param]
    return (3, 2, H // 16) if cuda.on_shim else (T, B, H)


@pytest.mark.apart
@pytest.mark.parametrize("shape", SHAPES, indirect=True)
@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_what_is_chosen_has_the_numpy_engines_numbers(cuda, answer, shape, kind, dtype):
    T, B, H = shape
    op = KINDS[kind](1, H, H, dtype=dtype, algo="auto")
    ratio, _ = worst(run(cuda, problem := make_problem(op, T, B, None, seed=3)), run_numpy(problem), problem)
    choice = next(c for c in ops.algorithm_choices() if c.kind.spec == op.spec and c.kind.T == T and c.kind.training)
    trials = {f"{t.algo} {t.math_type}": t.reason if t.time_us is None else t.time_us for t in choice.trials}
    said = {"algo": choice.algo, "math_type": choice.math_type, "trials": trials}
    answer(f"auto {kind} {dtype} T={T} B={B} H={H}", said)
    assert ratio <= 1
    assert any(trial.algo == "standard" and trial.time_us is not None for trial in choice.trials)
    assert dtype == "float16" or {trial.math_type for trial in choice.trials} == {"fma"}
