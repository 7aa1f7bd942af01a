"""What users' type checkers see: mypy checks each `assert_type`, and nothing here is ever run."""

from pathlib import Path
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import pycudnnrnn
from pycudnnrnn import CudnnGRU, CudnnLSTM, ParamLayout, Region, RNNSpec, Saver, cells, checkpoint, convert, ops

Float32 = npt.NDArray[np.float32]
x: Float32 = np.zeros((3, 2, 4), np.float32)
anything: Any = object()

# A NumPy call types as NumPy, dtype included.
lstm = ops.CudnnLSTM(2, 8, 4, direction="bidirectional")
params = lstm.init_params(seed=1)
assert_type(params, npt.NDArray[Any])
assert_type(lstm(x, None, None, params), tuple[Float32, Float32, Float32])
assert_type(ops.CudnnGRU(1, 8, 4)(x, None, params, is_training=False), tuple[Float32, Float32])
assert_type(ops.cudnn_gru(x, x, params, False), tuple[Float32, Float32])

# Gradients, too; a cell state needs no question whether it is there.
fwd = lstm.forward(x, None, None, params, sequence_lengths=[3, 1])
assert_type(fwd, ops.Forward[Float32])
assert_type(fwd.output, Float32)
assert_type(fwd.backward(fwd.output), ops.Gradients[Float32])
assert_type(fwd.backward(fwd.output).input_h, Float32)
fwd.output_c.sum()

# README's training loop: a gradient of params is an array, and lengths may be NumPy's.
grads = lstm.forward(x, None, None, params, sequence_lengths=np.array([3, 1])).backward(fwd.output)
params -= 0.01 * grads.params

# Canonical form keeps the dtype, both ways.
single: Float32 = np.zeros(lstm.params_size(), np.float32)
assert_type(lstm.params_to_canonical(single), tuple[list[Float32], list[Float32]])
assert_type(lstm.canonical_to_params(*lstm.params_to_canonical(single)), Float32)

# Arrays of any other library stay what they are, or Any where the checker knows nothing of them.
assert_type(lstm(anything, None, None, anything), tuple[Any, Any, Any])
assert_type(lstm.init_params(device="cuda"), Any)


class ForeignArray:
    """Some library's array."""

    ndim: int
    shape: tuple[int, ...]

    def __getitem__(self, key: Any, /) -> Any: ...


foreign = ForeignArray()
assert_type(lstm(foreign, foreign, foreign, foreign), tuple[ForeignArray, ForeignArray, ForeignArray])

# Layers: the same, with states as a tuple.
layer = CudnnLSTM(2, 8)
assert_type(layer(x), tuple[Float32, tuple[Float32, ...]])
assert_type(layer.forward(x).outputs, Float32)
assert_type(layer.forward(x).backward(x).inputs, Float32)
assert_type(CudnnGRU(1, 8).stream()(x), Float32)

# An op of whatever cell is called, too, and trained; what it is shows in its class.
op = ops.from_spec(lstm.spec)
assert_type(op, ops.CudnnRNN)
assert_type(op(x, None, None, params), tuple[Float32, ...])
assert_type(op(x, None, params, is_training=False)[0], Float32)
assert_type(op.forward(x, None, None, params, keep_reserve=True), ops.Forward[Float32])
if isinstance(op, ops.CudnnLSTM):
    assert_type(op(x, None, None, params), tuple[Float32, Float32, Float32])
op([1.0, 2.0], None, params)  # type: ignore[type-var]

# Descriptions, layouts, files.
assert_type(lstm.spec, RNNSpec)
assert_type(lstm.layout(), ParamLayout)
assert_type(lstm.layout().region(0, 0, "weight"), Region)
assert_type(lstm.layout().region(layer=0, direction="forward", gate="new", kind="bias", side="input").layer, int)
assert_type(ops.from_spec(lstm.spec), ops.CudnnRNN)
assert_type(Saver({"layer": layer}).save("model.safetensors"), Path)
assert_type(checkpoint.save("model.safetensors", lstm, params), Path)
assert_type(checkpoint.load_op("model.safetensors"), tuple[ops.CudnnRNN, npt.NDArray[Any]])
assert_type(checkpoint.inspect("model.safetensors"), checkpoint.Inspection)
assert_type(convert.pytorch.to_canonical({"weight_ih_l0": single}), convert.Canonical)
assert_type(cells.CudnnCompatibleGRUCell(8).num_units, int)

# What cannot work is an error in the checker, as it is when it runs.
lstm([1.0, 2.0], None, None, params)  # type: ignore[type-var]
lstm(x, None, None, params, sequence_lengths=3)  # type: ignore[arg-type]
lstm.layout().region(0, 0, "gate")  # type: ignore[arg-type]
lstm.layout().region(layer=0, side="output")  # type: ignore[arg-type]
lstm.forward(x, None, None, params).backward(x, retian=True)  # type: ignore[call-arg]
checkpoint.save("model.safetensors", lstm)  # type: ignore[call-overload]
checkpoint.save("model.safetensors", layer, params)  # type: ignore[call-overload]
pycudnnrnn.nothing  # type: ignore[attr-defined]  # noqa: B018
