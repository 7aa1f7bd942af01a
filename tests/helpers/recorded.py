"""The NumPy engine with a record of the passes that run: through the protocol of `engines`, whatever is inside."""

from pycudnnrnn.engines.numpy_engine import NumpyEngine
from pycudnnrnn.passes import BACKWARD_DATA, BACKWARD_WEIGHTS, FORWARD, GRADIENTS, RESULTS

NAMES = {FORWARD: "forward", BACKWARD_DATA: "backward_data", BACKWARD_WEIGHTS: "backward_weights"}


class RecordingEngine(NumpyEngine):
    """`ran` has a tuple for each pass: its name, its configuration, and the arrays that it read and wrote, by name.

    `binds` counts how often a pass was bound to arrays. A bound pass that is named in `failing` finds no memory.
    """

    def __init__(self):
        super().__init__()
        self.ran, self.binds, self.failing = [], 0, set()

    def plan(self, config):
        plan = super().plan(config)
        bind = plan.bind

        def recorded(which, arrays, at):
            run = bind(which, arrays, at)
            self.binds += 1

            def call(**keywords):
                if NAMES[which] in self.failing:
                    raise MemoryError("no room for a tape")
                run(**keywords)
                self.ran.append((NAMES[which], config, arrays))

            return call

        plan.bind = recorded
        return plan

    def calls(self, config):
        calls = super().calls(config)
        forward = calls.forward

        def recorded(schedule, inputs, at):
            *results, reserve = forward(schedule, inputs, at)
            self.ran.append(("forward", config, inputs | dict(zip(RESULTS, results, strict=True))))
            return *results, None if reserve is None else Reserve(reserve, config, self.ran)

        calls.forward = recorded
        return calls


class Reserve:
    def __init__(self, reserve, config, calls):
        self._reserve, self._config, self._calls = reserve, config, calls

    @property
    def touched(self):
        return self._reserve.touched

    def copy(self):
        return Reserve(self._reserve.copy(), self._config, self._calls)

    def backward_data(self, *upstream):
        gradients = self._reserve.backward_data(*upstream)
        self._calls.append(("backward_data", self._config, dict(zip(GRADIENTS, gradients, strict=True))))
        return gradients

    def backward_weights(self, out, *, accumulate):
        self._reserve.backward_weights(out, accumulate=accumulate)
        self._calls.append(("backward_weights", self._config, {"d_params": out}))
