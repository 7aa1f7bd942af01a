"""`pycudnnrnn convert --verify`: run each side's framework and our op on the same input, and compare.

A runner takes the arrays of the converter's `from_canonical`, under their usual names, and runs the framework's own
RNN. It returns NumPy arrays in the shapes of our ops: output, output_h, output_c (LSTM only, otherwise None). A
framework is imported when its runner runs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from pycudnnrnn import convert as converters
from pycudnnrnn import ops
from pycudnnrnn._forms import Array
from pycudnnrnn.convert import Canonical
from pycudnnrnn.convert.named import Named
from pycudnnrnn.convert.onnx.model import model_of
from pycudnnrnn.errors import ConvertError, PycudnnrnnError
from pycudnnrnn.spec import DType, RNNSpec
from pycudnnrnn.testing.problems import make_problem

Outputs = tuple[Array, Array, Array | None]

TOLERANCES: Final = {DType.FLOAT64: 1e-5, DType.FLOAT32: 1e-4, DType.FLOAT16: 2e-2, DType.BFLOAT16: 1e-1}
"""Largest difference that counts as equal; Keras and onnxruntime compute parts of float64 models in float32."""


class Verdict(NamedTuple):
    """The largest difference between a side's framework and our op, or the reason why it did not run."""

    name: str
    error: float | None
    not_run: str | None = None

    def __str__(self) -> str:
        result = f"not run, {self.not_run}" if self.error is None else f"worst error {self.error:.1e}"
        return f"{self.name}: {result}"


def verify(c: Canonical, sides: dict[str, tuple[str, dict[str, Any]]]) -> list[Verdict]:
    """Run our op and the framework of each side on the same random input, with ragged lengths and states.

    Raises:
        PycudnnrnnError: a side computes other results than the op, or no side could run.
    """
    verdicts = list(_verdicts(c, sides))
    for verdict in verdicts:
        if verdict.error is not None and not verdict.error <= TOLERANCES[c.spec.dtype]:
            raise PycudnnrnnError(f"{verdict.name} computes other results than the op: worst error {verdict.error:.1e}")
    if all(verdict.error is None for verdict in verdicts):
        why = "; ".join(map(str, verdicts))
        raise PycudnnrnnError(f"nothing was verified and nothing is written: {why}. Leave out --verify to write it")
    return verdicts


def _verdicts(c: Canonical, sides: dict[str, tuple[str, dict[str, Any]]]) -> Iterator[Verdict]:
    lengths = [7, 1, 4, 7, 2]
    problem = make_problem(ops.from_spec(c.spec), max(lengths), len(lengths), lengths, 0)
    fwd = problem.forward(problem.op.canonical_to_params(c), is_training=False)
    ours = [a for a in (fwd.output, fwd.output_h, fwd.output_c) if a is not None]
    arguments = c.spec, problem.x, problem.hx, problem.cx, np.array(lengths)
    for side, (framework, arrays) in sides.items():
        name = f"{framework} ({side})"
        run, packages = RUNNERS.get(framework, (None, ()))
        missing = [package for package in packages if importlib.util.find_spec(package) is None]
        if run is None or missing:
            yield Verdict(name, None, f"{', '.join(missing)} is not installed" if run else "nothing here runs it")
            continue
        usual = getattr(converters, framework).from_canonical(c)
        if not _holds(arrays, usual):
            yield Verdict(name, None, "these are not the arrays of the module that would be run")
            continue
        try:
            outputs = [a for a in run(usual, *arguments) if a is not None]
        except Exception as error:  # noqa: BLE001  onnxruntime has no GRU in float64: any library's own way to say so
            yield Verdict(name, None, f"{type(error).__name__}: {str(error).strip().rpartition(chr(10))[2]}")
            continue
        errors = [np.abs(a.astype("f8") - b.astype("f8")).max() for a, b in zip(ours, outputs, strict=True)]
        yield Verdict(name, float(np.max(errors)))  # NaN where one is: Python's own `max` passes over it


def _holds(arrays: Any, usual: dict[str, Any]) -> bool:
    """Return whether the file contains every array that the runner would use, under any name."""
    named, stored = Named("", arrays), set()
    for key in named:
        with contextlib.suppress(ConvertError):  # a file may have arrays of other kinds, which are no weights
            array = named.array(key)
            stored.add((array.shape, array.tobytes()))
    return all((a.shape, a.tobytes()) in stored for a in usual.values())


