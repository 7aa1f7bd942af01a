"""Run a problem by the CUDA path on a shim, and name its results as the NumPy engine's."""

import dataclasses

import numpy as np

from tests.stand_in.host_device import host


def on_device(device, problem, time_major=True):
    """The problem's arrays as CuPy arrays over guarded host memory."""

    def swapped(array):
        return array if time_major else np.ascontiguousarray(array.swapaxes(0, 1))

    arrays = {
        "x": swapped(problem.x), "dy": swapped(problem.dy), "hx": problem.hx, "cx": problem.cx,
        "dhy": problem.dhy, "dcy": problem.dcy, "params": problem.params,
    }  # fmt: skip
    return {name: device.from_host(array) for name, array in arrays.items()}


def run(problem, arrays, **keywords):
    """Every result and gradient of a problem computed on the device's arrays; on the host, data by time first."""
    results = dataclasses.replace(problem, **arrays).results(**keywords)
    results = {name: host(array).copy() for name, array in results.items()}
    if keywords.get("time_major", True):
        return results
    return results | {name: results[name].swapaxes(0, 1) for name in ("y", "dx")}


def run_on(device, problem, **keywords):
    """The same from arrays of its own."""
    return run(problem, on_device(device, problem, keywords.get("time_major", True)), **keywords)
