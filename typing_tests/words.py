"""Words: a type checker takes each one, as a string or as its enum member, and refuses others. Nothing here is run."""

from typing import assert_type

import numpy as np
import numpy.typing as npt

from pycudnnrnn import RNNSpec, convert, ops
from pycudnnrnn.spec import Algorithm, BiasMode, Direction, DirectionLike, DType, InputMode, MathType, RNNMode

x: npt.NDArray[np.float32] = np.zeros((3, 2, 4), np.float32)

# Strings and enum members.
RNNSpec("lstm", 1, 8, 8, "skip_input", "bidirectional", "float16", bias_mode="none", algo="auto", math_type="fma")
RNNSpec(
    RNNMode.LSTM, 1, 8, 8, InputMode.SKIP_INPUT, Direction.BIDIRECTIONAL, DType.FLOAT16,
    bias_mode=BiasMode.NONE, algo=Algorithm.AUTO, math_type=MathType.FMA, compute_dtype=DType.FLOAT32,
)  # fmt: skip
lstm = ops.CudnnLSTM(1, 8, 4, "auto_select", "bidirectional", np.float32, bias_mode="single_input", math_type=None)
gru = ops.CudnnGRU(1, 8, 4, direction=Direction.UNIDIRECTIONAL, algo="persist_static", compute_dtype="float32")
ops.cudnn_rnn_opaque_params_size("rnn_relu", 1, 8, 4, "linear_input", "unidirectional", "bfloat16")
assert_type(lstm.spec.direction, Direction)

# A program's own variables take the same types.
both: DirectionLike = "bidirectional"
ops.CudnnRNNTanh(1, 8, 4, direction=both)

# Other words are errors in the checker, as they are at run time.
RNNSpec("rnn", 1, 8, 4)  # type: ignore[arg-type]
RNNSpec("lstm", 1, 8, 4, input_mode="skip")  # type: ignore[arg-type]
RNNSpec("lstm", 1, 8, 4, direction="bi")  # type: ignore[arg-type]
RNNSpec("lstm", 1, 8, 4, bias_mode="single")  # type: ignore[arg-type]
RNNSpec("lstm", 1, 8, 4, algo="fastest")  # type: ignore[arg-type]
RNNSpec("lstm", 1, 8, 4, math_type="tf32")  # type: ignore[arg-type]
ops.CudnnLSTM(1, 8, 4, direction="bi")  # type: ignore[arg-type]
ops.CudnnGRU(1, 8, 4, bias_mode="both")  # type: ignore[arg-type]
ops.CudnnRNNTanh(1, 8, 4, algo="fastest")  # type: ignore[arg-type]
ops.CudnnRNNRelu(1, 8, 4, input_mode="linear")  # type: ignore[arg-type]
ops.cudnn_gru(x, x, x, False, direction="bi")  # type: ignore[arg-type]
ops.cudnn_rnn_opaque_params_size("lstm", 1, 8, 4, direction="bi")  # type: ignore[arg-type]
lstm.layout().region(gate="candidate")  # type: ignore[arg-type]

# A Canonical has weights and biases; lists come in two.
canonical = convert.Canonical(lstm.spec, (), ())
lstm.canonical_to_params(canonical)
assert_type(lstm.canonical_to_params(canonical, out=x), npt.NDArray[np.float32])
lstm.canonical_to_params([x], [x])
lstm.canonical_to_params([x])  # type: ignore[call-overload]
lstm.canonical_to_params(canonical, [x])  # type: ignore[call-overload]