def run_pytorch(arrays: dict[str, Array], spec: RNNSpec, x: Array, hx: Array, cx: Array, lengths: Array) -> Outputs:
    """Run nn.LSTM, nn.GRU or nn.RNN on a packed sequence."""
    import torch  # noqa: PLC0415
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: PLC0415

    keywords: dict[str, Any] = {"bidirectional": spec.num_dirs == 2, "dtype": getattr(torch, spec.dtype)}
    keywords |= {"num_layers": spec.num_layers, "bias": "bias_ih_l0" in arrays}
    if spec.num_proj:
        keywords["proj_size"] = spec.num_proj
    kinds: dict[str, Any] = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
    if spec.mode not in kinds:
        keywords["nonlinearity"] = spec.mode.removeprefix("rnn_")
    module = kinds.get(spec.mode, torch.nn.RNN)(spec.input_size, spec.num_units, **keywords)
    module.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    with torch.no_grad():
        packed = pack_padded_sequence(torch.from_numpy(x), torch.from_numpy(lengths), enforce_sorted=False)
        h, c = torch.from_numpy(hx), torch.from_numpy(cx)
        packed, states = module(packed, (h, c) if spec.has_cell_state else h)
        y, _ = pad_packed_sequence(packed, total_length=len(x))
    hy, cy = states if spec.has_cell_state else (states, None)
    return y.numpy(), hy.numpy(), None if cy is None else cy.numpy()


def run_keras(arrays: dict[str, Array], spec: RNNSpec, x: Array, hx: Array, cx: Array, lengths: Array) -> Outputs:
    """Run one Keras layer per layer, masked on the right; a masked step repeats an output, and counts as 0 here."""
    if "KERAS_BACKEND" not in os.environ:
        installed = [name for name in ("tensorflow", "jax", "torch") if importlib.util.find_spec(name)]
        os.environ["KERAS_BACKEND"] = (installed or ["numpy"])[0]
    import keras  # noqa: PLC0415

    keywords: dict[str, Any] = {"return_sequences": True, "return_state": True, "dtype": str(spec.dtype)}
    keywords["use_bias"] = any(name.endswith("bias") for name in arrays)
    kinds = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU}
    if spec.mode not in kinds:
        keywords["activation"] = spec.mode.removeprefix("rnn_")
    mask = np.arange(len(x))[None] < lengths[:, None]
    values, y = list(arrays.values()), x.swapaxes(0, 1)
    per_layer = len(values) // spec.num_layers
    states: list[Array] = []
    for layer in range(spec.num_layers):
        module = kinds.get(spec.mode, keras.layers.SimpleRNN)(spec.num_units, **keywords)
        module = keras.layers.Bidirectional(module, dtype=str(spec.dtype)) if spec.num_dirs == 2 else module
        module.build(y.shape)
        module.set_weights(values[layer * per_layer : (layer + 1) * per_layer])
        rows = range(layer * spec.num_dirs, (layer + 1) * spec.num_dirs)
        initial = [state[row] for row in rows for state in ((hx, cx) if spec.has_cell_state else (hx,))]
        initial = [keras.ops.convert_to_tensor(state, dtype=str(spec.dtype)) for state in initial]
        data = keras.ops.convert_to_tensor(y, dtype=str(spec.dtype))
        results = module(data, initial_state=initial, mask=keras.ops.convert_to_tensor(mask))
        y, *final = (np.array(keras.ops.convert_to_numpy(result)) for result in results)
        y[~mask] = 0
        states += final
    step = 2 if spec.has_cell_state else 1
    return y.swapaxes(0, 1), np.stack(states[::step]), np.stack(states[1::2]) if spec.has_cell_state else None


