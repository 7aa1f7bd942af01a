"""What the GPU suite judges by: what is no number, memory that grows, and what a child process has said."""

import dataclasses

import numpy as np
import pytest

from pycudnnrnn import ops
from pycudnnrnn.testing.goldens import KINDS
from pycudnnrnn.testing.strategies import make_problem
from tests.gpu import asked, children
from tests.gpu.drift import PAGE_NBYTES, SAMPLES, growth, leaks
from tests.gpu.numbers import run_numpy, worst

PROBLEM = make_problem(ops.CudnnLSTM(2, 5, 3), 4, 2, None, seed=1)


@pytest.mark.parametrize("name", ["y", "hy", "cy", "dx", "dhx", "dcx", "dparams"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_result_that_is_no_number_is_an_error_wherever_it_stands(name, bad):
    expected = run_numpy(PROBLEM)
    found = {other: array.copy() for other, array in expected.items()}
    assert worst(found, expected, PROBLEM)[0] == 0
    found[name].flat[-1] = bad
    assert worst(found, expected, PROBLEM)[0] == np.inf
    assert max(asked.largest_differences(found, expected).values()) == np.inf


def test_sixteen_roundings_of_the_largest_value_are_what_is_allowed():
    expected = run_numpy(PROBLEM)
    expected["dx"].flat[0] = 8
    found = {name: array.copy() for name, array in expected.items()}
    found["dx"].flat[-1] += 16 * 8 * 2.0**-23 * (4 * 5 * 2) ** 0.5
    assert worst(found, expected, PROBLEM)[0] == pytest.approx(1)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("dtype", asked.DTYPES)
def test_wrong_numbers_are_refused_in_every_dtype_and_rounded_ones_are_not(kind, dtype):
    """Zeros, turned signs and two gates that changed places; against what every stored number's rounding does."""
    op = KINDS[kind](2, 24, 17, dtype=dtype)
    problem = make_problem(op, 7, 5, None, seed=3)
    expected, element = run_numpy(problem), op.dtype.numpy
    weights, biases = op.params_to_canonical(problem.params)
    for arrays in (weights, biases):
        arrays[0], arrays[1] = arrays[1], arrays[0]
    swapped = dataclasses.replace(problem, params=op.canonical_to_params(weights, biases))
    wrong = {
        "zeros": {name: np.zeros_like(array) for name, array in expected.items()},
        "signs": {name: -array for name, array in expected.items()},
    }
    for name in ("y", "dx", "dparams"):  # one alone is enough
        for how, found in wrong.items():
            assert worst(expected | {name: found[name]}, expected, problem)[0] > 1, (name, how)
    assert worst(run_numpy(swapped), expected, problem)[0] > 1
    rounded = {name: array.astype(element).astype(np.float64) for name, array in expected.items()}
    assert worst(rounded, expected, problem)[0] < 0.1


def pages(*changes):
    """Memory in use, in a run that begins with 100 pages and gets or gives back pages at samples."""
    used = np.full(SAMPLES, 100)
    for at, count in changes:
        used[at:] += count
    return [int(count) * PAGE_NBYTES for count in used]


@pytest.mark.parametrize("every", [1, 5, 10, 20])
def test_a_page_that_is_lost_again_and_again_is_a_leak(every):
    """A sample is 100 models: a page in 500 of them is one every 5 samples."""
    used = pages(*((at, 1) for at in range(0, SAMPLES, every)))
    assert leaks(used, PAGE_NBYTES)
    assert growth(used) > 2 * PAGE_NBYTES


def test_a_page_that_comes_once_or_goes_again_is_no_leak():
    for at in range(SAMPLES):
        assert not leaks(pages((at, 1)), PAGE_NBYTES)
        assert not leaks(pages((at, 1), (at + 3, -1)), PAGE_NBYTES)
        assert not leaks(pages((at, -1)), PAGE_NBYTES)


def test_noise_of_one_page_and_growth_while_a_run_warms_up_are_no_leak():
    rng = np.random.default_rng(0)
    for _ in range(100):
        noise = PAGE_NBYTES * rng.integers(0, 2, SAMPLES)
        assert not leaks(list(noise), PAGE_NBYTES)
    assert not leaks(pages(*((at, 3) for at in range(SAMPLES // 2))), PAGE_NBYTES)


def test_without_pages_nothing_may_grow():
    assert not leaks([7] * 20, 0)
    assert leaks([7] * 15 + [8] * 5, 0)


def test_a_childs_lines_are_read_whatever_else_is_written_and_however_it_ends():
    said = 'WARNING: of a library\n{"a": 1}\n3\n\n{"b": 2}\n{"c": '
    assert list(children.lines_of(said)) == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize("how", ["in flight", pytest.param("preallocated", marks=pytest.mark.long)])
def test_the_process_for_jax_runs(how, monkeypatch):
    """On a GPU it is on the device; here JAX is on the CPU, which shows that the process itself is whole."""
    monkeypatch.setenv("PYCUDNNRNN_GPU_ON_SHIM", "1")
    monkeypatch.setattr(children, "ON_SHIM", True)
    said, code, err = children.child(children.jax_process, how)
    assert (code, said) == (0, [{"begun": True} if how == "in flight" else {"finite": True}]), err


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("fill", ()), ("small_h", ("lstm",)), ("zero_length", ("inference",)), ("zero_length", ("training",)),
        ("unaligned", ("float32",)),
    ],
)  # fmt: skip
def test_what_the_engine_never_does_reaches_cudnn(name, arguments, monkeypatch):
    """What it would make of it there, a GPU says; here the process itself is whole."""
    monkeypatch.setenv("PYCUDNNRNN_GPU_ON_SHIM", "1")
    monkeypatch.setattr(children, "ON_SHIM", True)
    lines, code, err = children.child(getattr(children, name), *arguments)
    assert children.reached_cudnn(lines, code, err), err


def test_an_error_of_ours_is_no_answer_of_cudnns():
    assert not children.reached_cudnn([], 1, "TypeError: NativeCalls() takes 3 arguments")
    assert children.reached_cudnn([], 1, "CudnnError: cudnnRNNForward returned CUDNN_STATUS_NOT_SUPPORTED")
    assert children.reached_cudnn([], -6, "")
    assert children.reached_cudnn([], None, "")
    assert children.reached_cudnn([{"forward": "ran"}], 1, "")
