"""ONNX models of two layers, built node by node, and how far our stack is from what onnxruntime computes."""

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper

from pycudnnrnn import RNNSpec, convert
from tests.helpers.oracles import random_canonical, run_ours

T, B, I, H = 5, 3, 4, 4  # I is H, and T is not B: what is refused runs, and computes something else
CONSTANTS = {
    "0": [0], "1": [1], "2": [2], "3": [3], "4": [4], "0 0 -1": [0, 0, -1]
}  # fmt: skip


def op(kind, inputs, output, **attributes):
    return helper.make_node(kind, inputs.split(", "), [output], output, **attributes)


def stack(between, *, directions=1, layout=0, known=(T, B), lengths=("", ""), states="", given=(), tensors=()):
    """Build two LSTM nodes, and between them the nodes that make X, which is read, of Y, which is given.

    `lengths` are those of the two, `states` is the second one's initial h; `given` and `tensors` are more inputs and
    initializers of the model.
    """
    c = random_canonical(RNNSpec("lstm", 2, H, I, direction=("unidirectional", "bidirectional")[directions - 1]), 7)
    common = {"hidden_size": H, "direction": ("forward", "bidirectional")[directions - 1]}
    common |= {"layout": layout} if layout else {}
    low = helper.make_node("LSTM", ["x", "0/W", "0/R", "0/B", lengths[0]], ["Y", "Y_h", "Y_c"], "low", **common)
    inputs = ["X", "1/W", "1/R", "1/B", lengths[1], states]
    high = helper.make_node("LSTM", inputs, ["z"], "high", **common)
    tensors = [*tensors, *(numpy_helper.from_array(a, name) for name, a in convert.onnx.from_canonical(c).items())]
    tensors += [numpy_helper.from_array(np.array(value), name) for name, value in CONSTANTS.items()]
    given = [helper.make_tensor_value_info("x", 1, [*(known[::-1] if layout else known), I]), *given]
    given += [helper.make_tensor_value_info(name, 6, [B]) for name in sorted(set(lengths) & {"n"})]
    out = helper.make_tensor_value_info("z", 1, None)
    graph = helper.make_graph([low, *between, high], "g", given, [out], tensors)
    return c, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def worst_error(c, model, layout=0, lengths=None, **more):
    """Return how far our stack is from what onnxruntime gives for the model; `more` are other inputs of it."""
    x = np.random.default_rng(1).normal(size=(T, B, I)).astype("f4")
    D = c.spec.num_dirs
    zeros = np.zeros((2 * D, B, H), "f4")
    ours = run_ours(c, x, zeros, zeros, lengths or [T] * B)[0].reshape(T, B, D, H)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (z,) = session.run(None, {"x": x.swapaxes(0, 1) if layout else x, **more})
    z = z.swapaxes(0, 1) if layout else z.swapaxes(1, 2)
    return np.abs(z - ours).max() if z.shape == ours.shape else np.inf