def run_onnx(arrays: dict[str, Array], spec: RNNSpec, x: Array, hx: Array, cx: Array, lengths: Array) -> Outputs:
    """Run the model that `onnx.to_model` writes on onnxruntime."""
    import onnxruntime  # noqa: PLC0415

    model = model_of(arrays, spec, sequence_lens=True, states=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors; it warns of every input that may be left out
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    inputs = {"input": x, "initial_h": hx, "sequence_lens": lengths.astype(np.int32)}
    if spec.has_cell_state:
        inputs["initial_c"] = cx
    y, hy, *cy = session.run(None, inputs)
    return y, hy, cy[0] if cy else None


def run_jax_rnn(arrays: dict[str, Array], spec: RNNSpec, x: Array, hx: Array, cx: Array, lengths: Array) -> Outputs:
    """Run the reference implementation of jax.experimental.rnn, the only one that it has for CPUs."""
    import jax  # noqa: PLC0415
    from jax.experimental import rnn  # noqa: PLC0415

    sizes: tuple[Any, ...] = (spec.input_size, spec.num_units, spec.num_layers)
    with jax.enable_x64(spec.dtype == "float64"):
        parts = rnn.unpack_lstm_weights(jax.numpy.asarray(arrays["weights"]), *sizes, spec.num_dirs == 2)
        results = rnn.lstm_ref(
            *map(jax.numpy.asarray, (x.swapaxes(0, 1), hx, cx)), *parts, lengths.astype(np.int32), *sizes, 0.0,
            spec.num_dirs == 2,
        )  # fmt: skip
        y, hy, cy = (np.asarray(result) for result in results)
    return y.swapaxes(0, 1), hy, cy


def run_equinox(arrays: dict[str, Array], spec: RNNSpec, x: Array, hx: Array, cx: Array, lengths: Array) -> Outputs:
    """Run eqx.nn.LSTMCell or GRUCell step by step."""
    import equinox as eqx  # noqa: PLC0415
    import jax  # noqa: PLC0415

    kind = eqx.nn.LSTMCell if spec.has_cell_state else eqx.nn.GRUCell

    def step_of(params: dict[str, Array]) -> CellStep:
        cell = kind(params["weight_ih"].shape[1], spec.num_units, use_bias="bias" in params, key=jax.random.key(0))
        cell = eqx.tree_at(
            lambda c: [getattr(c, name) for name in params], cell, [*map(jax.numpy.asarray, params.values())]
        )
        run = jax.vmap(cell)
        return lambda x, h, c: run(x, (h, c)) if spec.has_cell_state else (run(x, h), c)

    with jax.enable_x64(spec.dtype == "float64"):
        return _unroll(spec, [*map(step_of, _cells(arrays, depth=1))], x, hx, cx, lengths)


def run_flax(arrays: dict[str, Array], spec: RNNSpec, x: Array, hx: Array, cx: Array, lengths: Array) -> Outputs:
    """Run linen's cells step by step."""
    import jax  # noqa: PLC0415
    from flax import linen, traverse_util  # noqa: PLC0415

    kind = {"lstm": linen.LSTMCell, "gru": linen.GRUCell, "rnn_tanh": linen.SimpleCell}[spec.mode]
    cell = kind(spec.num_units, dtype=spec.dtype.numpy, param_dtype=spec.dtype.numpy)

    def step_of(arrays_of_cell: dict[str, Array]) -> CellStep:
        params = {"params": traverse_util.unflatten_dict(arrays_of_cell, sep="/")}

        def step(x: Array, h: Array, c: Array) -> tuple[Any, Any]:
            carry, y = cell.apply(params, (c, h) if spec.has_cell_state else h, x)
            return y, carry[0] if spec.has_cell_state else c

        return step

    with jax.enable_x64(spec.dtype == "float64"):
        return _unroll(spec, [*map(step_of, _cells(arrays, depth=2))], x, hx, cx, lengths)


CellStep = Callable[[Array, Array, Array], tuple[Any, Any]]
"""A step of a cell: (x, h, c) to (h, c). A cell without c returns the one that it got."""

RUNNERS: Final[dict[str, tuple[Callable[..., Outputs], tuple[str, ...]]]] = {
    "pytorch": (run_pytorch, ("torch",)),
    "keras": (run_keras, ("keras",)),
    "onnx": (run_onnx, ("onnx", "onnxruntime")),
    "jax_rnn": (run_jax_rnn, ("jax",)),
    "equinox": (run_equinox, ("equinox", "jax")),
    "flax": (run_flax, ("flax", "jax")),
}
"""The runner of each framework, and the packages that it needs."""


def _cells(arrays: dict[str, Array], depth: int) -> list[dict[str, Array]]:
    """Split the arrays of a stack into its cells, in their order; the last `depth` parts of a name are the cell's."""
    cells: dict[str, dict[str, Array]] = {}
    for name, array in arrays.items():
        parts = name.split("/")
        cells.setdefault("/".join(parts[:-depth]), {})["/".join(parts[-depth:])] = array
    return list(cells.values())


def _unroll(spec: RNNSpec, steps: list[CellStep], x: Array, hx: Array, cx: Array, lengths: Array) -> Outputs:
    """Run cells over time. A sequence that has ended, or not begun in a backward pass, keeps its state."""
    below, hy, cy = x, hx.copy(), cx.copy()
    for layer in range(spec.num_layers):
        above = np.zeros((*x.shape[:2], spec.num_dirs, spec.num_units), x.dtype)
        for direction in range(spec.num_dirs):
            p = layer * spec.num_dirs + direction
            for t in range(len(x))[:: -1 if direction else 1]:
                runs = (t < lengths)[:, None]
                h, c = steps[p](below[t], hy[p], cy[p])
                hy[p], cy[p] = np.where(runs, h, hy[p]), np.where(runs, c, cy[p])
                above[t, :, direction] = np.where(runs, h, 0)
        below = above.reshape(*x.shape[:2], -1)
    return below, hy, cy if spec.has_cell_state else None
