"""Run a problem by the CUDA path on a shim, and name its results as the NumPy engine's."""

import dataclasses

from pycudnnrnn.testing.problems import DATA
from tests.helpers.axes import by_batch, by_time
from tests.stand_in.host_device import host


def on_device(device, problem, time_major=True):
    """The problem's arrays as CuPy arrays over guarded host memory."""
    problem = problem if time_major else by_batch(problem)
    return {name: device.from_host(getattr(problem, name)) for name in ("params", *DATA)}


def run(problem, arrays, **keywords):
    """Every result and gradient of a problem computed on the device's arrays; on the host, data by time first."""
    results = dataclasses.replace(problem, **arrays).results(**keywords)
    results = {name: host(array).copy() for name, array in results.items()}
    return results if keywords.get("time_major", True) else by_time(results)


def run_on(device, problem, **keywords):
    """The same from arrays of its own."""
    return run(problem, on_device(device, problem, keywords.get("time_major", True)), **keywords)
