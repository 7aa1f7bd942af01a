"""Run a problem by the CUDA path on a shim, and name its results as the NumPy engine's."""

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


def run(problem, arrays, *, time_major=True, retain=False, **keywords):
    """Forward and backward on the device; results on the host."""
    lstm = problem.spec.has_cell_state
    states = (arrays["hx"], arrays["cx"]) if lstm else (arrays["hx"],)
    keywords = {"sequence_lengths": problem.lengths, "time_major": time_major} | keywords
    fwd = problem.op.forward(arrays["x"], *states, arrays["params"], **keywords)
    grads = fwd.backward(arrays["dy"], arrays["dhy"], arrays["dcy"] if lstm else None, retain=retain)
    return named(fwd, grads)


def named(fwd, grads):
    found = {
        "y": fwd.output, "hy": fwd.output_h, "cy": fwd.output_c,
        "dx": grads.input, "dhx": grads.input_h, "dcx": grads.input_c, "dparams": grads.params,
    }  # fmt: skip
    return {
        name: array.copy() if isinstance(array, np.ndarray) else host(array).copy()
        for name, array in found.items()
        if array is not None
    }


def run_numpy(problem, **keywords):
    """The same by the NumPy engine."""
    fwd = problem.forward(**keywords)
    return named(fwd, fwd.backward(*problem.upstream()))
