"""Files of a package that people use, silero-vad, against its own runtimes: torch.jit and onnxruntime.

`make test-all` fetches the package without what it depends on. One network is in most of its files, in many forms.
"""

import warnings

import numpy as np
import pytest

from pycudnnrnn import convert
from pycudnnrnn._checks import Assumption
from tests.docs.blocks import ROOT
from tests.helpers.oracles import missing, need, random_call, run_ours, worst

need("torch", "onnx", "onnxruntime")
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
import torch  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402

from tests.helpers.torch_oracle import run_torch_cells  # noqa: E402

FILES = ROOT / "build/silero/silero_vad/data"
if not FILES.is_dir():
    missing("build/silero: make test-all fetches it")

U = 128
FLOAT32 = 3e-6


def their_module():
    with warnings.catch_warnings(action="ignore"):  # torch.jit is deprecated, and the file is what it is
        return torch.jit.load(FILES / "silero_vad.jit").eval()


def from_torch():
    return convert.pytorch.to_canonical(their_module().state_dict(), prefix="_model.decoder.rnn")


def from_initializers():
    model = onnx.load(FILES / "silero_vad_op18_ifless.onnx")
    with pytest.raises(convert.ConvertError, match="it spells out an RNN of PyTorch in smaller ones") as caught:
        convert.onnx.from_model(model)
    arrays = eval(str(caught.value).partition("reads: ")[2], {"onnx": onnx, "model": model})
    return convert.pytorch.to_canonical(arrays, prefix="model.decoder.rnn")


def from_a_body():
    model = onnx.load(FILES / "silero_vad.onnx")
    with pytest.warns(Assumption, match="not read, since it belongs to each call: initial_h of node "):
        return convert.onnx.from_model(model, nodes=["If_0_then_branch__Inline_0__/decoder/rnn/LSTM"])


def from_two_branches():
    return convert.onnx.from_model(onnx.load(FILES / "silero_vad_16k_op15.onnx"), nodes=["/model/decoder/rnn_1/LSTM"])


def check(c, cell):
    call = random_call(c.spec, 1)
    assert worst(run_ours(c, *call), run_torch_cells([cell], c.spec, *call)) <= FLOAT32


@pytest.mark.parametrize("source", [from_torch, from_initializers, from_a_body, from_two_branches])
def test_each_file_has_the_cell_that_torchs_archive_runs(source):
    check(source(), their_module()._model.decoder.rnn)


def test_single_cells_in_safetensors_are_read():
    state = load_file(FILES / "silero_vad_16k.safetensors")
    cell = torch.nn.LSTMCell(U, U)
    cell.load_state_dict({name: torch.tensor(state[f"lstm_cell.{name}"]) for name in cell.state_dict()})
    check(convert.pytorch.to_canonical(state, prefix="lstm_cell"), cell)


def test_a_node_of_a_whole_model_gives_what_onnxruntime_computes_there():
    model = onnx.load(FILES / "silero_vad_16k_sequence.onnx")
    c = convert.onnx.from_model(model)
    (node,) = (node for node in model.graph.node if node.op_type == "LSTM")
    inner = [node.input[0], *node.input[5:7], *node.output]
    known = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in inner if name not in known)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    shapes = {"input": (3, 576), "h": (1, 1, U), "c": (1, 1, U)}
    inputs = {name: (0.1 * rng.normal(size=shape)).astype("f4") for name, shape in shapes.items()}
    x, h0, c0, y, hy, cy = session.run(inner, inputs)
    assert len(x) > 1
    assert worst(run_ours(c, x, h0, c0, [len(x)] * x.shape[1]), (y[:, 0], hy, cy)) <= FLOAT32
