"""The arguments of a call, filled from a seed."""

from pycudnnrnn.testing.strategies import make_problem


def call_of(op, T=3, B=2, seed=0):
    """Return what an op is called with: input, states and params."""
    problem = make_problem(op, T, B, None, seed)
    return [problem.x, problem.hx, *([problem.cx] if problem.spec.has_cell_state else []), problem.params]
